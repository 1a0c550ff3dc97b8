//! The scan for holders.

use std::path::Path;
use std::time::{Duration, Instant};

use libtest_mimic::Failed;
use peerway_holders::{
    Collected, Environment, HolderList, NodeKind, Pattern, Patterns, Process, ScanChild,
    ScanOptions, SpawnError,
};
use peerway_walls::{Capability, Standing, Wall};

use crate::actors::{self, Actor, NOBODY, is_root, options, stage};

/// Far more than a scan takes, so that a loaded machine fails no test.
const LONG: Duration = Duration::from_mins(1);

fn collect(options: &ScanOptions) -> Collected {
    let found = ScanChild::spawn(options).unwrap().collect(Instant::now() + LONG);
    assert_eq!(found.gap, None);
    found
}

fn of(list: &HolderList, pid: u32) -> &Process {
    let found = list.processes.iter().find(|p| p.pid == pid);
    found.unwrap_or_else(|| panic!("process {pid} is not in {list:?}"))
}

/// Checks a holder of one descriptor on `held`.
fn check(list: &HolderList, actor: &Actor, held: &Path) {
    let process = of(list, actor.pid);
    assert_eq!(process.comm, "program");
    let expected = if is_root() { NOBODY } else { rustix::process::getuid().as_raw() };
    assert_eq!(process.uid, Some(expected));
    assert!(process.start_ticks > 0, "{process:?}");
    assert_eq!(process.held.len(), 1, "{process:?}");
    let first = &process.held[0];
    assert_eq!((first.path.as_str(), first.descriptors.len()), (held.to_str().unwrap(), 1));
    assert_eq!((first.mappings, first.device, first.deleted), (0, None, false));
    let variables = vec![("NCCL_P2P_DISABLE".to_owned(), "1".to_owned())];
    assert_eq!(process.environment, Environment::Read { variables, truncated: false });
}

pub(crate) fn another_users_holder_is_found() -> Result<(), Failed> {
    let (_dir, program, held) = stage();
    let actor = Actor::start(&program, "--hold", &held, Some(NOBODY));
    assert_eq!(actor.said, "ready");
    check(&collect(&options(&held)).list, &actor, &held);
    Ok(())
}

pub(crate) fn in_a_user_namespace() -> Result<(), Failed> {
    let (_dir, program, held) = stage();
    let actor = Actor::start(&program, "--hold-in-namespace", &held, Some(NOBODY));
    if actor.said.starts_with("refused") {
        // This kernel gives other users no namespaces, so no holder can hide in one.
        assert!(actor.said.contains("denied") || actor.said.contains("permitted"), "{actor:?}");
        return Ok(());
    }
    let list = collect(&options(&held)).list;
    if is_root() {
        check(&list, &actor, &held);
    } else {
        // A process of a namespace below may be closed to its own user; then it must be said.
        let seen = list.processes.iter().any(|p| p.pid == actor.pid);
        let said = list.unreadable.iter().any(|p| p.pid == actor.pid);
        assert!(seen || said, "{list:?}");
    }
    Ok(())
}

pub(crate) fn by_a_mapping_alone() -> Result<(), Failed> {
    let (_dir, program, held) = stage();
    // A program that runs is mapped and has no descriptor on itself.
    let actor = Actor::start(&program, "--be-mapped", &held, Some(NOBODY));
    let list = collect(&options(&program)).list;
    let process = of(&list, actor.pid);
    assert_eq!(process.held.len(), 1);
    assert!(process.held[0].descriptors.is_empty());
    assert!(process.held[0].mappings > 0, "{process:?}");
    Ok(())
}

pub(crate) fn device_numbers_are_told() -> Result<(), Failed> {
    let (_dir, program, _) = stage();
    let null = Path::new("/dev/null");
    let actor = Actor::start(&program, "--hold", null, None);
    let pattern = Pattern { text: "/dev/nul".to_owned(), kind: NodeKind::Other, any_file: false };
    let patterns = Patterns::new(vec![pattern]);
    let list = collect(&ScanOptions { patterns, ..ScanOptions::default() }).list;
    let device = of(&list, actor.pid).held[0].device;
    assert_eq!(device.map(|d| (d.major, d.minor)), Some((1, 3)));
    Ok(())
}

pub(crate) fn a_memory_region_counts() -> Result<(), Failed> {
    let (dir, program, _) = stage();
    let function = dir.path().join("sys/devices/pci0000:00/0000:01:00.0");
    std::fs::create_dir_all(&function).unwrap();
    let region = function.join("resource0");
    actors::write(&region, "");
    let actor = Actor::start(&program, "--hold", &region, None);
    let list = collect(&ScanOptions::default()).list;
    let held = &of(&list, actor.pid).held[0];
    assert_eq!((held.kind, held.region_of.as_deref()), (NodeKind::PciMemory, Some("0000:01:00.0")));
    Ok(())
}

pub(crate) fn lookalikes_do_not_count() -> Result<(), Failed> {
    let (_dir, program, held) = stage();
    let actor = Actor::start(&program, "--hold", &held, None);
    let text = held.to_str().unwrap().to_owned();
    let pattern = Pattern { text, kind: NodeKind::NvidiaShared, any_file: false };
    let patterns = Patterns::new(vec![pattern]);
    let list = collect(&ScanOptions { patterns, ..ScanOptions::default() }).list;
    assert!(list.processes.iter().all(|p| p.pid != actor.pid), "{list:?}");
    Ok(())
}

