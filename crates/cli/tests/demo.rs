//! The story for a newcomer, and what a host remembers.

use std::process::{Command, Output};

fn peerway(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_peerway")).args(arguments).output().unwrap()
}

fn text(output: &Output) -> String {
    // Lines are broken where they are full: sentences are looked for without their breaks.
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn all_three_acts_are_played() {
    let output = peerway(&["demo"]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let told = text(&output);
    for sentence in [
        // First act: the answer and the roads.
        "lxc:129 inference (running): 4 devices, P2P broken 12 of 12 pairs (certain)",
        "identity-groups closed by snp-identity",
        "peer-map closed by sme-mmio",
        // Second: tried, failed, taken back, remembered.
        "control arm: 6 of 6 steps done canary: 5 of 8 steps done taken back: 14 steps",
        "FSP boot cmds failed. RM cannot boot.",
        "known-failure: remembered on this host, driver 580.95.05",
        // Third: applied, verified, confirmed, taken back.
        "a checked copy over each of 12 pairs, a quiet kernel log",
        "t000001: in force, and nobody else was touched",
        "P2P works 12 of 12 pairs (possible)",
        "t000001: taken back: the map is empty, 12 pairs are broken as before",
    ] {
        assert!(told.contains(sentence), "{sentence:?} is not told: {told}");
    }
    for line in String::from_utf8(output.stdout).unwrap().lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
}

/// The simulated host whose boards fail, as a file, with a journal of its own.
fn with_journal(journal: &str) -> tempfile::NamedTempFile {
    let captured = peerway(&["capture", "--host", "sim:fsp"]);
    assert_eq!(captured.status.code(), Some(0));
    let host = String::from_utf8(captured.stdout).unwrap();
    let file = tempfile::NamedTempFile::with_suffix(".host").unwrap();
    let (parts, end) = host.trim_end().rsplit_once("//- end ").unwrap();
    let count: u32 = end.parse().unwrap();
    let whole =
        format!("{parts}//- /var/lib/peerway/journal.jsonl\n{journal}//- end {}\n", count + 1);
    std::fs::write(file.path(), whole).unwrap();
    file
}

fn identity(file: &tempfile::NamedTempFile) -> String {
    let path = file.path().to_str().unwrap();
    let output =
        peerway(&["roads", "--format", "json", "--accept", "unbind-hazard", "--host", path]);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let roads = document["roads"].as_array().unwrap();
    let road = roads.iter().find(|road| road["id"] == "identity-groups").unwrap();
    road["state"].as_str().unwrap().to_owned()
}

#[test]
fn a_failure_that_the_host_remembers_closes_the_road() {
    let end = |kernel: &str| {
        format!(
            "{{\"sum\":\"0\",\"entry\":{{\"record\":\"end\",\"end\":\"taken_back\",\"ended\":\"x\",\
             \"outcome\":{{\"road\":\"identity-groups\",\"board\":null,\"driver\":\"580.95.05\",\
             \"kernel\":\"{kernel}\",\"result\":\"failed\",\"reason\":\"no start\"}}}}}}\n"
        )
    };
    assert_eq!(identity(&with_journal("")), "open");
    assert_eq!(identity(&with_journal(&end("6.14.11-5-bpo12-pve"))), "closed");
    // Under another kernel it may be different.
    assert_eq!(identity(&with_journal(&end("6.11.0"))), "open");
    // What cannot be read may be a failure.
    assert_eq!(identity(&with_journal(&format!("torn\n{}", end("6.11.0")))), "unknown");
}
