//! The children at work: real processes, real walls, files that never answer.
//!
//! The children are this very program, so it brings its own `main`.
#![cfg(test)]
#![expect(clippy::unnecessary_wraps, reason = "the test library wants a result of every test")]

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

mod actors;
mod holders;
mod slow;

fn main() -> ExitCode {
    let args: Vec<_> = std::env::args_os().skip(1).collect();
    if let Some(code) = peerway_holders::dispatch(&args) {
        return ExitCode::from(u8::try_from(code).unwrap_or(u8::MAX));
    }
    if let Some(code) = actors::dispatch(&args) {
        return code;
    }
    let tests = vec![
        Trial::test("another_users_holder_is_found", holders::another_users_holder_is_found),
        Trial::test("a_holder_in_a_user_namespace_is_found", holders::in_a_user_namespace),
        Trial::test("a_mapping_without_descriptor_is_found", holders::by_a_mapping_alone),
        Trial::test("device_numbers_are_told", holders::device_numbers_are_told),
        Trial::test("a_memory_region_of_a_device_counts", holders::a_memory_region_counts),
        Trial::test("files_that_look_like_nodes_do_not_count", holders::lookalikes_do_not_count),
        Trial::test("others_are_unreadable_without_privileges", holders::without_privileges),
        Trial::test("processes_that_end_meanwhile_are_no_error", holders::processes_that_end),
        Trial::test("a_child_that_does_not_answer_is_a_gap", holders::no_answer_is_a_gap),
        Trial::test("a_child_that_talks_nonsense_is_a_gap", holders::nonsense_is_a_gap),
        Trial::test("the_scan_stands_behind_walls", holders::the_scan_stands_behind_walls),
        Trial::test("files_are_read_and_listed", slow::files_are_read_and_listed),
        Trial::test("a_pipe_that_never_answers_costs_its_patience", slow::a_pipe_never_answers),
        Trial::test("a_file_system_that_never_answers", slow::a_file_system_never_answers),
        Trial::test("pipes_are_left_alone", slow::pipes_are_left_alone),
        Trial::test("nothing_leaves_the_root", slow::nothing_leaves_the_root),
        Trial::test("a_reader_that_ends_is_an_error", slow::a_reader_that_ends),
        Trial::test("all_of_it_works_behind_the_parents_walls", slow::behind_walls),
    ];
    libtest_mimic::run(&Arguments::from_args(), tests).exit_code()
}
