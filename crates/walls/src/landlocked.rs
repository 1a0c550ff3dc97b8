//! Landlock: reading beneath named trees.

use std::path::PathBuf;

use landlock::{
    ABI, Access, AccessFs, AccessNet, BitFlags, LandlockStatus, PathBeneath, PathFd, RestrictSelf,
    Ruleset, RulesetAttr, RulesetCreated, RulesetCreatedAttr, RulesetError, RulesetStatus, Scope,
};
use rustix::fs::{AtFlags, FileType, StatxFlags};

use crate::plan::WallError;
use crate::report::{Standing, Wall, WallReport};

/// The newest ABI whose rights are handled. The library leaves out what the running kernel does
/// not know; [`ADDED`] puts it into the report.
const NEWEST: ABI = ABI::V10;

/// What a kernel does not refuse, by the ABI that added it. (ABI 2 allowed more, ABI 7 and 8
/// concern audit records and threads.)
const ADDED: [(ABI, &str); 6] = [
    (ABI::V3, "truncation (Landlock ABI 3, Linux 6.2)"),
    (ABI::V4, "TCP (ABI 4, Linux 6.7)"),
    (ABI::V5, "ioctl on device nodes (ABI 5, Linux 6.10)"),
    (ABI::V6, "signals and abstract sockets (ABI 6, Linux 6.12)"),
    (ABI::V9, "sockets with a path (ABI 9, Linux 7.1)"),
    (ABI::V10, "UDP (ABI 10, Linux 7.2)"),
];

/// What the kernel can do, or why it can do nothing.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Support(LandlockStatus);

impl Support {
    /// Asks the kernel.
    pub(crate) fn probe() -> Result<Self, WallError> {
        // Without a flag to set, this asks for the ABI and changes nothing.
        let status =
            RestrictSelf::default().no_new_privs(false).apply().map_err(refused("asking"))?;
        Ok(Self(status.landlock))
    }

    /// Whether creating and truncating files is refused, whatever call asks for it.
    pub(crate) fn guards_files(self) -> bool {
        matches!(self.0, LandlockStatus::Available { effective_abi, .. } if effective_abi >= ABI::V3)
    }
}

/// Allows reading beneath `trees` and refuses all else that Landlock knows.
///
/// What an older Landlock does not know is a gap of this wall, until [`close_gaps`].
pub(crate) fn raise(trees: &[PathBuf], support: Support) -> Result<WallReport, WallError> {
    let abi = match support.0 {
        LandlockStatus::NotImplemented => return Ok(missing("the kernel is built without it")),
        LandlockStatus::NotEnabled => {
            return Ok(missing("switched off at boot (see lsm= on the kernel command line)"));
        }
        LandlockStatus::Available { effective_abi, .. } => effective_abi,
    };
    let mut ruleset = create_ruleset().map_err(refused("creating the rules"))?;
    let mut notes = vec![format!("Landlock ABI {abi}")];
    for tree in trees {
        match PathFd::new(tree) {
            Ok(fd) => {
                let access = access_for(&fd);
                let rule = PathBeneath::new(fd, access);
                ruleset = ruleset.add_rule(rule).map_err(refused("adding a tree"))?;
            }
            Err(e) => notes.push(e.to_string()),
        }
    }
    let status = ruleset.restrict_self().map_err(refused("enforcing the rules"))?;
    if status.ruleset == RulesetStatus::NotEnforced {
        return Err(WallError::NotInForce(Wall::Landlock));
    }
    let gaps: Vec<String> =
        ADDED.iter().filter(|(since, _)| abi < *since).map(|(_, gap)| (*gap).to_owned()).collect();
    let standing =
        if gaps.is_empty() { Standing::Raised } else { Standing::Partial { missing: gaps } };
    Ok(WallReport { wall: Wall::Landlock, standing, notes })
}

/// Where the system call filter stands, it refuses what an older Landlock lets pass (there is no
/// call left for it), so that its gaps are no more than a note.
pub(crate) fn close_gaps(mut landlock: WallReport) -> WallReport {
    if let Standing::Partial { missing } = landlock.standing {
        landlock.notes.push(format!("left to the system call filter: {}", missing.join(", ")));
        landlock.standing = Standing::Raised;
    }
    landlock
}

fn create_ruleset() -> Result<RulesetCreated, RulesetError> {
    Ruleset::default()
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?
        .create()
}

/// A rule on a file may hold no right of directories (`security/landlock/fs.c:
/// landlock_append_fs_rule()`).
fn access_for(tree: &PathFd) -> BitFlags<AccessFs> {
    // Without asking a file system's server, which may not answer.
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let is_directory = rustix::fs::statx(tree, "", flags, StatxFlags::TYPE)
        .is_ok_and(|s| FileType::from_raw_mode(s.stx_mode.into()) == FileType::Directory);
    let file = BitFlags::from(AccessFs::ReadFile);
    if is_directory { file | AccessFs::ReadDir } else { file }
}

fn missing(reason: &str) -> WallReport {
    let standing = Standing::Missing { reason: reason.to_owned() };
    WallReport { wall: Wall::Landlock, standing, notes: Vec::new() }
}

fn refused(act: &'static str) -> impl Fn(RulesetError) -> WallError {
    move |e| WallError::refused(Wall::Landlock, act, e)
}
