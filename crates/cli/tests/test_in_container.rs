//! `peerway test --in`: a container with the driver's library, on a host without it.
#![expect(clippy::disallowed_methods, reason = "the binary is started as a user would start it")]
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

#[path = "../../gpu/tests/support/container.rs"]
mod container;

use std::process::{Command, Output};

use container::{Container, field, is_root};
use serde_json::Value;

const PROGRAM: &str = env!("CARGO_BIN_EXE_peerway");

fn test(within: &str, arguments: &[&str]) -> Output {
    let state = tempfile::tempdir().unwrap();
    Command::new(PROGRAM)
        .args(["test", "--small", "--depth", "quick", "--format", "json", "--in", within])
        // Here this machine's own processes are looked at, and not all of them may be readable.
        .arg("--allow-in-use")
        .arg("--state")
        .arg(state.path())
        .args(arguments)
        .env("SECRET_OF_THE_OPERATOR", "1")
        .env_remove("CUDA_VISIBLE_DEVICES")
        .output()
        .unwrap()
}

#[track_caller]
fn check(within: &str, code: i32) -> Value {
    let output = test(within, &[]);
    let said = String::from_utf8_lossy(&output.stderr);
    let text = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(code), "{said}{text}");
    serde_json::from_str(&text).unwrap()
}

#[test]
fn a_container_is_measured_with_its_own_library() {
    let script = "gpus=2 witness=/run/witness";
    let container = Container::start(PROGRAM, Some(script), false);
    let document = check(&format!("pid:{}", container.first), 0);
    let pairs = document["pairs"].as_array().unwrap();
    assert_eq!(pairs.len(), 4, "{document:#}");
    assert!(pairs.iter().all(|row| row["verdict"] == "intact"), "{document:#}");
    assert!(document["all_reduce"].as_array().unwrap().iter().any(|row| row["arm"] == "p2p"));
    // What ran in there had no right beyond those of the container's user, and none of ours.
    let witness = container.read("/run/witness");
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
        assert_eq!(field(&witness, set), "0000000000000000", "{set}");
    }
    if is_root() {
        assert_eq!(field(&witness, "CapBnd:"), "0000000000000000");
    }
    assert_eq!(field(&witness, "NoNewPrivs:"), "1");
    assert_eq!(field(&witness, "Seccomp:"), "2");
    let inner: u32 = field(&witness, "Pid:").parse().unwrap();
    assert!(inner < 1000, "numbers of its own process space, not {inner}");
    assert!(!witness.contains("SECRET_OF_THE_OPERATOR"), "{witness}");
    assert_eq!(field(&witness, "LD_LIBRARY_PATH="), "/opt/nothing");
}

#[test]
fn damage_in_a_container_with_its_own_users_is_found() {
    let mut container =
        Container::start(PROGRAM, Some("gpus=2 fault=drop from=0 to=1 witness=/run/witness"), true);
    let word = if is_root() { container.as_lxc() } else { format!("pid:{}", container.first) };
    let document = check(&word, 7);
    let damaged: Vec<&Value> = document["pairs"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|row| row["verdict"] == "damaged")
        .collect();
    assert!(!damaged.is_empty());
    for row in damaged {
        assert_eq!((&row["from"], &row["damage"]), (&"0000:21:00.0".into(), &"dropped".into()));
    }
    let witness = container.read("/run/witness");
    assert_eq!(field(&witness, "CapEff:"), "0000000000000000");
    assert_eq!(field(&witness, "Uid:"), "0\t0\t0\t0", "the container's root");
}

#[test]
fn a_container_without_the_library_is_told() {
    let container = Container::start(PROGRAM, None, false);
    let document = check(&format!("pid:{}", container.first), 3);
    assert_eq!(document["preconditions"][0]["kind"], "no_library", "{document:#}");
    assert!(document["pairs"].as_array().unwrap().is_empty());
}

#[test]
fn what_cannot_be_entered_is_told() {
    let refused = |within: &str, code: i32, word: &str| {
        let output = test(within, &[]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{said}");
        assert!(said.contains(word), "{said}");
    };
    refused("lxc:no-such-container", 3, "no-such-container");
    refused("pid:4194304", 3, "no process");
    refused("101", 2, "lxc:ID or pid:N");
}
