//! Starts walled processes and judges what they report.

use std::collections::BTreeMap;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Output};

use libtest_mimic::Failed;
use peerway_walls::{Capability, Report, Standing, Wall};
use rustix::io::Errno;

use crate::attempts::ATTEMPTS;
use crate::{field, inside, raw};

/// The user `nobody`.
const NOBODY: u32 = 65534;

/// Answers that count as a wall. `EROFS` is the read-only mounts'.
const REFUSALS: [Errno; 4] = [Errno::PERM, Errno::ACCESS, Errno::NOSYS, Errno::ROFS];

type Outcomes = BTreeMap<String, String>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum User {
    Same,
    /// `nobody` where the tests run as root, else the same.
    Other,
}

fn run(dir: &Path, user: User, options: &[&str]) -> Output {
    let program = field::program_for_all(dir);
    #[expect(clippy::disallowed_methods, reason = "a test starts itself again")]
    let mut command = Command::new(program);
    command.arg(inside::ARGUMENT).arg(dir.join("field")).args(options);
    if user == User::Other && rustix::process::geteuid().is_root() {
        command.uid(NOBODY).gid(NOBODY);
    }
    command.output().unwrap()
}

fn prepare() -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::create_dir(dir.path().join("field")).unwrap();
    field::lay_out(&dir.path().join("field"));
    dir
}

