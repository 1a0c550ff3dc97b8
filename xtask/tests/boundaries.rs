//! What may depend on what, and what may stand where: held from the dependency graph and the
//! sources, not from good intentions.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

/// Crates that may change a host, or that start what does. Nothing that reads may reach them.
const CHANGING: [&str; 1] = ["peerway-write"];

/// The binary is the one place where reading and changing meet.
const BINARY: &str = "peerway";

/// Crates without any way to the outside: no files, no processes, no clock.
const PURE: [&str; 5] =
    ["peerway-core", "peerway-klog", "peerway-faults", "peerway-roads", "peerway-worth"];

/// Libraries that reach the outside.
const IMPURE: [&str; 7] =
    ["rustix", "libc", "nix", "tokio", "landlock", "seccompiler", "libloading"];

/// Normal dependencies by crate of the workspace, whole closures.
fn closures() -> BTreeMap<String, BTreeSet<String>> {
    let output = Command::new(env!("CARGO"))
        .args(["metadata", "--format-version", "1", "--offline"])
        // What other systems need was never fetched.
        .args(["--filter-platform", &format!("{}-unknown-linux-gnu", std::env::consts::ARCH)])
        .current_dir(xtask::root())
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let mut names = BTreeMap::new();
    for package in metadata["packages"].as_array().unwrap() {
        names.insert(package["id"].as_str().unwrap(), package["name"].as_str().unwrap());
    }
    let mut edges: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for node in metadata["resolve"]["nodes"].as_array().unwrap() {
        let normal = node["deps"].as_array().unwrap().iter().filter(|dependency| {
            dependency["dep_kinds"].as_array().unwrap().iter().any(|kind| kind["kind"].is_null())
        });
        edges.insert(
            node["id"].as_str().unwrap(),
            normal.map(|dependency| dependency["pkg"].as_str().unwrap()).collect(),
        );
    }
    let members: Vec<&str> = metadata["workspace_members"]
        .as_array()
        .unwrap()
        .iter()
        .map(|id| id.as_str().unwrap())
        .collect();
    members
        .iter()
        .map(|member| {
            let mut seen = BTreeSet::new();
            let mut next = vec![*member];
            while let Some(id) = next.pop() {
                for dependency in edges.get(id).into_iter().flatten() {
                    if seen.insert(names[dependency].to_owned()) {
                        next.push(dependency);
                    }
                }
            }
            (names[member].to_owned(), seen)
        })
        .collect()
}

#[test]
fn reading_cannot_reach_writing() {
    let closures = closures();
    assert!(closures.contains_key("peerway-cli-read"), "the graph must be the project's");
    assert!(closures["peerway-cli-read"].contains("peerway-read"));
    for (name, reached) in &closures {
        if name == BINARY || CHANGING.contains(&name.as_str()) || name == "xtask" {
            continue;
        }
        for changing in CHANGING {
            assert!(!reached.contains(changing), "{name} reaches {changing}");
        }
    }
}

#[test]
fn pure_crates_reach_nothing_outside() {
    let closures = closures();
    for name in PURE {
        for impure in IMPURE {
            assert!(!closures[name].contains(impure), "{name} reaches {impure}");
        }
    }
}

#[test]
fn only_the_load_generator_is_asynchronous() {
    for (name, reached) in closures() {
        let may = name == BINARY || name.starts_with("peerway-load");
        assert!(may || !reached.contains("tokio"), "{name} reaches tokio");
        assert!(may || !reached.contains("peerway-load"), "{name} reaches the load generator");
    }
}

/// Every tracked source file below the root, with its text.
fn sources(extensions: &[&str]) -> Vec<(String, String)> {
    let output = Command::new("git")
        .args(["ls-files", "--cached", "--others", "--exclude-standard"])
        .current_dir(xtask::root())
        .output()
        .unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .filter(|path| {
            Path::new(path)
                .extension()
                .is_some_and(|extension| extensions.iter().any(|one| extension == *one))
        })
        .filter_map(|path| {
            let text = std::fs::read_to_string(xtask::root().join(path)).ok()?;
            Some((path.to_owned(), text))
        })
        .collect()
}

#[test]
fn lab_devices_are_unknown_to_the_product() {
    let files = sources(&["rs", "toml", "host"]);
    assert!(files.len() > 50, "the sources must be listed");
    // Put together here, so that this file does not contain them.
    let ids = [["1234", "11e8"].join(":"), ["1af4", "1110"].join(":"), ["0x", "11e8"].concat()];
    for (path, text) in files {
        if path.starts_with("lab/") || path.starts_with("xtask/src/lab") {
            continue;
        }
        for id in &ids {
            assert!(!text.contains(id.as_str()), "{path} names the lab's device {id}");
        }
    }
}

#[test]
fn files_stay_readable() {
    // The aim is 400 lines; what is above the limit has become a room too large to know.
    const LIMIT: usize = 800;
    for (path, text) in sources(&["rs"]) {
        let lines = text.lines().count();
        assert!(lines <= LIMIT, "{path} has {lines} lines");
    }
}
