//! The documents that scripts rely on: valid by their published schemas, with the fixed names.
#![expect(clippy::disallowed_methods, reason = "the binary is started as a user would start it")]
#![expect(clippy::unwrap_used, reason = "helpers of tests")]

use std::process::{Command, Output};

use serde_json::Value;

fn peerway(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_peerway")).args(arguments).output().unwrap()
}

#[track_caller]
fn json(arguments: &[&str]) -> Value {
    let output = peerway(arguments);
    assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// Every document of a host against the schema that the program itself publishes.
#[track_caller]
fn check_schema(name: &str, host: &str) {
    let schema = json(&["schema", name]);
    let mut arguments = vec![name];
    if name == "path" {
        arguments.extend(["0", "1"]);
    }
    arguments.extend(["--format", "json", "--host", host]);
    let document = json(&arguments);
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<String> = validator.iter_errors(&document).map(|e| e.to_string()).collect();
    assert!(errors.is_empty(), "{name} of {host}: {errors:#?}");
    assert_eq!(document["schema"], format!("peerway/{name}/1"));
    assert_eq!(document["host"], host);
    // A schema that accepts anything would prove nothing.
    assert!(!validator.is_valid(&serde_json::json!({})));
}

#[test]
fn documents_follow_their_schemas() {
    for name in ["scan", "diagnose", "path", "status"] {
        for host in peerway_sim::NAMES {
            check_schema(name, &format!("sim:{host}"));
        }
    }
}

#[test]
fn the_schema_list_is_whole() {
    let listed = String::from_utf8(peerway(&["schema"]).stdout).unwrap();
    for name in peerway_core::document::NAMES.iter().chain(&[
        "roads",
        "plan",
        "faults",
        "import",
        "test",
        "worth-bench",
    ]) {
        assert!(listed.lines().any(|line| line == *name), "{name} is not listed");
    }
    for name in listed.lines() {
        assert_eq!(json(&["schema", name])["type"], "object", "{name}");
    }
}

/// Looks a name up by a path such as `devices.0.bars.1.size`.
fn at<'v>(value: &'v Value, path: &str) -> &'v Value {
    path.split('.').fold(value, |value, part| match part.parse::<usize>() {
        Ok(index) => &value[index],
        Err(_) => &value[part],
    })
}

#[track_caller]
fn check(document: &Value, path: &str, expected: Value) {
    assert_eq!(at(document, path), &expected, "{path}");
}

#[test]
fn the_reference_host_by_the_contract() {
    let scan = json(&["scan", "--format", "json", "--host", "sim:kpro6"]);
    check(&scan, "devices.0.address", "0000:01:00.0".into());
    check(&scan, "devices.0.vendor_id", "0x10de".into());
    check(&scan, "devices.0.device_id", "0x2bb5".into());
    check(&scan, "devices.0.driver", "nvidia".into());
    check(&scan, "devices.0.numa_node", 0.into());
    check(&scan, "devices.0.group", 42.into());
    check(&scan, "devices.0.tenant", "lxc:129".into());
    check(&scan, "devices.0.bars.1.index", 2.into());
    check(&scan, "devices.0.bars.1.start", "0x24000000000".into());
    check(&scan, "devices.0.bars.1.size", (128_u64 << 30).into());
    check(&scan, "devices.0.bars.1.width", 64.into());
    check(&scan, "iommu.vendor", "amd".into());
    check(&scan, "iommu.state", "on".into());
    check(&scan, "iommu.snp", "yes".into());
    check(&scan, "iommu.sme", "yes".into());
    check(&scan, "kernel.release", "6.14.11-5-bpo12-pve".into());
    let groups: Vec<(u64, &str)> = scan["groups"]
        .as_array()
        .unwrap()
        .iter()
        .map(|group| (group["id"].as_u64().unwrap(), group["type"].as_str().unwrap()))
        .collect();
    let expected = [10, 28, 42, 61, 72, 90, 101, 117].map(|id| (id, "DMA-FQ"));
    assert_eq!(groups, expected);
    let vm = scan["tenants"].as_array().unwrap().iter().find(|one| one["id"] == "vm:132").unwrap();
    check(vm, "name", "snp-sandbox".into());
    check(vm, "confidential", "yes".into());
    check(vm, "running", "yes".into());
    let guests = ["0000:81:00.0", "0000:91:00.0", "0000:e1:00.0", "0000:f1:00.0"];
    check(vm, "devices", guests.to_vec().into());
}

