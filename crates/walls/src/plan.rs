//! What a reading command needs, and the raising of the walls around it.

use std::os::fd::{AsFd, AsRawFd};
use std::path::PathBuf;

use rustix::fs::{AtFlags, CWD, StatxFlags};
use rustix::io::Errno;

use crate::capability::{self, Capability};
use crate::report::{Kept, Report, Standing, Wall, WallReport};
use crate::{filter, landlocked, mounts};

/// When the mounts are made read-only.
///
/// The copy of the mount table costs one system call a mount. It follows the host's unmounts as
/// far as the host's mounts are shared (they are under systemd), so that it keeps nothing busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MountPolicy {
    /// Where Landlock is missing, left out, or too old to refuse truncation.
    #[default]
    WhereLandlockLacks,
    /// Always, where the process may.
    Always,
    /// Never.
    Never,
}

/// A mechanism that exists on this host and could not be used: the command must not go on.
#[derive(Debug, thiserror::Error)]
pub enum WallError {
    /// The walls concern threads one by one, so they go up while there is only one.
    #[error("cannot raise the walls with {0} threads running: raise them before starting any")]
    Threads(u32),
    /// The kernel, or the library that speaks to it, refused.
    #[error("cannot raise the wall \"{wall}\": {act} failed")]
    Refused {
        /// Which wall.
        wall: Wall,
        /// What was tried.
        act: &'static str,
        /// What the kernel answered.
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The kernel accepted, but a look afterwards shows otherwise.
    #[error("the wall \"{0}\" was accepted by the kernel and is not in force: do not go on")]
    NotInForce(Wall),
}

impl WallError {
    pub(crate) fn refused(
        wall: Wall,
        act: &'static str,
        source: impl Into<Box<dyn std::error::Error + Send + Sync>>,
    ) -> Self {
        Self::Refused { wall, act, source: source.into() }
    }
}

/// What a reading command may do once the walls stand; everything else is refused.
#[derive(Debug, Clone, Default)]
#[must_use = "a plan does nothing until it is raised"]
pub struct Plan {
    trees: Vec<PathBuf>,
    writable: Vec<i32>,
    kept: Vec<Kept>,
    mount_policy: MountPolicy,
    no_landlock: Option<String>,
    unguarded_openat2: bool,
}

impl Plan {
    /// Allows nothing: no tree, no descriptor, no capability.
    pub fn new() -> Self {
        Self::default()
    }

    /// Allows reading `tree`, a directory with all beneath it or one file. A tree that does not
    /// exist is noted in the report and is no error.
    pub fn read_beneath(mut self, tree: impl Into<PathBuf>) -> Self {
        self.trees.push(tree.into());
        self
    }

    /// Allows `write` and its relatives on an open descriptor, by its number.
    ///
    /// The descriptor stays open until the process ends: closing it is refused from then on, so
    /// that nothing opened later can get its number.
    pub fn write_to(mut self, descriptor: impl AsFd) -> Self {
        self.writable.push(descriptor.as_fd().as_raw_fd());
        self
    }

    /// Keeps a capability, for the reason given, if the process has it.
    pub fn keep(mut self, capability: Capability, reason: &str) -> Self {
        self.kept.push(Kept { capability, reason: reason.to_owned() });
        self
    }

    /// When to make all mounts read-only.
    pub fn mounts(mut self, policy: MountPolicy) -> Self {
        self.mount_policy = policy;
        self
    }

    /// Leaves Landlock out, since it would hinder this process for the reason given. Trees do
    /// not limit reading then.
    pub fn without_landlock(mut self, reason: &str) -> Self {
        self.no_landlock = Some(reason.to_owned());
        self
    }

    /// Lets `openat2` through even where nothing refuses its writing flags: without
    /// `CAP_SYS_ADMIN` on a kernel before 6.2. Where this takes effect the report says so, since
    /// `openat2` could then empty a file, and without Landlock create one (it could still write
    /// nothing into it).
    pub fn unguarded_openat2(mut self) -> Self {
        self.unguarded_openat2 = true;
        self
    }

