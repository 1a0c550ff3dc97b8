//! Copies of hosts that are broken, partial, contradictory or hostile: the answer is a reason, and
//! never that data arrives.
#![expect(clippy::unwrap_used, clippy::disallowed_methods, reason = "spoils a copy on disk")]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use peerway_core::diagnose::pairs::{PairScope, judge_all};
use peerway_core::judge::Verdict;
use peerway_core::snapshot::Snapshot;
use peerway_read::host::{Request, collect};
use peerway_read::host_file;
use peerway_read::root::Root;
use peerway_read::tree::{Node, Tree};
use peerway_sim::build::{to_host_file, write_tree};
use peerway_sim::hosts;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

/// Four GPUs below one switch that does not redirect: every pair works.
fn healthy() -> Tree {
    let host = hosts::all().into_iter().find(|host| host.name == "switch-clear");
    host.unwrap().builder.tree().unwrap()
}

/// A GPU, the switch port above it, and another GPU.
const GPU: &str = "0000:43:00.0";
const PORT: &str = "0000:42:08.0";
const OTHER: &str = "0000:44:00.0";

/// A copy of the host on disk, to be spoiled.
struct Copy {
    place: tempfile::TempDir,
}

impl Copy {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        write_tree(&healthy(), place.path()).unwrap();
        Self { place }
    }

    fn at(&self, path: &str) -> PathBuf {
        self.place.path().join(path.trim_start_matches('/'))
    }

    /// A file of a function.
    fn of(&self, address: &str, name: &str) -> PathBuf {
        self.at(&format!("sys/bus/pci/devices/{address}/{name}"))
    }

    /// The `type` file of a function's group.
    fn domain(&self, address: &str) -> PathBuf {
        self.of(address, "iommu_group/type")
    }

    fn look(&self) -> Snapshot {
        collect(&Root::open(self.place.path()).unwrap(), Request::default())
    }
}

/// Puts something else in place of a file.
fn replace(path: &Path, content: impl AsRef<[u8]>) {
    fs::remove_file(path).unwrap();
    fs::write(path, content).unwrap();
}

fn link_to(path: &Path, target: impl AsRef<Path>) {
    fs::remove_file(path).unwrap();
    symlink(target, path).unwrap();
}

fn change(path: &Path, change: impl FnOnce(&mut Vec<u8>)) {
    let mut bytes = fs::read(path).unwrap();
    change(&mut bytes);
    replace(path, bytes);
}

/// Which pairs a spoiled file bears on.
#[derive(Clone, Copy, PartialEq)]
enum Side {
    /// Those that the GPU is the requester of: its group decides about its own requests.
    Requester,
    /// Those that it is either end of.
    Either,
}

/// Nothing from or to the GPU is said to work, and the reason is told.
#[track_caller]
fn holds(snapshot: &Snapshot, side: Side, reason: &str) {
    let pairs = judge_all(snapshot, &PairScope { across_tenants: true, ..PairScope::default() });
    let gpu = GPU.parse().unwrap();
    let concerned: Vec<_> = pairs
        .iter()
        .filter(|pair| pair.from == gpu || side == Side::Either && pair.to == gpu)
        .collect();
    for pair in &concerned {
        assert!(
            !matches!(pair.verdict, Verdict::Works | Verdict::Impaired),
            "{} -> {}: {}",
            pair.from,
            pair.to,
            pair.reason
        );
    }
    let reasons = concerned.iter().map(|pair| pair.reason.clone());
    let gaps = snapshot.gaps.iter().map(|gap| format!("{}: {}", gap.source, gap.why));
    let said: Vec<String> = reasons.chain(gaps).collect();
    assert!(said.iter().any(|said| said.contains(reason)), "{reason:?} is not said: {said:#?}");
}

/// A copy that is spoiled on disk.
#[track_caller]
fn check(reason: &str, spoil: impl FnOnce(&Copy)) {
    let copy = Copy::new();
    spoil(&copy);
    holds(&copy.look(), Side::Either, reason);
}

/// The same where only the requester's side is spoiled.
#[track_caller]
fn check_requester(reason: &str, spoil: impl FnOnce(&Copy)) {
    let copy = Copy::new();
    spoil(&copy);
    holds(&copy.look(), Side::Requester, reason);
}

/// A recording in which one place fails.
#[track_caller]
fn check_recorded(side: Side, path: &str, node: Node, reason: &str) {
    let mut tree = healthy();
    let real = real_path(&tree, path);
    tree.remove(&real);
    tree.set(&real, node).unwrap();
    // Through the text of a `.host` file, as a recording comes.
    let text = to_host_file("spoiled", &tree);
    let tree = host_file::parse(&text).unwrap();
    holds(&collect(&Root::recorded(Arc::new(tree)), Request::default()), side, reason);
}

