//! The dead-man timer of a live host: a process in a session of its own that is started before the
//! first change, outlives terminal and command, and takes back what nobody confirmed. Where systemd
//! runs it gets a scope of its own, so that it outlives the unit or the login that it was started from
//! too. It tries until that is done or the boot ends, and keeps a log.

mod log;
#[cfg(test)]
mod tests;

use std::ffi::OsString;
use std::path::Path;
use std::process::{ChildStdout, Stdio};
use std::time::Duration;

use peerway_cli_read::Exit;
use peerway_write::history::history;
use peerway_write::journal::{Journal, State};
use peerway_write::store::{DirectoryStore, StoreError};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use rustix::time::ClockId;

use super::ChangeError;
use super::children::COPY_LIMIT;
use crate::place::PlaceError;
use log::Log;

/// How often it looks whether the command that applies is at its end.
const BETWEEN: Duration = Duration::from_millis(250);
/// How long a transaction whose command was killed is left to the operator's own `recover`: longer
/// than a copy that it had begun goes on without it.
const GRACE: i64 = 60;
const _: () = assert!(COPY_LIMIT.as_secs() < GRACE.unsigned_abs());
/// The first pause after a try that did not take everything back; each further one is twice as long.
const FIRST_PAUSE: Duration = Duration::from_secs(30);
/// The longest one: a holder that ends in the night is followed within minutes.
const LONGEST_PAUSE: Duration = Duration::from_mins(5);
/// How long the timer may take to begin.
const BEGINS: Timespec = Timespec { tv_sec: 30, tv_nsec: 0 };
/// What it says once it is in its own session.
const READY: &[u8] = b"\n";

/// Starts it, and comes back when nothing that ends this process reaches it any more. Called with
/// the lock held, so that it sees nothing before the command is at its end.
#[expect(clippy::disallowed_methods, reason = "the command line starts this one child")]
pub(super) fn start(state: &Path) -> Result<(), ChangeError> {
    let program = std::env::current_exe().map_err(ChangeError::Timer)?;
    // What systemd itself asks to find out whether it runs (sd_booted(3)).
    let by_systemd = rustix::fs::lstat("/run/systemd/system").is_ok();
    let words = words(&program, state, by_systemd);
    let (first, rest) = words.split_first().ok_or(ChangeError::Timer(Errno::INVAL.into()))?;
    let mut child = std::process::Command::new(first)
        .args(rest)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .map_err(ChangeError::Timer)?;
    let told = child.stdout.take().map(|pipe| is_ready(&pipe));
    match told {
        Some(Ok(true)) => Ok(()),
        Some(Err(errno)) => Err(ChangeError::Timer(errno.into())),
        Some(Ok(false)) | None => {
            let by = if by_systemd { " (it was started by systemd-run --scope)" } else { "" };
            let why = format!("it ended, or did not begin in time{by}");
            Err(ChangeError::Timer(std::io::Error::other(why)))
        }
    }
}

/// The command that it is started by. systemd ends everything in the control group of a unit that
/// stops, and logind that of a login where it is told to: a scope is a group of its own, with the
/// same process in it.
fn words(program: &Path, state: &Path, by_systemd: bool) -> Vec<OsString> {
    let mut words: Vec<OsString> = Vec::new();
    if by_systemd {
        let scope = [
            "systemd-run",
            "--scope",
            "--quiet",
            "--collect",
            "--slice=system.slice",
            "--description=Peerway: takes back what is not confirmed",
            "--",
        ];
        words.extend(scope.map(OsString::from));
    }
    words.push(program.into());
    words.extend(["--host", "live", "dead-man", "0", "--state"].map(OsString::from));
    words.push(state.into());
    words
}

