//! The ground that the attempts are made on: a directory with files of known content.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::attempts::ATTEMPTS;

/// What stands in every file at the beginning.
pub(crate) const CONTENT: &str = "as it was\n";

/// Lays out the directory: for each attempt a file and a directory of its own, so that an attempt
/// that works (in the control run) takes nothing away from the next.
#[expect(clippy::disallowed_methods, reason = "a test makes its own files")]
pub(crate) fn lay_out(dir: &Path) {
    for attempt in ATTEMPTS {
        let own = dir.join(attempt.name);
        fs::create_dir(&own).unwrap();
        fs::write(own.join("file"), CONTENT).unwrap();
        fs::create_dir(own.join("empty")).unwrap();
    }
    fs::create_dir(dir.join("foreign")).unwrap();
    fs::write(dir.join("foreign/file"), CONTENT).unwrap();
    open_to_all(dir);
}

/// So that another user could change everything, if there were no walls.
fn open_to_all(dir: &Path) {
    for (path, is_dir) in entries(dir) {
        let mode = if is_dir { 0o777 } else { 0o666 };
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
    }
    fs::set_permissions(dir, fs::Permissions::from_mode(0o777)).unwrap();
}

/// Every name with kind, mode, owner, size, change time and content: equal before and after means
/// that nothing was changed.
#[expect(clippy::disallowed_methods, reason = "a test looks at its own files")]
pub(crate) fn picture(dir: &Path) -> Vec<(PathBuf, String)> {
    let mut all = entries(dir);
    all.push((dir.to_owned(), true));
    let mut seen: Vec<(PathBuf, String)> = all
        .into_iter()
        .map(|(path, is_dir)| {
            let meta = fs::symlink_metadata(&path).unwrap();
            let content = if is_dir { Vec::new() } else { fs::read(&path).unwrap_or_default() };
            let facts = format!(
                "{:o} {}:{} {} links {} changed {}.{} {content:?}",
                meta.mode(),
                meta.uid(),
                meta.gid(),
                meta.len(),
                meta.nlink(),
                meta.ctime(),
                meta.ctime_nsec(),
            );
            (path, facts)
        })
        .collect();
    seen.sort();
    seen
}

#[expect(clippy::disallowed_methods, reason = "a test looks at its own files")]
fn entries(dir: &Path) -> Vec<(PathBuf, bool)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let is_dir = entry.file_type().unwrap().is_dir();
        if is_dir {
            found.extend(entries(&entry.path()));
        }
        found.push((entry.path(), is_dir));
    }
    found
}

/// A copy of this program where every user can start it.
pub(crate) fn program_for_all(dir: &Path) -> OsString {
    let copy = dir.join("program");
    fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    fs::set_permissions(&copy, fs::Permissions::from_mode(0o755)).unwrap();
    // It cannot be executed while a process that another test is about to start still has it open.
    let busy = |e: &std::io::Error| e.kind() == std::io::ErrorKind::ExecutableFileBusy;
    while let Err(e) = program_runs(&copy) {
        assert!(busy(&e), "cannot start {}: {e}", copy.display());
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    copy.into_os_string()
}

#[expect(clippy::disallowed_methods, reason = "a test starts itself again")]
fn program_runs(program: &Path) -> std::io::Result<()> {
    std::process::Command::new(program).arg("--list").output().map(drop)
}
