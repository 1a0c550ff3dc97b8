//! Tries to break out of the walls.
//!
//! The walls go up around a process with one thread, so each test starts this very program again,
//! has it raise them and try everything in `attempts`, and reads back what happened. A control
//! run does the same without walls, to show that the attempts would work.
#![cfg(test)]
#![expect(clippy::unnecessary_wraps, reason = "the test library wants a result of every test")]

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

mod attempts;
mod field;
mod inside;
mod outside;
mod raw;

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    match args.next().as_deref() {
        Some(inside::ARGUMENT) => inside::main(&args.collect::<Vec<_>>()),
        Some(inside::SLEEPER) => inside::sleep_until_closed(),
        _ => libtest_mimic::run(&Arguments::from_args(), tests()).exit_code(),
    }
}

fn tests() -> Vec<Trial> {
    vec![
        Trial::test("attempts_work_without_walls", outside::attempts_work_without_walls),
        Trial::test("nothing_gets_out", outside::nothing_gets_out),
        Trial::test("nothing_gets_out_as_another_user", outside::nothing_gets_out_as_another_user),
        Trial::test(
            "nothing_gets_out_with_everything_kept",
            outside::nothing_gets_out_with_all_kept,
        ),
        Trial::test(
            "nothing_gets_out_without_landlock",
            outside::nothing_gets_out_without_landlock,
        ),
        Trial::test(
            "nothing_gets_out_without_landlock_and_mounts",
            outside::nothing_gets_out_without_landlock_and_mounts,
        ),
        Trial::test(
            "nothing_gets_out_as_another_user_without_landlock",
            outside::nothing_gets_out_as_another_user_without_landlock,
        ),
        Trial::test("unguarded_openat2_is_said_and_writes_nothing", outside::unguarded_openat2),
        Trial::test("a_missing_filter_is_said", outside::a_missing_filter_is_said),
        Trial::test("a_second_thread_refuses_the_walls", outside::a_second_thread_refuses),
        Trial::test("an_abort_still_ends_the_process", outside::an_abort_still_ends_the_process),
    ]
}
