//! The system call filter: what is not on the list is refused.

use std::collections::BTreeMap;

use rustix::io::Errno;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, SeccompRule, TargetArch};

use crate::plan::WallError;
use crate::report::{Standing, Wall, WallReport};

mod list;

/// What is done about `openat2`, whose flags no filter can see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Openat2 {
    /// Another wall refuses to create and truncate, so it is let through.
    Guarded,
    /// Nothing else refuses all of it; it is let through because the plan said so. What it could
    /// do, as a phrase.
    Unguarded(&'static str),
    /// Nothing else refuses; it answers `ENOSYS`.
    Refused,
}

/// What the filter lets through besides reading.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    /// Descriptors that may be written.
    pub(crate) writable: Vec<i32>,
    /// The one call that other walls decide about.
    pub(crate) openat2: Openat2,
    /// The reading requests of `syslog(2)`.
    pub(crate) kernel_log: bool,
}

/// Puts the filter in front of every thread of the process.
///
/// Two filters are installed. The kernel takes the strictest answer, and of two equal ones the
/// later filter's; `ENOSYS` from the first meets "allowed" from the second, and so wins.
pub(crate) fn raise(wanted: &Wanted) -> Result<WallReport, WallError> {
    let report = |standing, notes| Ok(WallReport { wall: Wall::SystemCalls, standing, notes });
    let Ok(arch) = TargetArch::try_from(std::env::consts::ARCH) else {
        let reason = format!("no filter is made for {}", std::env::consts::ARCH);
        return report(Standing::Missing { reason }, Vec::new());
    };
    match rustix::thread::secure_computing_mode() {
        Ok(_) => {}
        Err(Errno::INVAL | Errno::NOSYS) => {
            let reason = "the kernel is built without seccomp".to_owned();
            return report(Standing::Missing { reason }, Vec::new());
        }
        Err(e) => return Err(WallError::refused(Wall::SystemCalls, "asking for its mode", e)),
    }
    let unknown = unknown_calls(wanted.openat2, arch).map_err(refused("writing the filter"))?;
    let allowed = allowed_calls(wanted, arch).map_err(refused("writing the filter"))?;
    for program in [&unknown, &allowed] {
        seccompiler::apply_filter_all_threads(program).map_err(refused("installing the filter"))?;
    }
    let openat2 = match wanted.openat2 {
        Openat2::Guarded => return report(Standing::Raised, Vec::new()),
        Openat2::Refused => {
            let note = "openat2 answers ENOSYS: nothing here refuses its writing flags";
            return report(Standing::Raised, vec![note.to_owned()]);
        }
        Openat2::Unguarded(could) => format!("openat2, which could {could}"),
    };
    report(Standing::Partial { missing: vec![openat2] }, Vec::new())
}

/// Calls that look as if the kernel did not have them, so that libraries fall back to older ones.
fn unknown_calls(openat2: Openat2, arch: TargetArch) -> Result<BpfProgram, seccompiler::Error> {
    let mut calls = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    if openat2 == Openat2::Refused {
        calls.insert(libc::SYS_openat2, Vec::new());
    }
    compile(calls, SeccompAction::Allow, errno(Errno::NOSYS), arch)
}

fn allowed_calls(wanted: &Wanted, arch: TargetArch) -> Result<BpfProgram, seccompiler::Error> {
    // EPERM, since the standard library's copies and waits then fall back to plainer calls.
    compile(list::allowed(wanted)?, errno(Errno::PERM), SeccompAction::Allow, arch)
}

fn compile(
    calls: BTreeMap<i64, Vec<SeccompRule>>,
    otherwise: SeccompAction,
    matched: SeccompAction,
    arch: TargetArch,
) -> Result<BpfProgram, seccompiler::Error> {
    Ok(SeccompFilter::new(calls, otherwise, matched, arch)?.try_into()?)
}

fn errno(errno: Errno) -> SeccompAction {
    SeccompAction::Errno(errno.raw_os_error().unsigned_abs())
}

fn refused(act: &'static str) -> impl Fn(seccompiler::Error) -> WallError {
    move |e| WallError::refused(Wall::SystemCalls, act, e)
}
