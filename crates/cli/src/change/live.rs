//! The changing commands on this machine.

use std::path::{Path, PathBuf};

use peerway_cli_read::output::Output;
use peerway_cli_read::{Exit, Global};
use peerway_roads::Plan;
use peerway_write::grant::{GrantError, Place};
use peerway_write::journal::Journal;
use peerway_write::live::LiveHost;
use peerway_write::store::{DirectoryStore, StoreError};
use peerway_write::transaction::TransactionError;
use rustix::fs::StatVfsMountFlags;

use super::children::Here;
use super::host_lock::{self, HostLock};
use super::kept::Kept;
use super::{At, ChangeCommand, ChangeError, change, granted, guardian, leaves_open, plan_of};
use crate::place::{self, PlaceError};

/// Where the journal is.
const STATE: &str = "/var/lib/peerway";
/// `SYSFS_MAGIC` of `include/uapi/linux/magic.h`.
const SYSFS: u64 = 0x6265_6572;
/// User numbers of the initial user namespace: all of them, as they are.
const ALL_USERS: [&str; 3] = ["0", "0", "4294967295"];
/// How long another command is waited for: the timer's looks take moments, an `apply` minutes.
const PATIENCE: std::time::Duration = std::time::Duration::from_secs(10);
/// Between two tries.
const BETWEEN: std::time::Duration = std::time::Duration::from_millis(20);

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
    let plan = plan_of(command)?;
    // Another host's plan leaves no directory behind.
    if let Some(plan) = plan.as_ref().filter(|plan| plan.host != global.host) {
        let (planned, here) = (plan.host.clone(), global.host.clone());
        return Err(TransactionError::OtherHost { planned, here }.into());
    }
    let directory = at.state.clone().unwrap_or_else(|| PathBuf::from(STATE));
    let directory = std::path::absolute(&directory).map_err(ChangeError::Timer)?;
    place::make_directories(&directory)?;
    let asked = Asked { global, command, plan: plan.as_ref(), on };
    if let ChangeCommand::DeadMan { .. } = command {
        guardian::settle();
        guardian::stand(&directory, &std::thread::sleep, &mut || {
            asked.carry_out(&directory, output, left)
        });
        return Ok(Exit::Fine);
    }
    asked.carry_out(&directory, output, left)
}

/// A command, as it was asked for.
struct Asked<'a> {
    global: &'a Global,
    command: &'a ChangeCommand,
    plan: Option<&'a Plan>,
    on: Place<'static>,
}

impl Asked<'_> {
    fn carry_out(
        &self,
        directory: &Path,
        output: &mut Output,
        left: &mut bool,
    ) -> Result<Exit, ChangeError> {
        let (lock, mut store) = open_store(self.command, directory)?;
        let is_open = |store: &mut DirectoryStore| {
            Journal::open(store).is_ok_and(|one| one.open_transaction().is_some())
        };
        let applies = matches!(self.command, ChangeCommand::Apply { .. }) && !is_open(&mut store);
        // A look at the record changes nothing; whatever else is asked may, and another directory's
        // journal says nothing of it.
        let looks = matches!(self.command, ChangeCommand::History(_));
        if !looks && let Some(other) = lock.elsewhere(directory).map_err(PlaceError::from)? {
            return Err(PlaceError::Elsewhere(other.display().to_string()).into());
        }
        let mut host = self.host(directory)?;
        if !looks {
            lock.name(directory).map_err(PlaceError::from)?;
        }
        if applies {
            // Before anything is changed, so that no end of this process leaves a change unwatched.
            guardian::start(directory)?;
        }
        let result = granted(&mut store, self.on).and_then(|grant| {
            change(self.global, self.command, self.plan, grant, &mut host, output)
        });
        *left = leaves_open(&result, &mut store);
        // A journal that cannot be read may have one open.
        let over = Journal::open(&mut store).is_ok_and(|one| one.open_transaction().is_none());
        if over && lock.elsewhere(directory).map_err(PlaceError::from)?.is_none() {
            lock.clear().map_err(PlaceError::from)?;
        }
        result
    }

    fn host(&self, directory: &Path) -> Result<LiveHost, ChangeError> {
        // By the link itself: its file may be replaced while the timer waits.
        let program = PathBuf::from("/proc/self/exe");
        let (probe, unproved) = match self.command {
            ChangeCommand::Apply { probe, unproved, .. } => (probe.clone(), *unproved),
            ChangeCommand::Verify { probe, .. } => (probe.clone(), false),
            _ => (None, false),
        };
        let given: Result<Vec<PathBuf>, std::io::Error> =
            self.global.accelerator.iter().map(std::path::absolute).collect();
        let given = given.map_err(|error| PlaceError::Live(error.to_string()))?;
        let kept = Kept::below(directory.to_owned());
        let eyes = Here::new(program.clone(), given, kept, probe);
        let host = LiveHost::new(Box::new(eyes), Path::new("/"), directory.to_owned(), program);
        let mut host = host.map_err(|error| PlaceError::Live(error.to_string()))?;
        if unproved {
            host.accept_unproved();
        }
        Ok(host)
    }
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

/// Takes the host's lock and the journal's. A command waits a moment for the one before it, or for a
/// look of the timer's, and the timer as long as it takes.
fn open_store(
    command: &ChangeCommand,
    directory: &Path,
) -> Result<(HostLock, DirectoryStore), ChangeError> {
    let end = std::time::Instant::now() + PATIENCE;
    loop {
        let both = HostLock::take(Path::new(host_lock::PLACE))
            .and_then(|lock| Ok((lock, DirectoryStore::open(directory)?)));
        match both {
            Err(StoreError::Locked { .. })
                if matches!(command, ChangeCommand::DeadMan { .. })
                    || std::time::Instant::now() < end =>
            {
                std::thread::sleep(BETWEEN);
            }
            result => return Ok(result.map_err(PlaceError::from)?),
        }
    }
}
