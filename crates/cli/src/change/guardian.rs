//! The dead-man timer of a live host: a process in a session of its own that is started before the
//! first change, outlives terminal and command, and takes back what nobody confirmed.

use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use peerway_write::journal::{Journal, State};
use peerway_write::store::{DirectoryStore, StoreError};
use rustix::time::{ClockId, Timespec};

use super::ChangeError;
use crate::place::PlaceError;

/// How often it looks whether the command that applies is at its end.
const BETWEEN: Duration = Duration::from_millis(250);
/// How long a transaction whose command was killed is left to the operator's own `recover`.
const GRACE: i64 = 30;

/// Starts it. Called with the lock held, so that it sees nothing before the command is at its end.
#[expect(clippy::disallowed_methods, reason = "the command line starts this one child")]
pub(super) fn start(state: &Path) -> Result<(), ChangeError> {
    let program = std::env::current_exe().map_err(ChangeError::Timer)?;
    std::process::Command::new(program)
        .args(["--host", "live", "dead-man", "0", "--state"])
        .arg(state)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(ChangeError::Timer)?;
    Ok(())
}

/// Comes back when there is something to take back (`true`), or nothing to watch any more. In
/// between it holds no lock, so that it is in nobody's way.
pub(super) fn keep_watch(state: &Path) -> Result<bool, ChangeError> {
    // It may lead a session already, which is all that is wanted.
    let _session = rustix::process::setsid();
    let mut left: Option<(usize, i64)> = None;
    loop {
        let Some((seen, records)) = look(state)? else {
            std::thread::sleep(BETWEEN);
            continue;
        };
        let now = rustix::time::clock_gettime(ClockId::Boottime).tv_sec;
        match seen {
            Seen::Nothing => return Ok(false),
            Seen::Due => return Ok(true),
            Seen::Until(second) => sleep_until(second),
            Seen::Left => match left {
                Some((before, since)) if before == records && now >= since + GRACE => {
                    return Ok(true);
                }
                Some((before, since)) if before == records => sleep_until(since + GRACE),
                _ => left = Some((records, now)),
            },
        }
    }
}

enum Seen {
    /// Over, or waiting for somebody to mend something.
    Nothing,
    /// The operator has the word until then.
    Until(i64),
    /// It had.
    Due,
    /// The command that was at it is gone.
    Left,
}

/// What the journal says and how many records it has; `None` while a command has it.
fn look(state: &Path) -> Result<Option<(Seen, usize)>, ChangeError> {
    let mut store = match DirectoryStore::open(state) {
        Ok(store) => store,
        Err(StoreError::Locked { .. }) => return Ok(None),
        Err(error) => return Err(PlaceError::from(error).into()),
    };
    let journal = Journal::open(&mut store).map_err(peerway_write::grant::GrantError::from);
    let journal = journal.map_err(peerway_write::transaction::TransactionError::from)?;
    let records = journal.entries().len();
    let seen = match journal.open_transaction().map(|one| one.state()) {
        None | Some(State::PendingHolder | State::Remains { .. } | State::Over(_)) => Seen::Nothing,
        Some(State::Waiting { until }) => {
            let until = i64::try_from(until).unwrap_or(i64::MAX);
            let now = rustix::time::clock_gettime(ClockId::Boottime).tv_sec;
            if now > until { Seen::Due } else { Seen::Until(until.saturating_add(1)) }
        }
        Some(State::Forward | State::Confirmed | State::Back) => Seen::Left,
    };
    Ok(Some((seen, records)))
}

/// Sleeps on the clock that goes on while the machine is suspended and that nobody sets.
fn sleep_until(second: i64) {
    let end = Timespec { tv_sec: second, tv_nsec: 0 };
    // Interrupted or not: what is due is looked at again.
    let _early = rustix::thread::clock_nanosleep_absolute(ClockId::Boottime, &end);
}