    /// Raises the walls around the calling process, for good.
    ///
    /// What this kernel or this user cannot have is named in the report and is no error.
    ///
    /// # Errors
    ///
    /// Where a mechanism exists and could not be used, or where other threads run already. The
    /// process may then stand behind some of its walls; it should end.
    pub fn raise(self) -> Result<Report, WallError> {
        refuse_threads()?;
        let mut walls = vec![no_new_privileges()?];

        let landlock = match &self.no_landlock {
            Some(_) => None,
            None => Some(landlocked::Support::probe()?),
        };
        let landlock_guards = landlock.is_some_and(landlocked::Support::guards_files);
        let mounts = mounts::raise(self.mount_policy, landlock_guards, self.wants_kernel_log())?;
        let mounts_guard = mounts.standing == Standing::Raised;
        walls.push(mounts);

        let reduced = capability::reduce(&self.kept)?;
        walls.push(reduced.report);

        let landlock = match landlock {
            Some(support) => landlocked::raise(&self.trees, support)?,
            None => WallReport {
                wall: Wall::Landlock,
                standing: Standing::LeftOut { reason: self.no_landlock.unwrap_or_default() },
                notes: Vec::new(),
            },
        };

        let openat2 = if landlock_guards || mounts_guard {
            filter::Openat2::Guarded
        } else if self.unguarded_openat2 {
            let landlock_stands =
                matches!(landlock.standing, Standing::Raised | Standing::Partial { .. });
            let could = if landlock_stands { "empty a file" } else { "create or empty a file" };
            filter::Openat2::Unguarded(could)
        } else {
            filter::Openat2::Refused
        };
        let kernel_log = reduced.kept.iter().any(|k| k.capability == Capability::SysLog);
        let wanted = filter::Wanted { writable: self.writable, openat2, kernel_log };
        let filter = filter::raise(&wanted)?;
        let filtered = !matches!(filter.standing, Standing::Missing { .. });
        walls.push(if filtered { landlocked::close_gaps(landlock) } else { landlock });
        walls.push(filter);

        Ok(Report { walls, kept: reduced.kept, lacking: reduced.lacking })
    }

    fn wants_kernel_log(&self) -> bool {
        self.kept.iter().any(|k| k.capability == Capability::SysLog)
    }
}

/// Counts threads by the links of `/proc/self/task`: one for each, and two of the directory
/// (`fs/proc/base.c: proc_task_getattr()`). Without `/proc` nothing can be counted, and then
/// seccomp, which is raised for all threads at once, is the wall that holds.
fn refuse_threads() -> Result<(), WallError> {
    let tasks = rustix::fs::statx(CWD, "/proc/self/task", AtFlags::empty(), StatxFlags::NLINK);
    let Ok(tasks) = tasks else { return Ok(()) };
    let threads = tasks.stx_nlink.saturating_sub(2);
    if threads > 1 { Err(WallError::Threads(threads)) } else { Ok(()) }
}

fn no_new_privileges() -> Result<WallReport, WallError> {
    let wall = Wall::NoNewPrivileges;
    let report = |standing| WallReport { wall, standing, notes: Vec::new() };
    match rustix::thread::set_no_new_privs(true) {
        Ok(()) => {}
        // Linux before 3.5.
        Err(Errno::INVAL) => {
            let reason = "this kernel does not know it".to_owned();
            return Ok(report(Standing::Missing { reason }));
        }
        Err(e) => return Err(WallError::refused(wall, "setting it", e)),
    }
    match rustix::thread::no_new_privs() {
        Ok(true) => Ok(report(Standing::Raised)),
        Ok(false) => Err(WallError::NotInForce(wall)),
        Err(e) => Err(WallError::refused(wall, "reading it back", e)),
    }
}
