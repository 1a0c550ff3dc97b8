//! The changing commands on this machine.

use std::path::{Path, PathBuf};

use peerway_cli_read::output::Output;
use peerway_cli_read::{Exit, Global};
use peerway_write::grant::{GrantError, Place};
use peerway_write::journal::Journal;
use peerway_write::live::LiveHost;
use peerway_write::store::{DirectoryStore, StoreError};
use peerway_write::transaction::TransactionError;
use rustix::fs::StatVfsMountFlags;
use serde::{Deserialize, Serialize};

use super::children::Here;
use super::{At, ChangeCommand, ChangeError, change, granted, guardian, leaves_open, read_plan};
use crate::place::{self, PlaceError};

/// Where the journal is.
const STATE: &str = "/var/lib/peerway";
/// What the last plan was made and applied with, so that no later command forgets it.
const OPTIONS: &str = "options.json";
/// Longer than any such file.
const MOST_OPTIONS: usize = 1 << 20;
/// `SYSFS_MAGIC` of `include/uapi/linux/magic.h`.
const SYSFS: u64 = 0x6265_6572;
/// User numbers of the initial user namespace: all of them, as they are.
const ALL_USERS: [&str; 3] = ["0", "0", "4294967295"];
/// How long another command is waited for; the one that applies is not.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(3);
/// Between two tries.
const BETWEEN: std::time::Duration = std::time::Duration::from_millis(20);

/// Options that belong to a transaction and not to one command of it.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Options {
    accelerators: Vec<PathBuf>,
}

/// Runs a changing command on this machine.
pub(super) fn execute(
    global: &Global,
    command: &ChangeCommand,
    at: &At,
    output: &mut Output,
    left: &mut bool,
) -> Result<Exit, ChangeError> {
    let on = here();
    // Nothing of the host is looked at, and nothing is left behind, before that is sure.
    match on {
        Place::Live { is_root: false, .. } => {
            return Err(TransactionError::from(GrantError::NotRoot).into());
        }
        Place::Live { has_sysfs: false, .. } => {
            let why = "/sys is not the kernel's own, or is read-only here".to_owned();
            return Err(PlaceError::Live(why).into());
        }
        _ => {}
    }
    if at.later != 0 {
        let why = "--later lets the time of simulated hosts pass, not this one's".to_owned();
        return Err(PlaceError::Live(why).into());
    }
    let plan = match command {
        ChangeCommand::Apply { plan, .. } => Some(read_plan(plan)?),
        _ => None,
    };
    // Another host's plan leaves no directory behind.
    if let Some(plan) = plan.as_ref().filter(|plan| plan.host != global.host) {
        let (planned, here) = (plan.host.clone(), global.host.clone());
        return Err(TransactionError::OtherHost { planned, here }.into());
    }
    let directory = at.state.clone().unwrap_or_else(|| PathBuf::from(STATE));
    let directory = std::path::absolute(&directory).map_err(ChangeError::Timer)?;
    place::make_directories(&directory)?;
    if let ChangeCommand::DeadMan { .. } = command
        && !guardian::keep_watch(&directory)?
    {
        return Ok(Exit::Fine);
    }
    let mut store = open_store(command, &directory)?;
    // Where a transaction is not over, another one is refused, and must not replace its options.
    let open = Journal::open(&mut store).is_ok_and(|one| one.open_transaction().is_some());
    let applies = matches!(command, ChangeCommand::Apply { .. }) && !open;
    let options = options(global, &directory, applies)?;
    // By the link itself: its file may be replaced while the timer waits.
    let program = PathBuf::from("/proc/self/exe");
    let probe = match command {
        ChangeCommand::Apply { probe, .. } | ChangeCommand::Verify { probe, .. } => probe.clone(),
        _ => None,
    };
    let eyes = Here {
        program: program.clone(),
        accelerators: options.accelerators.clone(),
        probe,
        last: std::cell::RefCell::default(),
    };
    let mut host = LiveHost::new(Box::new(eyes), Path::new("/"), directory.clone(), program)
        .map_err(|error| PlaceError::Live(error.to_string()))?;
    if matches!(command, ChangeCommand::Apply { unproved: true, .. }) {
        host.accept_unproved();
    }
    if applies {
        // Before anything is changed, so that no end of this process leaves a change unwatched.
        guardian::start(&directory)?;
    }
    let result = granted(&mut store, on)
        .and_then(|grant| change(global, command, plan.as_ref(), grant, &mut host, output));
    *left = leaves_open(&result, &mut store);
    result
}

/// What this process is to this machine.
fn here() -> Place<'static> {
    let map = peerway_cli_read::host::read_option_file(Path::new("/proc/self/uid_map"), 4096);
    let map = map.map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default();
    let initial = map.split_ascii_whitespace().eq(ALL_USERS);
    let kind = rustix::fs::statfs("/sys").map(|state| u64::try_from(state.f_type));
    let writable = rustix::fs::statvfs("/sys")
        .is_ok_and(|state| !state.f_flag.contains(StatVfsMountFlags::RDONLY));
    Place::Live {
        is_root: initial && rustix::process::geteuid().is_root(),
        has_sysfs: writable && matches!(kind, Ok(Ok(SYSFS))),
    }
}

/// Takes the lock. Two that apply at once are one too many; any other command waits a moment for
/// the one before it.
fn open_store(command: &ChangeCommand, directory: &Path) -> Result<DirectoryStore, ChangeError> {
    let end = std::time::Instant::now() + PATIENCE;
    loop {
        match DirectoryStore::open(directory) {
            Err(StoreError::Locked { .. })
                if matches!(command, ChangeCommand::DeadMan { .. })
                    || (!matches!(command, ChangeCommand::Apply { .. })
                        && std::time::Instant::now() < end) =>
            {
                std::thread::sleep(BETWEEN);
            }
            result => return Ok(result.map_err(PlaceError::from)?),
        }
    }
}

/// The options of this command, or where it has none, those of the last one that applied.
fn options(global: &Global, directory: &Path, applies: bool) -> Result<Options, ChangeError> {
    let path = directory.join(OPTIONS);
    let file = |why: String| PlaceError::File { act: "use", path: path.display().to_string(), why };
    let absolute = |one: &PathBuf| std::path::absolute(one);
    let given: Result<Vec<PathBuf>, std::io::Error> =
        global.accelerator.iter().map(absolute).collect();
    let given = Options { accelerators: given.map_err(|error| file(error.to_string()))? };
    if applies {
        let text = serde_json::to_vec(&given).map_err(|error| file(error.to_string()))?;
        place::replace(directory, OPTIONS, &text)?;
        return Ok(given);
    }
    if !given.accelerators.is_empty() {
        return Ok(given);
    }
    match peerway_cli_read::host::read_option_file(&path, MOST_OPTIONS) {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes).map_err(|error| file(error.to_string()))?),
        // Nothing was ever applied here.
        Err(_) => Ok(given),
    }
}