/// The place of a file of a function, behind the link.
fn real_path(tree: &Tree, path: &str) -> String {
    let Some(rest) = path.strip_prefix("/sys/bus/pci/devices/") else { return path.to_owned() };
    let (address, name) = rest.split_once('/').unwrap();
    let link = tree.find(0, &format!("/sys/bus/pci/devices/{address}"), false).unwrap();
    match tree.node(link) {
        Some(Node::Link(target)) => format!("/sys/{}/{name}", target.trim_start_matches("../")),
        other => unreachable!("{other:?}"),
    }
}

#[test]
fn the_copy_works_before_it_is_spoiled() {
    let snapshot = Copy::new().look();
    let pairs = judge_all(&snapshot, &PairScope::default());
    assert_eq!(pairs.len(), 12);
    assert!(pairs.iter().all(|pair| pair.verdict == Verdict::Works));
}

#[test]
fn configuration_space() {
    check("there is no config for it", |copy| fs::remove_file(copy.of(PORT, "config")).unwrap());
    check("only 0 of 64 header bytes", |copy| replace(&copy.of(PORT, "config"), ""));
    check("needs CAP_SYS_ADMIN", |copy| {
        change(&copy.of(PORT, "config"), |bytes| bytes.truncate(64));
    });
    check("needs CAP_SYS_ADMIN", |copy| {
        change(&copy.of(PORT, "config"), |bytes| bytes.truncate(256));
    });
    check("the port does not answer", |copy| replace(&copy.of(PORT, "config"), [0xff; 4096]));
    check("does not answer", |copy| replace(&copy.of(GPU, "config"), [0xff; 4096]));
    check("read as ones", |copy| {
        change(&copy.of(PORT, "config"), |bytes| bytes[0x100..].fill(0xff));
    });
    check("runs in a circle", |copy| {
        change(&copy.of(PORT, "config"), |bytes| {
            bytes[0x100..0x104].copy_from_slice(&0x1001_0001_u32.to_le_bytes());
        });
    });
    check("runs in a circle", |copy| {
        change(&copy.of(PORT, "config"), |bytes| {
            bytes[0x34] = 0x40;
            bytes[0x40..0x42].copy_from_slice(&[5, 0x40]);
        });
    });
    check("not a regular file", |copy| {
        let config = copy.of(PORT, "config");
        fs::remove_file(&config).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &config, Mode::RUSR | Mode::WUSR).unwrap();
    });
    check("leads out of the host's root", |copy| link_to(&copy.of(PORT, "config"), "/dev/zero"));
    check("too many links", |copy| link_to(&copy.of(PORT, "config"), "config"));
    check("directory", |copy| {
        fs::remove_file(copy.of(PORT, "config")).unwrap();
        fs::create_dir(copy.of(PORT, "config")).unwrap();
    });
}

#[test]
fn groups() {
    check_requester("says nothing", |copy| replace(&copy.domain(GPU), ""));
    check_requester("says nothing", |copy| replace(&copy.domain(GPU), "DMA FQ\n"));
    check_requester("not text", |copy| replace(&copy.domain(GPU), b"DMA\xff-FQ\n"));
    check_requester("a name of 4000 bytes", |copy| replace(&copy.domain(GPU), "D".repeat(4000)));
    check_requester("longer than 4096 bytes", |copy| {
        let huge = copy.of(GPU, "iommu_group/huge");
        let flags = OFlags::CREATE | OFlags::WRONLY;
        let file = rustix::fs::open(&huge, flags, Mode::RUSR | Mode::WUSR).unwrap();
        rustix::fs::ftruncate(&file, 1 << 40).unwrap();
        link_to(&copy.domain(GPU), "huge");
    });
    check_requester("shows no type", |copy| fs::remove_file(copy.domain(GPU)).unwrap());
    check_requester("is no number", |copy| {
        link_to(&copy.of(GPU, "iommu_group"), "../../../kernel/iommu_groups/eleven");
    });
    check_requester("is no number", |copy| link_to(&copy.of(GPU, "iommu_group"), "99999999999"));
}

