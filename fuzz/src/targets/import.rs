//! What people attach: any bytes as a file that is imported.

use peerway_faults::collect::{Collector, Filter};
use peerway_faults::material::{Material, SourceKind};
use peerway_klog::Scanner;

/// Runs the target.
pub fn run(data: &[u8]) {
    let mut collector = Collector::new(Vec::new(), Filter::default());
    let mut scanner = Scanner::new();
    scanner.feed(data, &mut collector);
    scanner.finish(&mut collector);
    let collected = collector.finish(scanner.lines());
    let events = collected.report.events;
    let mut material = Material::default();
    let is_log = material.add("file", data, &collected) == SourceKind::KernelLog;
    material.log = is_log.then_some(collected);
    let import = peerway_faults::import("file", &material);
    assert_eq!(import.events, if is_log { events } else { 0 });
    assert_eq!(import.sources.len(), 1);
}
