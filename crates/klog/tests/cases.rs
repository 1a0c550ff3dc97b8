//! Runs over the collected cases beside the repository, where they are present: kernel logs with
//! the right counts, devices and addresses in an `expected.json` beside them.

#![expect(
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a case that is not as it should be has to fail loudly"
)]

use std::path::{Path, PathBuf};

use peerway_klog::{Report, Scanner, Summary};
use serde_json::Value;

/// Beside the repository, not inside it.
const CASES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/cases");

#[expect(clippy::disallowed_methods, reason = "the cases lie outside any host")]
fn read(path: &Path) -> Option<Vec<u8>> {
    std::fs::read(path).ok()
}

#[expect(clippy::disallowed_methods, reason = "the cases lie outside any host")]
fn folders() -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(CASES) else { return Vec::new() };
    let mut folders: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    folders.retain(|path| path.join("expected.json").is_file());
    folders.sort();
    folders
}

/// Files that hold kernel messages, by the names that reporters give them.
fn is_kernel_log(name: &str) -> bool {
    ["dmesg", "journal", "kern", "logread", "lines", "xen"]
        .iter()
        .any(|word| name.starts_with(word))
}

fn scan(logs: &[Vec<u8>]) -> Report {
    let mut all = Summary::new();
    for log in logs {
        let mut scanner = Scanner::new();
        let mut summary = Summary::new();
        scanner.feed(log, &mut summary);
        scanner.finish(&mut summary);
        all.append(&summary, 0, 0);
    }
    all.report()
}

fn strings(value: &Value) -> Vec<String> {
    let list = value.as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Without prefix, separators and leading zeros, as reports write addresses in many ways.
fn plain(address: &str) -> String {
    let digits = address.trim_start_matches("0x").replace('_', "");
    let digits = digits.trim_start_matches('0');
    if digits.is_empty() { "0".to_owned() } else { digits.to_ascii_lowercase() }
}

fn check(folder: &Path, wrong: &mut Vec<String>) {
    let expected = read(&folder.join("expected.json")).expect("listed as present");
    let expected: Value = serde_json::from_slice(&expected).expect("valid JSON");
    let files = strings(&expected["files"]);
    let logs: Vec<_> = files
        .iter()
        .filter(|name| is_kernel_log(name))
        .map(|name| read(&folder.join(name)).expect("named by the case"))
        .collect();
    if logs.is_empty() {
        return;
    }
    let report = scan(&logs);
    let case = expected["id"].as_str().unwrap_or("?").to_owned();
    let mut same = |what: &str, seen: u64, wanted: &Value| {
        if Some(seen) != wanted.as_u64() {
            wrong.push(format!("{case}: {what} {seen}, expected {wanted}"));
        }
    };
    same("events", report.events, &expected["fault_count"]);
    same("suppressed", report.suppressed, &expected["suppressed_callbacks"]);

    let text: String = logs.iter().map(|log| String::from_utf8_lossy(log).into_owned()).collect();
    let mut seen: Vec<String> = Vec::new();
    seen.extend(report.requesters.iter().map(|row| row.requester.to_string()));
    for event in &report.driver_events {
        seen.extend([event.device, event.other].iter().flatten().map(ToString::to_string));
    }
    seen.extend(report.devices.keys().map(ToString::to_string));
    for device in strings(&expected["devices"]) {
        // Some are named by other files of the case only.
        let in_log = text.contains(device.trim_start_matches("0000:").trim_end_matches(".0"));
        if in_log && !seen.contains(&device) {
            wrong.push(format!("{case}: device {device} not found"));
        }
    }
    let mut addresses: Vec<String> = Vec::new();
    for row in &report.requesters {
        addresses.extend(row.addresses.iter().map(|address| plain(&address.to_string())));
    }
    let driver = report.driver_events.iter().flat_map(|event| &event.addresses);
    addresses.extend(driver.map(|address| plain(&address.to_string())));
    for address in strings(&expected["addresses"]) {
        if !addresses.contains(&plain(&address)) {
            wrong.push(format!("{case}: address {address} not found"));
        }
    }
}

#[test]
fn every_case_gives_its_counts_devices_and_addresses() {
    let folders = folders();
    let mut wrong = Vec::new();
    for folder in &folders {
        check(folder, &mut wrong);
    }
    assert!(wrong.is_empty(), "of {} cases:\n{}", folders.len(), wrong.join("\n"));
}
