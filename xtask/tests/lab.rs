//! The lab's scenarios, each on every kernel of the matrix: real kernels in emulated machines. A missing
//! kernel is fetched; what cannot be had fails with the command that brings it.

#![expect(clippy::unwrap_used, clippy::tests_outside_test_module, reason = "this file is a test")]

use xtask::lab::kernel::{SERIES, Series};
use xtask::lab::scenario::{self, peer_map};
use xtask::lab::{facts, kmod};

fn check(name: &str) {
    let scenario = scenario::named(name).unwrap();
    for series in SERIES {
        let kernel = series.fetch(false).unwrap();
        let facts = facts::run(scenario, &kernel).unwrap();
        assert!(!facts.text().is_empty(), "{name} on {} says nothing", kernel.release);
        let differences = facts.differences();
        assert!(differences.is_empty(), "{name} on {}: {differences:#?}", kernel.release);
    }
}

#[test]
fn the_replica_shows_what_the_reference_host_shows() {
    check("inventory");
}

#[test]
fn no_copy_arrives_under_full_translation() {
    check("pairs");
}

#[test]
fn identity_lets_the_changed_requesters_through_and_nobody_else() {
    check("identity");
}

#[test]
fn the_type_file_answers_as_the_table_says() {
    check("type-rules");
}

#[test]
fn a_container_with_the_peer_s_bar_mapped_copies_under_translation() {
    check("vfio");
}

#[test]
fn other_paths_and_settings_do_what_is_expected() {
    check("routes");
}

#[test]
fn devices_beside_the_accelerators_go_on_working() {
    check("sides");
}

#[test]
fn the_peer_map_does_what_it_says_and_leaves_nothing_behind() {
    let kernel = Series::named("6.12").unwrap().fetch(false).unwrap();
    let modules = kmod::build(&kernel).unwrap();
    let facts = peer_map::prove(&kernel, &modules).unwrap();
    assert_eq!(facts.differences(), &[] as &[String], "{}", facts.text());
}
