//! Any single file of a host that cannot be read, or holds something else, never makes data
//! arrive that did not arrive before.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::sync::Arc;

use peerway_core::address::PciAddress;
use peerway_core::diagnose::pairs::{PairScope, judge_all};
use peerway_core::judge::{Pair, Verdict};
use peerway_read::host::{Request, collect};
use peerway_read::root::Root;
use peerway_read::tree::{Node, Tree};
use peerway_sim::hosts;
use rustix::io::Errno;

type Verdicts = BTreeMap<(PciAddress, PciAddress), Pair>;

fn judge(tree: Arc<Tree>) -> Verdicts {
    let snapshot = collect(&Root::recorded(tree), Request::default());
    let scope = PairScope { across_tenants: true, ..PairScope::default() };
    judge_all(&snapshot, &scope).into_iter().map(|pair| ((pair.from, pair.to), pair)).collect()
}

/// Of how many places of one name on a host each is broken: devices are much alike.
const ALIKE: u32 = 3;

/// What the reader looks at, as plain paths.
fn looked_at(tree: &Arc<Tree>) -> Vec<String> {
    let root = Root::recorded(Arc::clone(tree)).recording();
    collect(&root, Request::default());
    let mut names: BTreeMap<String, u32> = BTreeMap::new();
    let recording = root.into_recording();
    let paths = recording.nodes().keys().filter_map(|path| plain(tree, path));
    paths
        .filter(|path| {
            let name = path.rsplit('/').next().unwrap_or_default();
            // Devices and processes are named by number.
            let name = if name.starts_with(|one: char| one.is_ascii_digit()) { "N" } else { name };
            let seen = names.entry(name.to_owned()).or_default();
            *seen += 1;
            *seen <= ALIKE
        })
        .collect()
}

/// A path without links in it, other than the last part.
fn plain(tree: &Tree, path: &str) -> Option<String> {
    let mut path = path.to_owned();
    while let Some((at, target)) = first_link(tree, &path) {
        let (head, tail) = path.split_at(at);
        let mut parts: Vec<&str> = head.rsplit_once('/')?.0.split('/').collect();
        if target.starts_with('/') {
            parts.clear();
        }
        for part in target.split('/') {
            if part == ".." {
                parts.pop();
            } else {
                parts.push(part);
            }
        }
        path = format!("{}{tail}", parts.join("/"));
    }
    tree.find(0, &path, false).ok().map(|_| path)
}

/// Where the first part of a path ends that is a link with something behind it, and its target.
fn first_link<'a>(tree: &'a Tree, path: &str) -> Option<(usize, &'a str)> {
    path.match_indices('/').skip(1).find_map(|(at, _)| {
        match tree.node(tree.find(0, &path[..at], false).ok()?)? {
            Node::Link(target) => Some((at, target.as_str())),
            _ => None,
        }
    })
}

/// Files whose failure may hide what decides, each with the reason.
const EXCUSED: [(&str, &str); 6] = [
    ("/sys/class/iommu", "identity without a known IOMMU is taken for plain pass-through"),
    ("/proc/cpuinfo", "a host whose flags cannot be read is taken for no guest"),
    ("/config", "an endpoint that does not answer is told by its configuration space alone"),
    ("/power/runtime_status", "and that is left alone where it may be asleep"),
    ("/proc/driver/nvidia/params", "unread parameters are taken for stock ones"),
    ("/proc/driver/nvidia/version", "an unread version is taken for a stock driver"),
];

fn arrives(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Works | Verdict::Impaired)
}

/// What is done to a file, in words, and what then stands there.
type Way = (&'static str, fn() -> Node);

/// Breaks each file that the reader looks at in one of the ways, another one for each, and gives
/// what then arrives.
fn offences(ways: &[Way]) -> Vec<String> {
    let mut offences = Vec::new();
    for host in hosts::all() {
        let mut tree = Arc::new(host.builder.tree().unwrap());
        let before = judge(Arc::clone(&tree));
        let paths = looked_at(&tree);
        assert!(paths.len() > 10, "{}: {paths:?}", host.name);
        for (path, (way, node)) in paths.iter().zip(ways.iter().cycle()) {
            if EXCUSED.iter().any(|(excused, _)| path.ends_with(excused)) {
                continue;
            }
            let there = tree.node(tree.find(0, path, false).unwrap()).unwrap().clone();
            Arc::make_mut(&mut tree).set(path, node()).unwrap();
            let after = judge(Arc::clone(&tree));
            Arc::make_mut(&mut tree).set(path, there).unwrap();
            for (ends, pair) in after {
                let held = before.get(&ends).is_some_and(|before| !arrives(before.verdict));
                if held && arrives(pair.verdict) {
                    offences.push(format!("{} {path} {way}: {}", host.name, pair.reason));
                }
            }
        }
    }
    offences
}

#[test]
fn files_that_fail() {
    let offences = offences(&[
        ("denied", || Node::Fails(Errno::ACCESS)),
        ("hangs", || Node::Hangs),
        ("gone", || Node::Fails(Errno::NODEV)),
        ("broken", || Node::Fails(Errno::IO)),
    ]);
    assert!(offences.is_empty(), "{offences:#?}");
}

#[test]
fn files_that_hold_something_else() {
    let offences = offences(&[
        ("no text", || Node::File(vec![0xff; 70])),
        ("a pipe's", || Node::Directory(BTreeMap::new())),
        ("endless", || Node::File(vec![b'7'; 5_000])),
    ]);
    assert!(offences.is_empty(), "{offences:#?}");
}
