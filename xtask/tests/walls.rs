//! Looking changes nothing, seen from outside: every system call of every reading command on this
//! machine and on a simulated host.

#![expect(clippy::unwrap_used, clippy::tests_outside_test_module, reason = "this file is a test")]

use std::collections::BTreeSet;
use std::process::Command;

use xtask::lab::product::{self, COMMANDS, outside};

fn check(host: &str) {
    let binary = product::binary().unwrap();
    let place = tempfile::tempdir().unwrap();
    for command in COMMANDS {
        let into = place.path().join(command.name);
        let mut words = command.words.to_vec();
        words.extend(["--host", host]);
        let watched = outside::watch(&binary, &words, &into).unwrap();
        // Findings, wrong use (no such device here), undecided, a closed road: answers, all of them.
        let ended = (watched.status, &watched.stderr);
        assert!(watched.status.is_some_and(|status| status < 5), "{words:?}: {ended:?}");
        let seen = outside::judge(&watched.processes);
        assert_eq!(seen.violations, Vec::<String>::new(), "{words:?}");
        assert!(seen.calls > 0, "{words:?} did nothing");
        if command.looks {
            assert_eq!(seen.bare, 0, "{words:?}: a process without walls");
            assert!(seen.behind_walls > 0, "{words:?} did nothing behind its walls");
        }
    }
}

#[test]
fn no_reading_command_changes_this_machine() {
    check("live");
}

#[test]
fn no_reading_command_changes_this_machine_while_it_looks_at_a_simulated_host() {
    check("sim:kpro6");
}

/// Commands of the crate that changes hosts (`history` and `verify` among them), the measurement, and the
/// list of commands: none of them promises walls.
const OTHERS: [&str; 9] =
    ["apply", "confirm", "rollback", "recover", "undo", "history", "verify", "test", "help"];

#[test]
fn every_command_of_the_binary_is_watched_or_known_to_do_more_than_reading() {
    let output = Command::new(product::binary().unwrap()).arg("--help").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    let list = text.split("Commands:\n").nth(1).unwrap().split("\n\n").next().unwrap();
    let listed: BTreeSet<&str> =
        list.lines().filter_map(|line| line.split_whitespace().next()).collect();
    let watched: BTreeSet<&str> = COMMANDS.iter().map(|command| command.words[0]).collect();
    let unknown: Vec<&&str> = listed.iter().filter(|name| !watched.contains(*name)).collect();
    let unknown: Vec<&&&str> = unknown.iter().filter(|name| !OTHERS.contains(**name)).collect();
    assert!(unknown.is_empty(), "neither watched nor known to change something: {unknown:?}");
    assert!(watched.is_subset(&listed), "{watched:?} are not all in {listed:?}");
}