#[test]
fn devices_that_vanish_or_contradict() {
    let link = |copy: &Copy, address: &str| copy.at(&format!("sys/bus/pci/devices/{address}"));
    check("no place in the PCI tree", |copy| link_to(&link(copy, GPU), "/etc"));
    check("no place in the PCI tree", |copy| {
        let other = fs::read_link(link(copy, OTHER)).unwrap();
        link_to(&link(copy, GPU), other);
    });
    check("it vanished while it was read", |copy| {
        link_to(&link(copy, GPU), format!("../../../devices/pci0000:40/gone/{GPU}"));
    });
    check("no link", |copy| {
        fs::remove_file(link(copy, GPU)).unwrap();
        fs::create_dir(link(copy, GPU)).unwrap();
    });
    // Without the port above it nobody knows what the port does.
    check("the port is not listed", |copy| fs::remove_file(link(copy, PORT)).unwrap());
    check("40 names in it are no PCI addresses, the first of them \"0\"", |copy| {
        let devices = copy.at("sys/bus/pci/devices");
        fs::remove_file(link(copy, GPU)).unwrap();
        (0..40).for_each(|name| symlink("..", devices.join(name.to_string())).unwrap());
    });
    check("no such file", |copy| {
        fs::remove_dir_all(copy.at("sys/bus/pci/devices")).unwrap();
    });
}

#[test]
fn attributes() {
    check("could not be read (there is no resource for it)", |copy| {
        fs::remove_file(copy.of(GPU, "resource")).unwrap();
        fs::remove_file(copy.of(OTHER, "resource")).unwrap();
        for address in ["0000:45:00.0", "0000:46:00.0"] {
            fs::remove_file(copy.of(address, "resource")).unwrap();
        }
    });
    check("line 2 of resource is", |copy| {
        for address in [GPU, OTHER, "0000:45:00.0", "0000:46:00.0"] {
            replace(&copy.of(address, "resource"), "0x1 0x2 0x200\n0x1 0x2\n");
        }
    });
    // Regions that end before they begin are none.
    check("no memory region", |copy| {
        for address in [GPU, OTHER, "0000:45:00.0", "0000:46:00.0"] {
            replace(&copy.of(address, "resource"), "0x2000 0x1000 0x14220c\n".repeat(6));
        }
    });
    check("left alone: power state unknown", |copy| {
        replace(&copy.of(PORT, "power/runtime_status"), "resting\n");
    });
    check("asleep", |copy| replace(&copy.of(PORT, "power/runtime_status"), "suspended\n"));
    check("no driver is bound", |copy| {
        for address in [GPU, OTHER, "0000:45:00.0", "0000:46:00.0"] {
            change(&copy.of(address, "uevent"), |text| {
                let end = text.iter().position(|byte| *byte == b'\n').unwrap();
                assert!(text.starts_with(b"DRIVER="));
                text.drain(..=end);
            });
        }
    });
}

#[test]
fn parts_that_are_missing() {
    // A copy of the devices alone does not show that there is no IOMMU.
    check("could not be read", |copy| {
        fs::remove_dir_all(copy.at("sys/class/iommu")).unwrap();
        fs::remove_dir_all(copy.at("sys/kernel")).unwrap();
        for address in [GPU, OTHER, "0000:45:00.0", "0000:46:00.0"] {
            fs::remove_file(copy.of(address, "iommu_group")).unwrap();
        }
    });
    check("nothing is known about this one", |copy| {
        fs::remove_file(copy.at("proc/sys/kernel/osrelease")).unwrap();
        fs::remove_file(copy.at("proc/kallsyms")).unwrap();
    });
}

#[test]
fn recordings_that_fail() {
    let of = |address: &str, name: &str| format!("/sys/bus/pci/devices/{address}/{name}");
    let config = of(PORT, "config");
    check_recorded(Side::Either, &config, Node::Fails(Errno::NODEV), "the device is gone");
    check_recorded(Side::Either, &config, Node::Fails(Errno::ACCESS), "permission denied");
    check_recorded(Side::Either, &config, Node::Fails(Errno::IO), "input/output error");
    check_recorded(Side::Either, &config, Node::Hangs, "no answer within a second");
    check_recorded(
        Side::Either,
        &config,
        Node::Sparse { size: 4096, readable: 4096, parts: Vec::new() },
        "not recorded",
    );
    check_recorded(Side::Either, &config, Node::File(vec![0xff; 4096]), "the port does not answer");
    let power = of(PORT, "power/runtime_status");
    check_recorded(Side::Either, &power, Node::Fails(Errno::NXIO), "the device is gone");
    check_recorded(Side::Either, &power, Node::Hangs, "no answer within a second");
    check_recorded(
        Side::Requester,
        &of(GPU, "iommu_group"),
        Node::Hangs,
        "no answer within a second",
    );
    check_recorded(
        Side::Either,
        "/sys/bus/pci/devices",
        Node::Fails(Errno::ACCESS),
        "permission denied",
    );
    check_recorded(Side::Either, "/sys/bus/pci/devices", Node::Hangs, "no answer within a second");
    check_recorded(
        Side::Requester,
        "/sys/kernel/iommu_groups",
        Node::Fails(Errno::ACCESS),
        "permission denied",
    );
}
