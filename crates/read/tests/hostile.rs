//! Small recordings that stand for endless hosts: they end, in bounded time and memory.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::fmt::Write as _;
use std::sync::Arc;

use peerway_core::snapshot::Snapshot;
use peerway_read::host::{Request, collect};
use peerway_read::host_file;
use peerway_read::root::Root;

/// The text of a recording.
struct Recording {
    text: String,
    count: usize,
}

impl Recording {
    fn new() -> Self {
        Self { text: "peerway-host 1\n".to_owned(), count: 0 }
    }

    fn add(&mut self, entry: std::fmt::Arguments<'_>) -> &mut Self {
        self.text.write_fmt(format_args!("//- {entry}\n")).unwrap();
        self.count += 1;
        self
    }

    fn finish(self) -> String {
        format!("{}//- end {}\n", self.text, self.count)
    }

    fn look(self) -> Snapshot {
        let tree = host_file::parse(&self.finish()).unwrap();
        collect(&Root::recorded(Arc::new(tree)), Request::default())
    }
}

#[track_caller]
fn check_gap(snapshot: &Snapshot, part: &str) {
    let said: Vec<String> =
        snapshot.gaps.iter().map(|gap| format!("{}: {}", gap.source, gap.why)).collect();
    assert!(said.iter().any(|said| said.contains(part)), "{part:?} is not said: {said:#?}");
}

/// Every process shows the same large directory of descriptors.
#[test]
fn descriptors_without_end() {
    let mut host = Recording::new();
    for number in 0..2_000 {
        host.add(format_args!("/shared/{number} -> /dev/nvidia0"));
    }
    for pid in 1..=2_000 {
        host.add(format_args!("/proc/{pid}/fd -> /shared"));
    }
    check_gap(&host.look(), "more was found than any host has");
}

/// More functions than any host has, all of them GPUs, all of them one directory.
#[test]
fn gpus_without_end() {
    let mut host = Recording::new();
    let uevent = "DRIVER=nvidia\nPCI_CLASS=30200\nPCI_ID=10DE:2BB5";
    host.add(format_args!("/one/uevent\n{uevent}"));
    host.add(format_args!("/one/resource\n0x20000000000 0x21fffffffff 0x14220c"));
    for number in 0..70_000_u32 {
        let address = format!(
            "{:04x}:{:02x}:{:02x}.{}",
            number >> 16,
            number >> 8 & 0xff,
            number >> 3 & 0x1f,
            number & 7
        );
        let link = format!("../../../devices/pci0000:00/{address}");
        host.add(format_args!("/sys/bus/pci/devices/{address} -> {link}"));
        host.add(format_args!("/sys/devices/pci0000:00/{address} -> /one"));
    }
    let snapshot = host.look();
    check_gap(&snapshot, "only the first 65536 of 70000 functions were read");
    check_gap(&snapshot, "GPUs above the first 1024 were left out");
    assert_eq!(snapshot.accelerated().len(), 1024);
}

/// Configurations that claim every device many times over.
#[test]
fn claims_without_end() {
    let mut host = Recording::new();
    for number in 0..1_000_u32 {
        let address = format!("0000:{:02x}:{:02x}.0", number >> 5 & 0xff, number & 0x1f);
        let directory = format!("/sys/devices/pci0000:00/{address}");
        host.add(format_args!("/sys/bus/pci/devices/{address} -> ../../..{}", &directory[4..]));
        host.add(format_args!("{directory}/uevent\nPCI_CLASS=30200\nPCI_ID=10DE:2BB5"));
    }
    host.add(format_args!("/config/config"));
    for number in 0..500 {
        writeln!(host.text, "lxc.cgroup2.devices.allow = c 195:* rwm # {number}").unwrap();
    }
    for number in 0..50 {
        host.add(format_args!("/var/lib/lxc/{number} -> /config"));
    }
    let snapshot = host.look();
    check_gap(&snapshot, "claims were kept");
    assert!(snapshot.claims.len() <= 100_000);
}

#[track_caller]
fn check_refused(text: &str, expected: &str) {
    let error = host_file::parse(text).unwrap_err().to_string();
    assert!(error.contains(expected), "{error}");
    assert!(error.len() < 300, "{} bytes of error", error.len());
}

/// A short path may hold a thousand directories, each of which takes memory.
#[test]
fn files_that_ask_for_memory() {
    let mut host = Recording::new();
    for number in 0..1_000 {
        host.add(format_args!("/{number}/{}", "a/".repeat(2_000)));
    }
    check_refused(&host.finish(), "more files than any host has");
    let mut host = Recording::new();
    host.add(format_args!("/{}", "a".repeat(5_000)));
    check_refused(&host.finish(), "is too long");
    let mut host = Recording::new();
    host.add(format_args!(
        "/a hex 18446744073709551615 18446744073709551615\nffffffffffffffff: 00"
    ));
    check_refused(&host.finish(), "bytes beyond the size of the file");
    check_refused(&"x".repeat(host_file::MOST_BYTES + 1), "larger than");
    check_refused(&format!("peerway-host {}\n", "9".repeat(10_000)), "not a .host file");
}
