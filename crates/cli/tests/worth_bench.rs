//! `peerway worth bench` against a server without a model.
#![expect(clippy::disallowed_methods, reason = "the binary is started as a user would start it")]
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::process::{Command, Output};

use peerway_load_mock::{Mock, Script};
use serde_json::Value;

/// Six short requests, two at a time.
fn bench(mock: &Mock, arguments: &[&str]) -> Output {
    let short = "--concurrency 2 --requests 6 --output-tokens 8 --prompt-words 9 --duration 20 \
                 --first-limit 1 --idle-limit 1";
    Command::new(env!("CARGO_BIN_EXE_peerway"))
        .args(["worth", "bench", &mock.url()])
        .args(short.split_whitespace())
        .args(arguments)
        .output()
        .unwrap()
}

fn start(script: &str) -> Mock {
    Mock::start(Script::parse(script).unwrap()).unwrap()
}

/// The document of a run, held against the schema that the program publishes.
#[track_caller]
fn check(script: &str, codes: &[i32]) -> Value {
    let output = bench(&start(script), &["--format", "json"]);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(said, "", "nobody watches: no progress");
    assert!(codes.contains(&output.status.code().unwrap()), "{:?}", output.status);
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let schema =
        Command::new(env!("CARGO_BIN_EXE_peerway")).args(["schema", "worth-bench"]).output();
    let schema: Value = serde_json::from_slice(&schema.unwrap().stdout).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<String> = validator.iter_errors(&document).map(|e| e.to_string()).collect();
    assert!(errors.is_empty(), "{errors:#?}");
    assert!(!validator.is_valid(&serde_json::json!({})), "the schema takes anything");
    document
}

// 3 beside the code that is expected: a busy machine makes the client late, which it says.

#[test]
fn documents_and_exit_codes() {
    let document = check("pace=2", &[0, 3]);
    assert_eq!(document["schema"], "peerway/worth-bench/1");
    assert_eq!(document["levels"][0]["output_tokens"], 48);
    assert_eq!(document["levels"][0]["requests"]["complete"], 6);
    check("fault=cut at=3 every=2", &[1]);
    check("fault=stall at=3 every=4", &[8]);
    check("fault=usage-high", &[7]);
    check("fault=status-503 skip=1 retry-after=0 ", &[1]);
}

#[test]
fn text_fits_a_terminal() {
    for script in ["pace=2 dialect=sglang", "fault=error at=2 every=3", "fault=no-usage"] {
        let output = bench(&start(script), &[]);
        let text = String::from_utf8(output.stdout).unwrap();
        for line in text.lines() {
            assert!(line.chars().count() <= 80, "{line:?}");
        }
        assert!(text.contains("tokens a second") && text.contains("late in sending"), "{text}");
    }
}

#[test]
fn records_are_kept_and_never_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("run.jsonl");
    let path = path.to_str().unwrap();
    let mock = start("");
    let output = bench(&mock, &["--record", path, "--run", "a"]);
    assert!(matches!(output.status.code(), Some(0 | 3)), "{output:?}");
    let text = std::fs::read_to_string(path).unwrap();
    assert!(
        text.starts_with("{\"kind\":\"run\"")
            && text.ends_with("{\"kind\":\"end\",\"run\":\"a\"}\n")
    );
    let again = bench(&mock, &["--record", path]);
    assert_eq!(again.status.code(), Some(2));
    assert_eq!(std::fs::read_to_string(path).unwrap(), text);
}

#[test]
fn wrong_use_is_said() {
    let mock = start("");
    for (arguments, words) in [
        (["--temperature=-1"].as_slice(), "temperature"),
        (&["--api-key-env", "NO_SUCH_VARIABLE"], "no such variable"),
        (&["--metrics", "http://x"], "give a path"),
        (&["--prompts", "/no/such/file"], ""),
    ] {
        let output = bench(&mock, arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(words));
    }
    let output =
        Command::new(env!("CARGO_BIN_EXE_peerway")).args(["worth", "bench", "box"]).output();
    assert_eq!(output.unwrap().status.code(), Some(2));
}