fn is_ready(pipe: &ChildStdout) -> Result<bool, Errno> {
    loop {
        let mut fds = [PollFd::new(pipe, PollFlags::IN)];
        match rustix::event::poll(&mut fds, Some(&BEGINS)) {
            Ok(0) => return Ok(false),
            Ok(_) => break,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(rustix::io::read(pipe, &mut [0; 1])? > 0)
}

/// The timer itself: leaves the session of the command that started it, and says so. What it is told
/// to watch over is in its own hands from here.
pub(super) fn settle() {
    // It may lead a session already, which is all that is wanted.
    let _session = rustix::process::setsid();
    // The one who waits for it may be gone, which is what the timer is for.
    let _told = rustix::io::write(rustix::stdio::stdout(), READY);
}

/// Watches, and takes back by `attempt` what is to be taken back, until nothing is left. A holder, a
/// step that fails and a journal that cannot be read are tried again after growing pauses.
pub(super) fn stand(
    state: &Path,
    pause: &dyn Fn(Duration),
    attempt: &mut dyn FnMut() -> Result<Exit, ChangeError>,
) {
    let log = Log::open(state);
    let mut next = FIRST_PAUSE;
    loop {
        match keep_watch(state) {
            Ok(false) => return,
            Ok(true) => {
                let came = attempt();
                log.line(&told(state, came));
                if matches!(keep_watch_once(state), Ok(Some((Seen::Nothing, _)))) {
                    return;
                }
            }
            Err(error) => log.line(&error.to_string()),
        }
        log.line(&format!("next try in {} s", next.as_secs()));
        pause(next);
        next = (next * 2).min(LONGEST_PAUSE);
    }
}

/// What an attempt came to, in words.
fn told(state: &Path, came: Result<Exit, ChangeError>) -> String {
    let error = match came {
        Ok(_) => None,
        Err(error) => Some(error.to_string()),
    };
    let last = DirectoryStore::open(state).ok().and_then(|mut store| {
        let journal = Journal::open(&mut store).ok()?;
        history(&journal).pop()
    });
    let record = last.map(|one| {
        let why = one.why.map(|why| format!(": {why}")).unwrap_or_default();
        format!("{} is {}{why}", one.id, one.state)
    });
    error.into_iter().chain(record).collect::<Vec<_>>().join("; ")
}

/// Comes back when there is something to take back (`true`), or nothing to watch any more. In
/// between it holds no lock, so that it is in nobody's way.
fn keep_watch(state: &Path) -> Result<bool, ChangeError> {
    let mut left: Option<(usize, i64)> = None;
    loop {
        let Some((seen, records)) = keep_watch_once(state)? else {
            std::thread::sleep(BETWEEN);
            continue;
        };
        let now = now();
        match seen {
            Seen::Nothing => return Ok(false),
            Seen::Due | Seen::Stuck => return Ok(true),
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
    /// Over.
    Nothing,
    /// The operator has the word until then.
    Until(i64),
    /// It had.
    Due,
    /// The command that was at it is gone.
    Left,
    /// A holder or a failing step stood in the way.
    Stuck,
}

fn now() -> i64 {
    rustix::time::clock_gettime(ClockId::Boottime).tv_sec
}

/// What the journal says and how many records it has; `None` while a command has it.
fn keep_watch_once(state: &Path) -> Result<Option<(Seen, usize)>, ChangeError> {
    let mut store = match DirectoryStore::open(state) {
        Ok(store) => store,
        Err(StoreError::Locked { .. }) => return Ok(None),
        Err(error) => return Err(PlaceError::from(error).into()),
    };
    let journal = Journal::open(&mut store).map_err(peerway_write::grant::GrantError::from);
    let journal = journal.map_err(peerway_write::transaction::TransactionError::from)?;
    let records = journal.entries().len();
    let seen = match journal.open_transaction().map(|one| one.state()) {
        None | Some(State::Over(_)) => Seen::Nothing,
        Some(State::PendingHolder | State::Remains { .. }) => Seen::Stuck,
        Some(State::Waiting { until }) => {
            let until = i64::try_from(until).unwrap_or(i64::MAX);
            if now() > until { Seen::Due } else { Seen::Until(until.saturating_add(1)) }
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
