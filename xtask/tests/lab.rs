//! The lab's scenarios, and the product in its machines, on real kernels. `PEERWAY_LAB_KERNELS` names the
//! series ("5.10 6.1 6.12 7.x"); without it, that of continuous integration. A missing kernel is fetched;
//! what cannot be had fails with the command that brings it.

#![expect(clippy::unwrap_used, clippy::tests_outside_test_module, reason = "this file is a test")]

use xtask::lab::facts::{self, Facts};
use xtask::lab::kernel::{Kernel, Series};
use xtask::lab::scenario::{self, peer_map};
use xtask::lab::{change, kmod, product, road};

/// What continuous integration has time for.
const DEFAULT: &str = "6.12";

/// The kernels that this run is about.
fn kernels() -> Vec<Kernel> {
    let named = std::env::var("PEERWAY_LAB_KERNELS").unwrap_or_else(|_| DEFAULT.to_owned());
    let kernels: Vec<Kernel> = named
        .split_whitespace()
        .map(|name| Series::named(name).unwrap().fetch(false).unwrap())
        .collect();
    assert!(!kernels.is_empty(), "PEERWAY_LAB_KERNELS names no kernel");
    kernels
}

fn expected(name: &str, kernel: &Kernel, facts: &Facts) {
    assert!(!facts.text().is_empty(), "{name} on {} says nothing", kernel.release);
    let differences = facts.differences();
    assert!(differences.is_empty(), "{name} on {}: {differences:#?}", kernel.release);
}

fn check(names: &[&str]) {
    for kernel in kernels() {
        for name in names {
            let scenario = scenario::named(name).unwrap();
            expected(name, &kernel, &facts::run(scenario, &kernel).unwrap());
        }
    }
}

fn check_product(name: &str) {
    let part = product::part(name).unwrap();
    for kernel in kernels() {
        expected(name, &kernel, &(part.run)(&kernel).unwrap());
    }
}

/// Two scenarios in one test, since one boot of the replica serves both.
#[test]
fn the_replica_shows_what_the_reference_host_shows_and_no_copy_arrives_on_it() {
    check(&["inventory", "pairs"]);
}

#[test]
fn identity_lets_the_changed_requesters_through_and_nobody_else() {
    check(&["identity"]);
}

#[test]
fn the_type_file_answers_as_the_table_says() {
    check(&["type-rules"]);
}

#[test]
fn a_container_with_the_peer_s_bar_mapped_copies_under_translation() {
    check(&["vfio"]);
}

/// These boots are those of the scenarios `routes` and `sides` with the product in them.
#[test]
fn other_machines_do_what_is_expected_and_the_product_says_what_they_do() {
    check_product("machines");
}

/// Kernels before 6.4 change no group of two functions: there, a machine with slots apart shows it too.
#[test]
fn verdict_and_fact_agree_for_every_pair_of_the_replica() {
    for kernel in kernels() {
        let parts = ["replica", "separate"];
        let count = if ["5.10", "6.1"].contains(&kernel.series.as_str()) { 2 } else { 1 };
        for name in parts.into_iter().take(count) {
            expected(name, &kernel, &(product::part(name).unwrap().run)(&kernel).unwrap());
        }
    }
}

#[test]
fn faults_are_put_down_to_the_requester_the_bar_and_the_offset_of_the_copy() {
    check_product("faults");
}

#[test]
fn reading_commands_leave_the_machine_as_it_was() {
    check_product("still");
}

#[test]
fn the_peer_map_does_what_it_says_and_leaves_nothing_behind() {
    let kernel = Series::named("6.12").unwrap().fetch(false).unwrap();
    let modules = kmod::build(&kernel).unwrap();
    let facts = peer_map::prove(&kernel, &modules).unwrap();
    assert!(facts.differences().is_empty(), "{:#?} {}", facts.differences(), facts.text());
}

#[test]
fn a_peer_map_is_applied_proved_and_taken_back_by_the_product() {
    let kernel = Series::named("6.12").unwrap().fetch(false).unwrap();
    let story = road::part("story").unwrap();
    expected("story", &kernel, &(story.run)(&kernel).unwrap());
}

fn check_change(name: &str) {
    let kernel = Series::named("6.12").unwrap().fetch(false).unwrap();
    expected(name, &kernel, &(change::part(name).unwrap().run)(&kernel).unwrap());
}

#[test]
fn a_change_is_applied_kept_and_taken_back_on_a_real_kernel() {
    check_change("story");
}