fn outcomes(output: &Output) -> Outcomes {
    assert!(
        output.status.success(),
        "{:?}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    let text = String::from_utf8(output.stdout.clone()).unwrap();
    text.lines().filter_map(|l| l.split_once('\t')).map(|(a, b)| (a.into(), b.into())).collect()
}

/// Runs everything behind walls; fails on any attempt that was not refused and on any difference
/// in the directory, and gives back the walls' report with all outcomes.
fn check(user: User, options: &[&str]) -> Result<(Report, Outcomes), Failed> {
    let dir = prepare();
    let field = dir.path().join("field");
    let before = field::picture(&field);
    let outcomes = outcomes(&run(dir.path(), user, options));
    let attempts = ATTEMPTS.iter().map(|a| a.name);
    let calls = raw::CALLS.iter().chain(raw::CALLS_HERE).map(|c| c.0);
    let loose: Vec<String> = attempts
        .chain(calls)
        .filter(|name| !refused(outcomes.get(*name)))
        .map(|name| format!("{name}: {:?}", outcomes.get(name)))
        .collect();
    if !loose.is_empty() {
        return Err(format!("not refused behind the walls:\n{}", loose.join("\n")).into());
    }
    assert_eq!(before, field::picture(&field), "the directory is as it was");
    for name in ["read_allowed", "read_proc", "list_allowed", "threads"] {
        assert_eq!(outcomes.get(name).map(String::as_str), Some("done"), "{name}");
    }
    let report: Report = serde_json::from_str(&outcomes["report"]).unwrap();
    // Reading outside the named trees is refused exactly where Landlock stands.
    let landlock = matches!(
        report.standing(Wall::Landlock),
        Some(Standing::Raised | Standing::Partial { .. })
    );
    let outside = outcomes["read_outside"].clone();
    assert_eq!(landlock, refused(Some(&outside)), "read outside: {outside}; {report:?}");
    for wall in [Wall::NoNewPrivileges, Wall::Capabilities, Wall::SystemCalls] {
        assert_eq!(report.standing(wall), Some(&Standing::Raised), "{wall}");
    }
    Ok((report, outcomes))
}

fn refused(outcome: Option<&String>) -> bool {
    outcome
        .and_then(|o| o.parse().ok())
        .is_some_and(|number: i32| REFUSALS.iter().any(|r| r.raw_os_error() == number))
}

/// Whether the report says that a wall stands, if need be with gaps that the kernel leaves.
fn stands(report: &Report, wall: Wall) -> bool {
    matches!(report.standing(wall), Some(Standing::Raised | Standing::Partial { .. }))
}

fn is_missing(report: &Report, wall: Wall) -> bool {
    matches!(report.standing(wall), Some(Standing::Missing { .. }))
}

pub(crate) fn attempts_work_without_walls() -> Result<(), Failed> {
    let dir = prepare();
    let outcomes = outcomes(&run(dir.path(), User::Same, &["--no-walls"]));
    let idle: Vec<String> = ATTEMPTS
        .iter()
        .filter(|a| a.works && !a.name.contains("stdout"))
        .filter(|a| outcomes.get(a.name).map(String::as_str) != Some("done"))
        .map(|a| format!("{}: {:?}", a.name, outcomes.get(a.name)))
        .collect();
    if idle.is_empty() {
        Ok(())
    } else {
        Err(format!("these prove nothing, they fail without walls too:\n{}", idle.join("\n"))
            .into())
    }
}

pub(crate) fn nothing_gets_out() -> Result<(), Failed> {
    let (report, outcomes) = check(User::Same, &[])?;
    // Landlock (ABI 3 on) guards openat2, else the mounts do; else it is refused, which is said.
    let said = report.walls.iter().any(|w| w.notes.iter().any(|n| n.contains("openat2")));
    assert_eq!(outcomes["read_by_openat2"] == "done", !said, "{report:?}");
    assert!(!(said && stands(&report, Wall::Mounts)), "{report:?}");
    assert!(report.kept.is_empty() && report.lacking.is_empty(), "{report:?}");
    Ok(())
}

pub(crate) fn nothing_gets_out_as_another_user() -> Result<(), Failed> {
    let (report, _) = check(User::Other, &[])?;
    assert!(!stands(&report, Wall::Mounts), "another user cannot make mount namespaces");
    Ok(())
}

pub(crate) fn nothing_gets_out_with_all_kept() -> Result<(), Failed> {
    let (report, _) = check(User::Same, &["--keep-all"])?;
    assert_eq!(report.kept.len() + report.lacking.len(), 4, "{report:?}");
    let admin = report.kept.iter().any(|k| k.capability == Capability::SysAdmin);
    assert!(admin || is_missing(&report, Wall::Mounts), "{report:?}");
    for lacking in &report.lacking {
        let said = report.gaps().iter().any(|s| s.contains(lacking.capability.name()));
        assert!(said, "{:?} is lacking and must be said", lacking.capability);
    }
    Ok(())
}

pub(crate) fn nothing_gets_out_without_landlock() -> Result<(), Failed> {
    let (report, outcomes) = check(User::Same, &["--lack-landlock"])?;
    assert!(is_missing(&report, Wall::Landlock), "{report:?}");
    assert!(!report.is_whole() && report.gaps().iter().any(|s| s.contains("Landlock")));
    let guarded = stands(&report, Wall::Mounts);
    assert_eq!(outcomes["read_by_openat2"] == "done", guarded, "{report:?}");
    Ok(())
}

pub(crate) fn nothing_gets_out_without_landlock_and_mounts() -> Result<(), Failed> {
    let (report, outcomes) = check(User::Same, &["--lack-landlock", "--lack-mounts"])?;
    assert!(is_missing(&report, Wall::Mounts), "{report:?}");
    assert_eq!(outcomes["read_by_openat2"], Errno::NOSYS.raw_os_error().to_string());
    Ok(())
}

pub(crate) fn nothing_gets_out_as_another_user_without_landlock() -> Result<(), Failed> {
    let (report, outcomes) = check(User::Other, &["--lack-landlock"])?;
    assert!(is_missing(&report, Wall::Landlock) && is_missing(&report, Wall::Mounts));
    assert_eq!(outcomes["read_by_openat2"], Errno::NOSYS.raw_os_error().to_string());
    Ok(())
}

/// With nothing behind it, `openat2` can create and empty files. The plan can ask for that; the
/// report must say it, and writing is refused all the same.
pub(crate) fn unguarded_openat2() -> Result<(), Failed> {
    let dir = prepare();
    let options = ["--lack-landlock", "--lack-mounts", "--unguarded"];
    let outcomes = outcomes(&run(dir.path(), User::Same, &options));
    let report: Report = serde_json::from_str(&outcomes["report"]).unwrap();
    assert!(report.gaps().iter().any(|s| s.contains("openat2")), "{report:?}");
    assert_eq!(outcomes["read_by_openat2"], "done");
    for name in ["openat2_to_create", "openat2_to_empty"] {
        assert_eq!(outcomes[name], "done", "{name} shows why the default refuses openat2");
    }
    assert!(refused(outcomes.get("write_foreign")) && refused(outcomes.get("open_to_write")));
    Ok(())
}

pub(crate) fn a_second_thread_refuses() -> Result<(), Failed> {
    let dir = prepare();
    let outcomes = outcomes(&run(dir.path(), User::Same, &["--second-thread"]));
    assert!(outcomes["error"].contains("2 threads"), "{outcomes:?}");
    Ok(())
}

/// By which signal depends on the C library: musl's `abort` sends one to its thread alone, which is
/// refused, and then falls into a trap.
pub(crate) fn an_abort_still_ends_the_process() -> Result<(), Failed> {
    let dir = prepare();
    let output = run(dir.path(), User::Same, &["--abort"]);
    let expected = if cfg!(target_env = "gnu") { libc::SIGABRT } else { libc::SIGSEGV };
    assert_eq!(output.status.signal(), Some(expected), "{output:?}");
    Ok(())
}

/// Without the filter the other walls stand, and what they leave open is said.
pub(crate) fn a_missing_filter_is_said() -> Result<(), Failed> {
    let dir = prepare();
    let outcomes = outcomes(&run(dir.path(), User::Same, &["--lack-filter", "--report-only"]));
    let report: Report = serde_json::from_str(&outcomes["report"]).unwrap();
    assert!(is_missing(&report, Wall::SystemCalls) && !report.is_whole(), "{report:?}");
    assert!(report.gaps().iter().any(|s| s.contains("system call filter")), "{report:?}");
    // What an older Landlock does not know is no longer covered, and so a gap.
    let left = report.walls.iter().any(|w| w.notes.iter().any(|n| n.contains("left to")));
    assert!(!left, "{report:?}");
    Ok(())
}
