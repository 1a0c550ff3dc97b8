//! `peerway test` against a stand-in for the driver's library.
#![expect(clippy::disallowed_methods, reason = "the binary is started as a user would start it")]
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::path::PathBuf;
use std::process::{Command, Output};

use peerway_gpu_fake::{Script, VARIABLE};
use serde_json::Value;

/// The shared library, which cargo builds beside this test since the test depends on its crate.
fn library() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().join("libpeerway_gpu_fake.so")
}

/// Runs `peerway test` on the stand-in with a script.
fn test(script: &str, arguments: &[&str]) -> Output {
    Script::parse(script).unwrap();
    // Removed at the end; the processes of one measurement share memory through it.
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let mut command = Command::new(env!("CARGO_BIN_EXE_peerway"));
    command.args(["test", "--small"]);
    if !arguments.contains(&"--cuda") {
        command.arg("--cuda").arg(library());
    }
    command
        .arg("--nccl")
        .arg(library())
        .args(arguments)
        .env(VARIABLE, format!("{script} folder={}", folder.path().display()))
        .env_remove("CUDA_VISIBLE_DEVICES")
        .output()
        .unwrap()
}

/// The document of a run that ends with `code`, held against the schema that the program publishes.
#[track_caller]
fn check(script: &str, arguments: &[&str], code: i32) -> Value {
    let output = test(script, &[arguments, &["--depth", "quick", "--format", "json"]].concat());
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        output.status.code(),
        Some(code),
        "{said}{}",
        String::from_utf8_lossy(&output.stdout)
    );
    assert_eq!(said, "", "nobody watches: no progress");
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let schema = Command::new(env!("CARGO_BIN_EXE_peerway")).args(["schema", "test"]).output();
    let schema: Value = serde_json::from_slice(&schema.unwrap().stdout).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<String> = validator.iter_errors(&document).map(|e| e.to_string()).collect();
    assert!(errors.is_empty(), "{errors:#?}");
    assert!(!validator.is_valid(&serde_json::json!({})), "the schema takes anything");
    let word = |name: &str| document.get(name).and_then(Value::as_str);
    assert_eq!((word("schema"), word("host")), (Some("peerway/test/1"), Some("live")));
    document
}

fn rows(document: &Value) -> &[Value] {
    document["pairs"].as_array().unwrap()
}

#[test]
fn honest_gpus_pass() {
    let document = check("gpus=2", &[], 0);
    assert!(rows(&document).len() == 4, "{document:#}");
    for row in rows(&document) {
        assert_eq!(row["verdict"], "intact", "{row:#}");
        assert_eq!(row["damage"], Value::Null);
        assert!(row["bandwidth_bytes_per_second"].as_f64().unwrap() > 0.0);
        assert!(row["latency_seconds"].as_f64().unwrap() > 0.0);
    }
    let reduced = document["all_reduce"].as_array().unwrap();
    assert!(reduced.iter().any(|row| row["arm"] == "p2p" && row["verdict"] == "intact"));
}

#[test]
fn wrong_data_is_named() {
    let document = check("gpus=2 fault=drop from=0 to=1", &["21:00.0", "41:00.0"], 7);
    let damaged: Vec<&Value> =
        rows(&document).iter().filter(|row| row["verdict"] == "damaged").collect();
    assert!(!damaged.is_empty());
    for row in damaged {
        assert_eq!((&row["from"], &row["to"]), (&"0000:21:00.0".into(), &"0000:41:00.0".into()));
        assert_eq!(row["damage"], "dropped");
        assert_eq!(row["bandwidth_bytes_per_second"], Value::Null, "no speed of wrong data");
    }
}

#[test]
fn a_hang_ends() {
    let document = check("gpus=2 fault=hang from=0 to=1", &["--child-limit", "3"], 8);
    assert!(rows(&document).iter().any(|row| row["verdict"] == "hung"), "{document:#}");
    assert!(!rows(&document).iter().any(|row| row["verdict"] == "damaged"), "{document:#}");
}

#[test]
fn without_a_library_nothing_is_decided() {
    let document = check("gpus=2", &["--cuda", "/nowhere/libcuda.so.1"], 3);
    assert_eq!(document["preconditions"][0]["kind"], "no_library");
    assert_eq!(rows(&document).len(), 0);
}

#[test]
fn one_gpu_is_no_pair() {
    let document = check("gpus=1", &["--loopback"], 3);
    assert_eq!(document["preconditions"][0]["kind"], "too_few_gpus");
    assert!(document["loopback"].as_array().unwrap().iter().all(|row| row["verdict"] == "intact"));
}

#[test]
fn people_get_a_page_that_fits() {
    let output = test("gpus=2 fault=zeros from=1 to=0", &["--depth", "quick"]);
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(7), "{text}");
    assert!(text.starts_with("DATA WAS WRONG"), "{text}");
    assert!(text.lines().any(|line| line.starts_with("1 > 0") && line.contains("zeros")), "{text}");
    assert!(text.contains("All-reduce") && text.contains("upload GB/s"), "{text}");
    // A word that is longer than a line stays whole.
    let wide = |line: &&str| line.chars().count() > 80 && line.trim().contains(' ');
    assert_eq!(text.lines().filter(wide).collect::<Vec<_>>(), Vec::<&str>::new());
}

/// Runs that are refused before anything is opened.
#[track_caller]
fn check_usage(arguments: &[&str], word: &str) {
    let output = test("gpus=2", arguments);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains(word), "{said}");
    assert!(output.stdout.is_empty());
}

#[test]
fn wrong_use_is_told() {
    check_usage(&["--host", "sim:kpro6"], "this host only");
    check_usage(&["21:00.0"], "<B>");
    check_usage(&["21:00.0", "21:00.0"], "--loopback");
    check_usage(&["21:00.0", "no-such-gpu"], "cannot find the GPU");
    check_usage(&["--all-pairs", "21:00.0", "41:00.0"], "cannot be used with");
    check_usage(&["--child-limit", "0"], "--child-limit");
}
