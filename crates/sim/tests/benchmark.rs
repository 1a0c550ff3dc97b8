//! Benchmark trees have the size that was asked for.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::sync::Arc;

use peerway_read::root::Root;
use peerway_sim::benchmark;

#[track_caller]
fn check(devices: u32, groups: usize) {
    let root = Root::recorded(Arc::new(benchmark::host(devices).tree().unwrap()));
    let there = root.list("/sys/bus/pci/devices").unwrap();
    assert_eq!(there.len(), usize::try_from(devices).unwrap());
    // Host bridges stand in groups of their own.
    let roots = there.iter().filter(|name| name.ends_with(":00:00.0")).count();
    let all = root.list("/sys/kernel/iommu_groups").unwrap();
    assert_eq!(all.len(), groups + roots);
}

#[test]
fn sizes() {
    check(12, 1);
    check(100, 10);
    check(1_000, 98);
    check(10_000, 976);
}
