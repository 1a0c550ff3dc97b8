//! The changing commands over simulated hosts: arguments in, text and exit codes out.

#![expect(
    clippy::unwrap_used,
    clippy::disallowed_methods,
    reason = "tests start the program and write its input"
)]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

fn peerway(state: &Path, host: &str, arguments: &[&str]) -> (i32, String) {
    let output: Output = Command::new(env!("CARGO_BIN_EXE_peerway"))
        .args(["--host", host])
        .args(arguments)
        .env("XDG_STATE_HOME", state)
        .output()
        .unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.code().unwrap(), String::from_utf8(text).unwrap())
}

/// A directory, and the file of a plan in it.
fn planned(host: &str, road: &str) -> (tempfile::TempDir, String) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("plan.json").display().to_string();
    let (code, text) = peerway(directory.path(), host, &["plan", road, "-o", &file]);
    assert_eq!(code, 0, "{text}");
    (directory, file)
}

#[track_caller]
fn check(state: &Path, host: &str, arguments: &[&str], code: i32, word: &str) {
    let (seen, text) = peerway(state, host, arguments);
    assert_eq!(seen, code, "{arguments:?}: {text}");
    assert!(text.contains(word), "{arguments:?}: {text}");
}

/// A host's drivers stand in its capture as the reader read them, and the rehearsal begins there.
#[test]
fn a_capture_can_be_rehearsed() {
    let directory = tempfile::tempdir().unwrap();
    let (file, state) = (directory.path().join("my.host"), directory.path());
    let (code, text) = peerway(state, "sim:fsp", &["capture", "-o", file.to_str().unwrap()]);
    assert_eq!(code, 0, "{text}");
    let host = format!("sim:{}", file.display());
    let plan = directory.path().join("plan.json").display().to_string();
    check(state, &host, &["plan", "identity-groups", "-o", &plan], 0, "identity-groups");
    // The boards of the named host fail; those of a recording need not.
    check(state, &host, &["apply", &plan, "--no-timer"], 0, "applied and verified");
    check(state, &host, &["confirm"], 0, "in force");
    check(state, &host, &["undo", "--all"], 0, "taken back");
}

#[test]
fn a_map_is_applied_confirmed_verified_and_undone() {
    let host = "sim:kpro6-pve7";
    let (directory, plan) = planned(host, "peer-map");
    let state = directory.path();
    check(state, host, &["apply", &plan, "--no-timer"], 0, "confirm it");
    check(state, host, &["apply", &plan, "--no-timer"], 4, "is not over");
    check(state, host, &["recover"], 0, "confirm it");
    check(state, host, &["confirm"], 0, "in force");
    check(state, host, &["verify"], 0, "nobody else was touched");
    check(state, host, &["undo", "--all"], 0, "taken back");
    check(state, host, &["verify"], 3, "nothing was confirmed");
    let (code, text) = peerway(state, host, &["history", "--format", "jsonl"]);
    let line: Value = serde_json::from_str(text.trim()).unwrap();
    assert_eq!((code, line["state"].as_str()), (0, Some("taken back")));
    for field in ["id", "road", "steps", "began", "ended"] {
        assert!(!line[field].is_null(), "{field}: {line}");
    }
}

#[test]
fn boards_that_fail_are_taken_back_with_their_own_code() {
    let (directory, plan) = planned("sim:fsp", "identity-groups");
    let state = directory.path();
    check(state, "sim:fsp", &["apply", &plan], 5, "FSP boot cmds failed");
    check(state, "sim:fsp", &["history"], 0, "taken back");
    check(state, "sim:fsp", &["confirm"], 4, "nothing to confirm");
}

#[test]
fn without_a_word_in_time_it_is_taken_back() {
    let host = "sim:kpro6-pve7";
    let (directory, plan) = planned(host, "peer-map");
    let state = directory.path();
    check(state, host, &["apply", &plan, "--no-timer"], 0, "confirm it");
    check(state, host, &["confirm", "--later", "601"], 5, "came too late");
}

#[test]
fn the_timer_outlives_the_command() {
    let host = "sim:kpro6-pve7";
    let (directory, plan) = planned(host, "peer-map");
    let state = directory.path();
    check(state, host, &["apply", &plan, "--confirm-within", "1"], 0, "confirm it");
    // The command is over; what is left is the timer.
    for _ in 0..100 {
        std::thread::sleep(std::time::Duration::from_millis(200));
        if peerway(state, host, &["history"]).1.contains("taken back") {
            return;
        }
    }
    panic!("nothing took it back: {}", peerway(state, host, &["history"]).1);
}