/// A user who may not look must not get an empty list.
pub(crate) fn without_privileges() -> Result<(), Failed> {
    let (_dir, program, held) = stage();
    let actor = Actor::start(&program, "--hold", &held, None);
    let scan = actors::command(&program, "--scan", &held, Some(NOBODY)).output().unwrap();
    let list: HolderList = serde_json::from_slice(&scan.stdout).unwrap();
    if is_root() {
        let closed = list.unreadable.iter().find(|p| p.pid == actor.pid).unwrap();
        assert_eq!((closed.descriptors, closed.mappings), (Some(13), Some(13)), "{closed:?}");
        assert_eq!(closed.comm, "program");
        assert!(!list.is_complete() && !list.gaps().is_empty());
    } else {
        assert_eq!(of(&list, actor.pid).held[0].path, held.to_str().unwrap());
    }
    Ok(())
}

pub(crate) fn processes_that_end() -> Result<(), Failed> {
    let (_dir, program, held) = stage();
    let stop = Instant::now() + Duration::from_millis(600);
    let busy = std::thread::spawn(move || {
        // Ends at once, since its input is empty.
        while Instant::now() < stop {
            drop(Actor::start(&program, "--be-mapped", Path::new("/"), None));
        }
    });
    let mut scans = 0;
    while Instant::now() < stop {
        let found = collect(&options(&held));
        let mine = |p: &&peerway_holders::Unreadable| p.comm == "program" || p.comm.is_empty();
        let unreadable: Vec<_> = found.list.unreadable.iter().filter(mine).collect();
        // To its own user a process is closed for the moment between giving up its memory and
        // having ended; root sees it all along.
        let ending = |p: &&peerway_holders::Unreadable| p.descriptors == Some(13);
        assert!(unreadable.iter().all(|p| !is_root() && ending(p)), "{unreadable:?}");
        assert!(found.list.end.is_some());
        scans += 1;
    }
    busy.join().unwrap();
    assert!(scans > 0);
    Ok(())
}

/// A program of a few lines in place of the child.
fn check_odd_child(script: &str, deadline: Duration, expected: &str) {
    use std::os::unix::fs::PermissionsExt;
    let (dir, _, held) = stage();
    let program = dir.path().join("script");
    actors::write(&program, &format!("#!/bin/sh\n{script}\n"));
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    let start = || match ScanChild::spawn_program(Some(&program), &options(&held)) {
        Err(SpawnError::Start { source, .. }) => Err(source),
        other => Ok(other.unwrap()),
    };
    let child = actors::settle(start);
    let begun = Instant::now();
    let found = child.collect(begun + deadline);
    assert!(begun.elapsed() < deadline + Duration::from_secs(5), "{:?}", begun.elapsed());
    let gap = found.gap.unwrap_or_default();
    assert!(gap.contains(expected), "{gap}");
    assert!(!found.list.is_complete(), "a gap is never a complete list");
}

pub(crate) fn no_answer_is_a_gap() -> Result<(), Failed> {
    check_odd_child("exec sleep 30", Duration::from_millis(200), "did not answer in time");
    Ok(())
}

pub(crate) fn nonsense_is_a_gap() -> Result<(), Failed> {
    check_odd_child("echo '{\"begin\":'", LONG, "garbled");
    check_odd_child("echo '{\"end\":{}}'", LONG, "garbled");
    check_odd_child(
        "echo '{\"failed\":\"no process can be seen\"}'",
        LONG,
        "no process can be seen",
    );
    check_odd_child("printf '{\"failed\":\"x\"}'", LONG, "ended before its list");
    check_odd_child("exit 0", LONG, "ended before its list");
    let line = r#"{"begin":{"version":999,"walls":{"walls":[],"kept":[],"lacking":[]}}}"#;
    check_odd_child(&format!("echo '{line}'"), LONG, "version 999");
    let end =
        r#"{"end":{"processes":0,"kernel_threads":0,"vanished":0,"host_wide":true,"gaps":[]}}"#;
    check_odd_child(&format!("echo '{end}'"), LONG, "out of order");
    let begin = line.replace("999", "1");
    let more = format!("echo '{begin}'; echo '{end}'; echo '{end}'");
    check_odd_child(&more, LONG, "out of order");
    Ok(())
}

pub(crate) fn the_scan_stands_behind_walls() -> Result<(), Failed> {
    let walls = collect(&ScanOptions::default()).walls.unwrap();
    assert_eq!(walls.standing(Wall::SystemCalls), Some(&Standing::Raised), "{walls:?}");
    assert!(matches!(walls.standing(Wall::Landlock), Some(Standing::LeftOut { .. })));
    let wanted: Vec<Capability> =
        walls.kept.iter().chain(&walls.lacking).map(|k| k.capability).collect();
    assert_eq!(wanted, [Capability::SysPtrace, Capability::DacReadSearch]);
    let mounts = walls.standing(Wall::Mounts);
    let expected = matches!(mounts, Some(Standing::Raised)) || !is_root();
    assert!(expected, "root of the host can make mounts read-only: {mounts:?}");
    Ok(())
}