#[test]
fn the_pairs_of_the_reference_host() {
    let document = json(&["diagnose", "--format", "json", "--host", "sim:kpro6"]);
    let pairs = document["pairs"].as_array().unwrap();
    let count = |verdict: &str| pairs.iter().filter(|pair| pair["verdict"] == verdict).count();
    // Twelve within the container, broken; twelve within the guest, decided there.
    assert_eq!((pairs.len(), count("broken"), count("unknown")), (24, 12, 12));
    assert!(
        pairs.iter().all(|pair| pair["basis"] == "predicted" && pair["confidence"] != "certain"
            || pair["verdict"] == "broken")
    );
    let all = json(&["diagnose", "--all", "--format", "json", "--host", "sim:kpro6"]);
    assert_eq!(all["pairs"].as_array().unwrap().len(), 56);
    for finding in document["findings"].as_array().unwrap() {
        let code = finding["code"].as_str().unwrap();
        assert!(!finding["evidence"].as_array().unwrap().is_empty(), "{code} has no evidence");
        let page = String::from_utf8(peerway(&["explain", code]).stdout).unwrap();
        assert!(page.lines().count() > 5, "{code} has no page");
    }
}

#[test]
fn exit_codes() {
    let code = |arguments: &[&str]| peerway(arguments).status.code();
    assert_eq!(code(&["status", "--host", "sim:kpro6"]), Some(1));
    assert_eq!(code(&["status", "--host", "sim:kpro6", "--fail-on", "never"]), Some(0));
    assert_eq!(code(&["scan", "--host", "sim:kpro6"]), Some(0));
    assert_eq!(code(&["status", "--host", "sim:nowhere"]), Some(2));
    assert_eq!(code(&["status", "--no-such-option"]), Some(2));
    assert_eq!(code(&["explain", "PW9999"]), Some(2));
    assert_eq!(code(&["path", "0", "0", "--host", "sim:kpro6"]), Some(2));
    assert_eq!(code(&["path", "4", "5", "--host", "sim:kpro6"]), Some(3));
}

#[test]
fn every_screen_fits_eighty_columns() {
    for arguments in [&["status"][..], &["scan"], &["path", "0", "1"], &["diagnose"]] {
        for host in peerway_sim::NAMES {
            let host = format!("sim:{host}");
            let mut all = arguments.to_vec();
            all.extend(["--host", &host]);
            let text = String::from_utf8(peerway(&all).stdout).unwrap();
            assert!(!text.is_empty());
            for line in text.lines().filter(|line| line.split_whitespace().count() > 2) {
                let columns = line.chars().count();
                // A path or an address longer than a line stays whole.
                let longest = line.split_whitespace().map(|word| word.chars().count()).max();
                assert!(columns <= 80 || longest > Some(60), "{columns} columns: {line}");
            }
            assert!(!text.contains('\u{1b}'), "colour where there is no terminal");
        }
    }
}

#[test]
fn a_capture_says_the_same_and_names_nobody() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("host.host");
    let path = file.to_str().unwrap();
    let output = peerway(&["capture", "--host", "sim:kpro6", "-o", path]);
    assert_eq!(output.status.code(), Some(0), "{}", String::from_utf8_lossy(&output.stderr));
    let text = std::fs::read_to_string(&file).unwrap();
    for private in ["snp-sandbox", "kpro6\n", "GPU-7", "rpool"] {
        assert!(!text.contains(private), "the capture holds {private:?}");
    }
    let pairs =
        |host: &str| json(&["diagnose", "--format", "json", "--host", host])["pairs"].clone();
    assert_eq!(pairs(path), pairs("sim:kpro6"));
    // A file that is there is never replaced.
    let again = peerway(&["capture", "--host", "sim:kpro6", "-o", path]);
    assert_ne!(again.status.code(), Some(0));
    assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
}

#[test]
fn completions_and_manual_name_the_commands() {
    for arguments in [&["completions", "bash"][..], &["man"]] {
        let text = String::from_utf8(peerway(arguments).stdout).unwrap();
        for command in ["diagnose", "capture", "explain"] {
            assert!(text.contains(command), "{arguments:?} lacks {command}");
        }
    }
}
