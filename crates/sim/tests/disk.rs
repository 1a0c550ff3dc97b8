//! A host written to a directory gives the same snapshot as the same host in memory.
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::sync::Arc;

use peerway_core::snapshot::Snapshot;
use peerway_read::host::{Request, collect};
use peerway_read::root::Root;
use peerway_sim::build::write_tree;
use peerway_sim::{benchmark, hosts};

fn scan(root: &Root) -> Snapshot {
    collect(root, Request { privileged: true, ..Request::default() })
}

#[track_caller]
fn check(name: &str) {
    let tree = match hosts::all().into_iter().find(|host| host.name == name) {
        Some(host) => host.builder.tree().unwrap(),
        None => benchmark::host(100).tree().unwrap(),
    };
    let directory = tempfile::tempdir().unwrap();
    write_tree(&tree, directory.path()).unwrap();
    let written = scan(&Root::open(directory.path()).unwrap());
    assert!(!written.devices.is_empty());
    assert_eq!(written, scan(&Root::recorded(Arc::new(tree))), "{name}");
}

#[test]
fn written_hosts_read_as_recorded_ones() {
    for name in ["kpro6", "intel-mixed", "switch-redirect", "dead-gpu", "high-domains"] {
        check(name);
    }
}

#[test]
fn benchmark_trees_too() {
    check("benchmark");
}