#[test]
fn plans_that_are_not_as_they_were_made_are_refused() {
    let host = "sim:kpro6-pve7";
    let (directory, plan) = planned(host, "peer-map");
    let state = directory.path();
    let text = std::fs::read_to_string(&plan).unwrap();
    let edited = |name: &str, text: &str| {
        let path = state.join(name).display().to_string();
        std::fs::write(&path, text).unwrap();
        path
    };
    let cut = edited("cut", &text[..text.len() / 2]);
    check(state, host, &["apply", &cut], 2, "cannot read the plan");
    check(state, host, &["apply", "/nowhere"], 2, "cannot read the plan");
    let other = edited("edited", &text.replacen("peerway_map", "peerway_mop", 1));
    check(state, host, &["apply", &other], 4, "was changed after it was made");
    let version = edited("version", &text.replacen("\"schema\": 1", "\"schema\": 9", 1));
    check(state, host, &["apply", &version], 4, "format 9");
    check(state, "sim:fsp", &["apply", &plan], 4, "made for host");
    // A running host refuses it before it looks at anything, whoever asks.
    check(state, "live", &["apply", &plan], 4, "peerway: ");
    check(state, "sim:nowhere", &["apply", &plan], 2, "no simulated host");
    let kept = state.join("peerway/sim-kpro6-pve7/journal.jsonl");
    assert_eq!(std::fs::read(kept).unwrap_or_default(), b"", "nothing began");
}

#[test]
fn a_damaged_journal_stops_everything() {
    let host = "sim:kpro6-pve7";
    let (directory, plan) = planned(host, "peer-map");
    let state = directory.path();
    check(state, host, &["apply", &plan, "--no-timer"], 0, "confirm it");
    let kept = state.join("peerway/sim-kpro6-pve7/journal.jsonl");
    let whole = std::fs::read(&kept).unwrap();
    let mut bytes = whole.clone();
    bytes[100] ^= 1;
    std::fs::write(&kept, bytes).unwrap();
    check(state, host, &["recover"], 6, "damaged at line 1");
    // Cut anywhere, it is a beginning of itself, and recovered.
    std::fs::write(&kept, &whole[..whole.len() - 10]).unwrap();
    check(state, host, &["recover"], 5, "taken back");
}

/// Whatever mask the operator has, nobody else reads what is kept, and its owner does.
#[test]
fn what_is_kept_is_its_owners_whatever_the_mask() {
    use std::os::unix::fs::PermissionsExt as _;
    let host = "sim:kpro6-pve7";
    for mask in ["000", "777", "022"] {
        let (directory, plan) = planned(host, "peer-map");
        let state = directory.path().join("below/state");
        let line = format!("umask {mask}; exec \"$0\" \"$@\"");
        let output = Command::new("sh")
            .args(["-c", &line, env!("CARGO_BIN_EXE_peerway"), "--host", host, "apply", &plan])
            .args(["--no-timer", "--state", state.to_str().unwrap()])
            .output()
            .unwrap();
        assert!(output.status.success(), "{mask}: {}", String::from_utf8_lossy(&output.stderr));
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        for place in [&state, state.parent().unwrap()] {
            assert_eq!(mode(place), 0o700, "{mask}: {}", place.display());
        }
        let mut seen = 0;
        for entry in std::fs::read_dir(&state).unwrap() {
            let path = entry.unwrap().path();
            assert_eq!(mode(&path), 0o600, "{mask}: {}", path.display());
            seen += 1;
        }
        assert!(seen >= 4, "{seen} files");
    }
}

#[test]
fn a_change_can_be_rehearsed_on_a_recording() {
    let recording = concat!(env!("CARGO_MANIFEST_DIR"), "/../../fixtures/hosts/kpro6.host");
    let host = format!("sim:{recording}");
    let (directory, plan) = planned(&host, "live-without");
    let state = directory.path();
    check(state, &host, &["apply", &plan, "--no-timer"], 0, "in force");
    check(state, &host, &["verify"], 0, "nobody else was touched");
    check(state, &host, &["undo", "--all"], 0, "taken back");
    // The record itself stays one.
    check(state, recording, &["apply", &plan, "--no-timer"], 4, "nothing about it can change");
    check(state, "sim:./nowhere", &["apply", &plan, "--no-timer"], 4, "nowhere");
    check(state, "sim:./nowhere", &["status"], 2, "nowhere");
}
