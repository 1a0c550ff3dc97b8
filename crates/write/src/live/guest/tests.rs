//! Containers and machines by stand-ins for their managers.

#![expect(clippy::disallowed_methods, reason = "tests make the tree of the stand-in")]

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use super::super::tests::{allow, host, tree};
use super::*;
use crate::mutator::{Mutator as _, is_reached};

/// Managers that keep each guest's state in a file, and write down what they were told to do.
const PVE: &str = "echo $0 \"$@\" >> $PLACE/told
case $1 in
status) echo status: $(cat $PLACE/state/$2) ;;
shutdown) [ \"$3 $4\" = '--timeout 180' ] && echo stopped > $PLACE/state/$2 ;;
start) echo running > $PLACE/state/$2 ;;
esac";
const LXC_TEXT: &str = "echo $0 \"$@\" >> $PLACE/told
case ${0##*/} in
lxc-info) tr a-z A-Z < $PLACE/state/$2 ;;
lxc-stop) echo stopped > $PLACE/state/$2 ;;
lxc-start) echo running > $PLACE/state/$2 ;;
esac";

/// A host whose process 4711 has a device open, in this control group; with guests in these states.
fn with(group: &str, guests: &[(&str, &str)]) -> tempfile::TempDir {
    let place = tree();
    let root = place.path();
    for directory in
        ["usr/sbin", "usr/bin", "state", "proc/4711", "etc/pve/lxc", "etc/pve/qemu-server"]
    {
        std::fs::create_dir_all(root.join(directory)).unwrap();
    }
    std::fs::write(root.join("held"), "4711 0000:01:00.0\n").unwrap();
    std::fs::write(root.join("proc/4711/cgroup"), format!("0::{group}\n")).unwrap();
    for (program, text) in [
        ("usr/sbin/pct", PVE),
        ("usr/sbin/qm", PVE),
        ("usr/bin/lxc-info", LXC_TEXT),
        ("usr/bin/lxc-stop", LXC_TEXT),
        ("usr/bin/lxc-start", LXC_TEXT),
    ] {
        let text = format!("#!/bin/sh\nPLACE={}\n{text}\n", root.display());
        std::fs::write(root.join(program), text).unwrap();
        let mode = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(root.join(program), mode).unwrap();
    }
    for (name, state) in guests {
        std::fs::write(root.join("state").join(name), format!("{state}\n")).unwrap();
        // Proxmox VE's guests have numbers.
        let directories: &[&str] =
            if name.parse::<u32>().is_ok() { &["lxc", "qemu-server"] } else { &[] };
        for directory in directories {
            let file = root.join(format!("etc/pve/{directory}/{name}.conf"));
            std::fs::write(file, "memory: 512\n\n[before]\nlock: backup\n").unwrap();
        }
    }
    place
}

/// What the programs were told, without the places of the programs and of looks.
fn told(place: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(place.join("told")).unwrap_or_default();
    let words = |line: &str| line.rsplit('/').next().unwrap_or_default().to_owned();
    let looks = |line: &String| line.contains("status") || line.starts_with("lxc-info");
    text.lines().map(words).filter(|line| !looks(line)).collect()
}

#[track_caller]
fn there_and_back(name: &str, words: [&str; 2]) {
    let service: Service = name.parse().unwrap();
    let place = with("/", &[(&service.name, "running")]);
    let mut host = host(place.path());
    let stop = Op::Stop { service: service.clone() };
    let start = Op::Start { service: service.clone() };
    let error = host.perform(&stop).unwrap_err();
    assert!(error.to_string().contains("no step of the plan names"), "{error}");
    allow(&mut host, &[Op::Restart { service }], "");
    for act in [&stop, &start] {
        assert!(!is_reached(act, &host.current(act).unwrap()), "{act:?}");
        host.perform(act).unwrap();
        assert!(is_reached(act, &host.current(act).unwrap()), "{act:?}");
    }
    assert_eq!(told(place.path()), words);
}

