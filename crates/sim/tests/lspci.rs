//! `lspci` reads the rendered trees: a program on the other side of the interface agrees on
//! addresses, ACS control words and link widths.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    reason = "helpers of tests"
)]

use std::collections::BTreeMap;
use std::process::Command;

use peerway_core::address::PciAddress;
use peerway_core::snapshot::pci::Acs;
use peerway_read::tree::{Node, Tree};
use peerway_sim::build::{walk, write_tree};

/// What `lspci -vv` says about one function.
#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    acs_control: Option<u16>,
    width: Option<u8>,
    apertures: Vec<u64>,
}

/// The same from the rendered files, read with offsets of our own.
fn rendered(tree: &Tree) -> BTreeMap<PciAddress, Seen> {
    let mut all = BTreeMap::new();
    walk(tree, &mut |path, node| {
        let Some(address) = path.strip_prefix("/sys/bus/pci/devices/") else { return };
        let Node::Link(_) = node else { return };
        let read = |name: &str| {
            let file = tree.find(0, &format!("{path}/{name}"), true)?;
            tree.read_at(file, 0, 0x400)
        };
        let config = match read("config") {
            Ok(bytes) => bytes,
            Err(_) => sparse(tree, &format!("{path}/config")),
        };
        let width = read("current_link_width")
            .ok()
            .and_then(|bytes| String::from_utf8(bytes).unwrap().trim().parse().ok());
        let resource = String::from_utf8(read("resource").unwrap()).unwrap();
        let apertures = resource.lines().take(6).filter_map(aperture).collect();
        // What does not answer, or may not be read, has no capabilities to compare.
        let open = config.len() >= 256 && config[0..4] != [0xff; 4];
        let width = width.filter(|_| open);
        let seen = Seen { acs_control: acs_control(&config), width, apertures };
        all.insert(address.parse().unwrap(), seen);
    });
    all
}

fn sparse(tree: &Tree, path: &str) -> Vec<u8> {
    let id = tree.find(0, path, true).unwrap();
    let Some(Node::Sparse { readable, parts, .. }) = tree.node(id) else { panic!("{path}") };
    let mut bytes = vec![0; usize::try_from(*readable).unwrap()];
    for (offset, part) in parts {
        let start = usize::try_from(*offset).unwrap();
        bytes[start..start + part.len()].copy_from_slice(part);
    }
    bytes
}

/// Start of a memory region.
fn aperture(line: &str) -> Option<u64> {
    let mut numbers = line.split(' ').map(|text| u64::from_str_radix(&text[2..], 16).unwrap());
    let (start, _, flags) = (numbers.next()?, numbers.next()?, numbers.next()?);
    (flags & 0x200 != 0 && start != 0).then_some(start)
}

fn acs_control(config: &[u8]) -> Option<u16> {
    let word = |at: usize| u16::from_le_bytes([config[at], config[at + 1]]);
    let mut at = 0x100;
    while at != 0 && config.len() > at + 8 && word(at) != 0xffff {
        // An empty capability (functions of one device) prints no bit, and reads as no control.
        if word(at) == 0x000d {
            return Some(word(at + 6));
        }
        at = usize::from(word(at + 2) >> 4);
    }
    None
}

/// Thousands of small files take their time; the program opens only these.
fn what_lspci_reads(tree: &Tree) -> Tree {
    let names = ["vendor", "device", "class", "irq", "resource", "config", "revision", "numa_node"];
    let mut part = Tree::default();
    walk(tree, &mut |path, node| {
        let name = path.rsplit('/').next().unwrap();
        let link = path.starts_with("/sys/bus/pci/devices/");
        let file = path.starts_with("/sys/devices/pci") && names.contains(&name);
        if link || file && !matches!(node, Node::Directory(_)) {
            part.add(path, node.clone()).unwrap();
        }
    });
    part
}

#[expect(clippy::disallowed_methods, reason = "the program that this test is about")]
fn lspci(tree: &Tree) -> BTreeMap<PciAddress, Seen> {
    let directory = tempfile::tempdir().unwrap();
    write_tree(&what_lspci_reads(tree), directory.path()).unwrap();
    let path = directory.path().join("sys/bus/pci");
    let output = Command::new("lspci")
        .args(["-D", "-n", "-vv", "-O"])
        .arg(format!("sysfs.path={}", path.display()))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).unwrap();
    text.split("\n\n").filter(|block| !block.trim().is_empty()).map(block).collect()
}

fn block(text: &str) -> (PciAddress, Seen) {
    let address = text.split(' ').next().unwrap().parse().unwrap();
    let mut seen = Seen::default();
    for line in text.lines().map(str::trim_start) {
        if let Some(words) = line.strip_prefix("ACSCtl:") {
            seen.acs_control = Some(control_word(words));
        } else if let Some(rest) = line.strip_prefix("LnkSta:") {
            let width = rest.split("Width x").nth(1).unwrap();
            let digits: String = width.chars().take_while(char::is_ascii_digit).collect();
            seen.width = digits.parse().ok();
        } else if line.starts_with("Region ") && line.contains("Memory at ") {
            let start = line.split("Memory at ").nth(1).unwrap().split(' ').next().unwrap();
            seen.apertures.push(u64::from_str_radix(start, 16).unwrap());
        }
    }
    (address, seen)
}

fn control_word(words: &str) -> u16 {
    let names = [
        ("SrcValid", Acs::SOURCE_VALIDATION),
        ("TransBlk", Acs::TRANSLATION_BLOCKING),
        ("ReqRedir", Acs::REQUEST_REDIRECT),
        ("CmpltRedir", Acs::COMPLETION_REDIRECT),
        ("UpstreamFwd", Acs::UPSTREAM_FORWARDING),
        ("EgressCtrl", Acs::EGRESS_CONTROL),
        ("DirectTrans", Acs::DIRECT_TRANSLATED),
    ];
    let set = |name: &str| words.contains(&format!("{name}+"));
    names.iter().filter(|(name, _)| set(name)).fold(0, |word, (_, bit)| word | bit)
}

#[track_caller]
fn check(tree: &Tree) {
    let (expected, seen) = (rendered(tree), lspci(tree));
    assert!(!expected.is_empty());
    assert_eq!(seen.keys().collect::<Vec<_>>(), expected.keys().collect::<Vec<_>>());
    for (address, there) in &expected {
        assert_eq!(seen.get(address), Some(there), "{address}");
    }
}

#[test]
fn lspci_agrees_about_every_host() {
    for host in peerway_sim::hosts::all() {
        check(&host.builder.tree().unwrap());
    }
}
