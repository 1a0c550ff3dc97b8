//! Hosts that were captured on real machines.
#![expect(clippy::disallowed_methods, reason = "the binary is started as a user would start it")]
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::process::Command;

use serde_json::Value;

fn diagnose(file: &str) -> Value {
    let path = format!("{}/../../fixtures/hosts/{file}", env!("CARGO_MANIFEST_DIR"));
    let output = Command::new(env!("CARGO_BIN_EXE_peerway"))
        .args(["diagnose", "--format", "json", "--host", &path])
        .output()
        .unwrap();
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Two H200 in a guest: NVLink connects them and data arrives, but neither that nor what the
/// guest's host does can be seen from the files of the guest.
#[test]
fn a_guest_says_unknown_and_why() {
    let document = diagnose("h200-pair-guest.host");
    let pairs = document["pairs"].as_array().unwrap();
    assert_eq!(pairs.len(), 2);
    for pair in pairs {
        assert_eq!(pair["verdict"], "unknown");
        assert_eq!(pair["codes"][0], "PW0208");
    }
    let codes: Vec<&str> = document["findings"]
        .as_array()
        .unwrap()
        .iter()
        .map(|finding| finding["code"].as_str().unwrap())
        .collect();
    assert!(codes.contains(&"PW0218"), "NVLink cannot be seen: {codes:?}");
    assert_eq!(document["assessment"], "could_not_look");
}
