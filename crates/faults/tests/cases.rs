//! Runs over the collected cases beside the repository, where they are present: what people
//! attached to reports, with the right answer beside it.
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "helpers of tests")]

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use peerway_faults::assess::{Case, assess, concerns_peer_access};
use peerway_faults::collect::{Collector, Filter};
use peerway_faults::material::{Material, SourceKind};
use peerway_faults::partial;
use peerway_klog::Scanner;
use serde_json::Value;

/// Beside the repository, not inside it.
const CASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/cases");

#[expect(clippy::disallowed_methods, reason = "the cases lie outside any host")]
fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap()
}

#[expect(clippy::disallowed_methods, reason = "the cases lie outside any host")]
fn folders() -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(CASES) else { return Vec::new() };
    let mut folders: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    folders.retain(|path| path.join("expected.json").is_file());
    folders.sort();
    folders
}

fn material(folder: &Path, files: &[String]) -> Material {
    let mut material = Material::default();
    let mut all = Collector::new(Vec::new(), Filter::default());
    let (mut lines, mut boots) = (0, 0);
    for name in files {
        let bytes = read(&folder.join(name));
        let mut one = Collector::new(Vec::new(), Filter::default());
        let mut scanner = Scanner::new();
        scanner.feed(&bytes, &mut one);
        scanner.finish(&mut one);
        let collected = one.clone().finish(scanner.lines());
        if material.add(name, &bytes, &collected) == SourceKind::KernelLog {
            all.append(&one, lines, boots);
            lines += scanner.lines();
            boots += scanner.boot() + 1;
        }
    }
    material.log = material.has(SourceKind::KernelLog).then(|| all.finish(lines));
    material
}

fn strings(value: &Value) -> Vec<String> {
    let list = value.as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Without prefix, separators and leading zeros, as reports write addresses in many ways.
fn plain(address: &str) -> String {
    let digits = address.trim_start_matches("0x").replace('_', "");
    digits.trim_start_matches('0').to_ascii_lowercase()
}

/// What is wrong about a case.
fn differences(expected: &Value, material: &Material) -> Vec<String> {
    let snapshot = partial::snapshot("case", material);
    let all = assess(&Case { material, snapshot: &snapshot });
    let mut wrong = Vec::new();
    let kind = serde_json::to_value(all[0].assessment).unwrap();
    if kind != expected["kind"] {
        wrong.push(format!("{kind}, expected {}", expected["kind"]));
    }
    let related = serde_json::to_value(concerns_peer_access(all[0].assessment)).unwrap();
    if related != expected["gpu_p2p_related"] {
        wrong.push(format!("concerns {related}, expected {}", expected["gpu_p2p_related"]));
    }
    let facts = snapshot.faults.known();
    let events = facts.map_or(0, |facts| facts.events);
    if Some(events) != expected["fault_count"].as_u64() {
        wrong.push(format!("{events} events, expected {}", expected["fault_count"]));
    }
    let suppressed = facts.map_or(0, |facts| facts.suppressed);
    if Some(suppressed) != expected["suppressed_callbacks"].as_u64() {
        wrong.push(format!("{suppressed} suppressed"));
    }
    let mut named: BTreeSet<String> = all.iter().flat_map(|one| one.subjects.clone()).collect();
    if let Some(facts) = facts {
        named.extend(facts.requesters.iter().map(|one| one.name.clone()));
        named
            .extend(facts.driver_events.iter().filter_map(|one| one.device).map(|d| d.to_string()));
    }
    for device in strings(&expected["devices"]) {
        if !named.contains(&device) {
            wrong.push(format!("{device} is not named"));
        }
    }
    if events > 0 {
        let rows = material.log.iter().flat_map(|log| &log.report.requesters);
        let seen: BTreeSet<String> = rows
            .flat_map(|row| row.addresses.iter().map(|address| plain(&address.to_string())))
            .collect();
        for address in strings(&expected["addresses"]) {
            if !seen.contains(&plain(&address)) {
                wrong.push(format!("{address} is not found"));
            }
        }
    }
    wrong
}

#[test]
fn every_case_is_told_right() {
    let folders = folders();
    let mut wrong = Vec::new();
    for folder in &folders {
        let expected: Value = serde_json::from_slice(&read(&folder.join("expected.json"))).unwrap();
        let material = material(folder, &strings(&expected["files"]));
        for one in differences(&expected, &material) {
            wrong.push(format!("{}: {one}", expected["id"].as_str().unwrap_or("?")));
        }
    }
    assert!(wrong.is_empty(), "of {} cases:\n{}", folders.len(), wrong.join("\n"));
}