#[test]
fn a_guest_is_shut_down_and_started() {
    there_and_back("pct:129", ["pct shutdown 129 --timeout 180", "pct start 129"]);
    there_and_back("qm:132", ["qm shutdown 132 --timeout 180", "qm start 132"]);
    there_and_back("lxc:web", ["lxc-stop -n web -t 180 --nokill", "lxc-start -n web -d"]);
}

/// Why a guest is not stopped; nothing was told to anybody.
#[track_caller]
fn check(name: &str, (group, state): (&str, &str), files: &[(&str, &str)], says: Option<&str>) {
    let service: Service = name.parse().unwrap();
    let place = with(group, &[(&service.name, state)]);
    for (path, text) in files {
        let path = place.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    let host = host(place.path());
    let seen = host.guest_refuses(&service, &["0000:01:00.0".parse().unwrap()]).err();
    match says {
        None => assert_eq!(seen, None),
        Some(says) => assert!(seen.as_ref().is_some_and(|why| why.contains(says)), "{seen:?}"),
    }
    assert_eq!(told(place.path()), [""; 0]);
}

#[test]
fn who_is_stopped_and_who_is_not() {
    let runs = |group| (group, "running");
    for (name, group) in [
        ("pct:129", "/lxc/129/ns/system.slice/engine.service"),
        ("lxc:web", "/lxc.payload.web/init.scope"),
        ("lxc:web", "/lxc/web"),
        ("qm:132", "/qemu.slice/132.scope"),
    ] {
        check(name, runs(group), &[], None);
    }
    let leave = Some("leave it out");
    for (name, group) in [
        ("pct:12", "/lxc/129/ns"),
        ("pct:129", "/qemu.slice/129.scope"),
        ("lxc:we", "/lxc.payload.web"),
        // A user's, and one within another.
        ("lxc:web", "/user.slice/user-1000.slice/user@1000.service/user.slice/lxc.payload.web"),
        ("lxc:web", "/lxc.payload.other/lxc.payload.web"),
        ("pct:129", "/lxc/101/ns/lxc/129"),
        ("qm:132", "/system.slice/132.scope"),
        ("qm:132", "/"),
    ] {
        check(name, runs(group), &[], leave);
    }
    check("pct:129", ("/lxc/129/ns", "stopped"), &[], Some("pct:129 is stopped"));
    check("docker:web", runs("/"), &[], Some("Stop it yourself"));
    check("lxc:129", runs("/lxc/129/ns"), &[], Some("name pct:129"));
}

#[test]
fn what_its_manager_keeps_or_locks_is_left_alone() {
    let list = "vm: 129\n\tgroup spare\n\nct: 1290\n\tstate started\n";
    let ours = ("/lxc/129/ns", "running");
    check("pct:129", ours, &[("etc/pve/ha/resources.cfg", list)], None);
    let list = format!("{list}\nct: 129\n\tstate started\n");
    let kept = Some("high-availability manager keeps pct:129");
    check("pct:129", ours, &[("etc/pve/ha/resources.cfg", &list)], kept);
    let locked = Some("locked by its manager (backup)");
    check("pct:129", ours, &[("etc/pve/lxc/129.conf", "lock: backup\nmemory: 512\n")], locked);
}

#[test]
fn a_manager_that_is_not_there_or_says_nothing_is_an_error() {
    let place = with("/", &[("129", "")]);
    let state = |name: &str| {
        let service: Service = name.parse().unwrap();
        host(place.path()).current(&Op::Stop { service }).map_err(|error| error.to_string())
    };
    std::fs::remove_file(place.path().join("usr/sbin/qm")).unwrap();
    let error = state("qm:132").unwrap_err();
    assert!(error.contains("cannot start") && error.contains("usr/sbin/qm"), "{error}");
    std::fs::write(place.path().join("state/web"), "").unwrap();
    let error = state("lxc:web").unwrap_err();
    assert!(error.contains("tells no state"), "{error}");
}
