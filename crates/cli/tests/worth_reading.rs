//! `worth estimate`, `compare` and `launch`, and gains in `roads`, as a user calls them.
#![expect(clippy::disallowed_methods, reason = "the binary is started as a user would start it")]
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::process::{Command, Output};

use serde_json::Value;

fn peerway(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_peerway")).args(arguments).output().unwrap()
}

const WORKLOAD: [&str; 8] = [
    "--model",
    "known:qwen3.5-122b-a10b",
    "--gpu",
    "rtx-pro-6000",
    "--tp",
    "4",
    "--engine",
    "sglang@0.5.23",
];

/// Valid by the published schema, and within 80 columns as text where nothing is to be copied.
#[track_caller]
fn check(name: &str, arguments: &[&str], exit: i32, copied: &str) {
    let json = [arguments, &["--format", "json"]].concat();
    let output = peerway(&json);
    assert_eq!(output.status.code(), Some(exit), "{}", String::from_utf8_lossy(&output.stderr));
    let document: Value = serde_json::from_slice(&output.stdout).unwrap();
    let schema: Value = serde_json::from_slice(&peerway(&["schema", name]).stdout).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<String> = validator.iter_errors(&document).map(|e| e.to_string()).collect();
    assert!(errors.is_empty(), "{errors:#?}");
    assert!(!validator.is_valid(&serde_json::json!({})));
    let text = String::from_utf8(peerway(arguments).stdout).unwrap();
    assert!(!text.is_empty());
    for line in text.lines().filter(|line| copied.is_empty() || !line.contains(copied)) {
        assert!(line.chars().count() <= 80, "{line:?}");
    }
}

#[test]
fn documents_and_text() {
    let words = |first: &[&'static str]| [first, &WORKLOAD].concat();
    check("worth-estimate", &words(&["worth", "estimate"]), 0, "");
    let many =
        [&words(&["worth", "estimate"])[..], &["--concurrency", "128", "--measured", "1=108"]]
            .concat();
    check("worth-estimate", &many, 0, "");
    let launch = [&words(&["worth", "launch"])[..], &["--draft-steps", "3"]].concat();
    check("worth-launch", &launch, 0, " --");
    check("worth-design", &["worth", "compare", "--propose", "5"], 0, "");
}

#[track_caller]
fn ends(arguments: &[&str], exit: i32, says: &str) {
    let output = peerway(arguments);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(exit), "{error}");
    assert!(error.contains(says), "{error}");
}

#[test]
fn bad_input() {
    let place = tempfile::tempdir().unwrap();
    let file = |name: &str, text: &str| {
        let path = place.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let config = file("config.json", "{\"model_type\": \"llama\"}");
    let unknown = file("unknown.json", "{\"model_type\": \"hyena\"}");
    let empty = file("empty.jsonl", "");
    let base = ["worth", "estimate", "--gpu", "h200", "--model"];
    ends(&[&base[..], &[&config]].concat(), 2, "the configuration lacks hidden_size or n_embd");
    ends(&[&base[..], &[&unknown]].concat(), 2, "model_type \"hyena\" is unknown to this version");
    ends(&[&base[..], &["/nowhere"]].concat(), 2, "cannot read the model's configuration");
    ends(&[&base[..], &["known:none"]].concat(), 2, "there is no known model");
    ends(&["worth", "estimate"], 2, "no model was named");
    ends(&["worth", "compare", &empty, &empty], 2, "there is no run in it");
    ends(&["worth", "compare", &empty], 2, "give the records before and after");
    let mut launch = vec!["worth", "launch", "--proof", &empty];
    launch.extend(WORKLOAD);
    ends(&launch, 4, "does not prove peer access");
    // A directory that holds the configuration.
    let whole = peerway_worth_text();
    std::fs::write(place.path().join("config.json"), whole).unwrap();
    let directory = place.path().to_str().unwrap();
    let output = peerway(&[&base[..], &[directory]].concat());
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
}

/// A whole configuration of a small dense model.
fn peerway_worth_text() -> &'static str {
    "{\"model_type\": \"llama\", \"hidden_size\": 4096, \"intermediate_size\": 14336, \
     \"num_hidden_layers\": 32, \"num_attention_heads\": 32, \"num_key_value_heads\": 8, \
     \"vocab_size\": 128256, \"torch_dtype\": \"bfloat16\"}"
}

#[test]
fn roads_take_gains_from_a_workload() {
    let arguments =
        [&["roads", "--host", "sim:kpro6-pve7", "--format", "json"][..], &WORKLOAD[..2]].concat();
    let document: Value = serde_json::from_slice(&peerway(&arguments).stdout).unwrap();
    let schema: Value = serde_json::from_slice(&peerway(&["schema", "roads"]).stdout).unwrap();
    assert!(jsonschema::validator_for(&schema).unwrap().is_valid(&document));
    let road = |id: &str| {
        let roads = document["roads"].as_array().unwrap();
        roads.iter().find(|road| road["id"] == id).unwrap()["gain"].clone()
    };
    for id in ["peer-map", "identity-groups", "acs-direct", "mapping-driver", "boot-passthrough"] {
        assert_eq!(road(id)["basis"], "estimated", "{id}");
        assert!(road(id)["low_percent"].as_f64().unwrap() > 0.0);
    }
    assert_eq!(road("driver-policy")["basis"], "estimated");
    assert_eq!(road("elsewhere")["basis"], "estimated");
    let ranking = document["workload"]["ranking"].as_array().unwrap();
    assert!(ranking.iter().any(|choice| choice["id"] == "mtp" && choice["kind"] == "option"));
    assert!(ranking.iter().any(|choice| choice["id"] == "peer-map" && choice["kind"] == "road"));
    // Without a model the gain stays unknown, and says what to give.
    let bare = peerway(&["roads", "--host", "sim:kpro6-pve7", "--format", "json"]);
    let bare: Value = serde_json::from_slice(&bare.stdout).unwrap();
    assert_eq!(bare["workload"], Value::Null);
    let gain =
        &bare["roads"].as_array().unwrap().iter().find(|r| r["id"] == "peer-map").unwrap()["gain"];
    assert_eq!((&gain["basis"], &gain["low_percent"]), (&Value::from("none"), &Value::Null));
    assert!(gain["text"].as_str().unwrap().contains("--model"));
}
