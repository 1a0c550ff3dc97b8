//! Every host builds, and its expectations cover every ordered pair of its GPUs once.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use peerway_core::address::PciAddress;
use peerway_read::host_file;
use peerway_read::root::Root;
use peerway_read::tree::{Node, Tree};
use peerway_sim::build::{to_host_file, walk};
use peerway_sim::hosts;

/// GPUs by driver, from class and vendor in the rendered files.
fn gpus(tree: Tree) -> BTreeMap<String, BTreeSet<PciAddress>> {
    let root = Root::recorded(Arc::new(tree));
    let mut all: BTreeMap<String, BTreeSet<PciAddress>> = BTreeMap::new();
    for name in root.list("/sys/bus/pci/devices").unwrap() {
        let directory = root.directory(&format!("/sys/bus/pci/devices/{name}")).unwrap();
        let class = directory.text("class").unwrap();
        let vendor = directory.text("vendor").unwrap();
        let maker = matches!(vendor.as_str(), "0x10de" | "0x1002" | "0x8086");
        let display = ["0x0300", "0x0302", "0x0380", "0x1200"].iter().any(|c| class.starts_with(c));
        if maker && display {
            // Guests' devices are another tenant's.
            let vfio = directory.link_name("driver").known().is_some_and(|name| name == "vfio-pci");
            let owner = if vfio { "guest" } else { "host" };
            all.entry(owner.to_owned()).or_default().insert(name.parse().unwrap());
        }
    }
    all
}

#[test]
fn expectations_cover_every_pair_once() {
    for host in hosts::all() {
        let mut expected = BTreeSet::new();
        for owned in gpus(host.builder.tree().unwrap()).values() {
            for from in owned {
                expected.extend(owned.iter().filter(|to| *to != from).map(|to| (*from, *to)));
            }
        }
        let seen: BTreeSet<_> = host.expectations.iter().map(|one| (one.from, one.to)).collect();
        assert_eq!(seen, expected, "{}", host.name);
        assert_eq!(seen.len(), host.expectations.len(), "{}: a pair stands there twice", host.name);
    }
}

#[test]
fn names_are_unique_and_shown_by_the_host() {
    let mut names = BTreeSet::new();
    for host in hosts::all() {
        assert!(names.insert(host.name), "{}", host.name);
        let root = Root::recorded(Arc::new(host.builder.tree().unwrap()));
        let shown = root.text("/proc/sys/kernel/hostname", 100).unwrap();
        assert_eq!(shown, host.name);
    }
    assert!(names.len() > 40, "{}", names.len());
}

#[test]
fn what_is_written_as_a_host_file_is_read_back() {
    for host in hosts::all() {
        let tree = host.builder.tree().unwrap();
        let text = to_host_file("", &tree);
        let back = host_file::parse(&text).unwrap();
        assert!(to_host_file("", &back) == text, "{}", host.name);
    }
}

#[test]
fn links_lead_to_directories() {
    for host in hosts::all() {
        let tree = host.builder.tree().unwrap();
        walk(&tree, &mut |path, node| {
            let internal = path.starts_with("/sys/") && !path.contains("/module");
            if internal && matches!(node, Node::Link(_)) {
                let found = tree.find(0, path, true).ok().and_then(|id| tree.node(id));
                assert!(matches!(found, Some(Node::Directory(_))), "{}: {path}", host.name);
            }
        });
    }
}

#[test]
fn regions_do_not_overlap() {
    for host in hosts::all() {
        let root = Root::recorded(Arc::new(host.builder.tree().unwrap()));
        let mut regions = Vec::new();
        for name in root.list("/sys/bus/pci/devices").unwrap() {
            let resource =
                root.text(&format!("/sys/bus/pci/devices/{name}/resource"), 9000).unwrap();
            for line in resource.lines().take(6) {
                let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16);
                let words: Vec<u64> = line.split(' ').map(|word| number(word).unwrap()).collect();
                if let [start, end, flags] = words[..]
                    && flags & 0x200 != 0
                    && start != 0
                {
                    regions.push((start, end, name.clone()));
                }
            }
        }
        regions.sort();
        for pair in regions.windows(2) {
            if let [(_, end, one), (start, _, other)] = pair {
                assert!(end < start, "{}: {one} and {other}", host.name);
            }
        }
    }
}
