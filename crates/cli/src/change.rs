//! The changing commands: apply, confirm, rollback, recover, undo, history, verify.

pub(crate) mod children;
mod error;
mod guardian;
mod host_lock;
mod kept;
mod live;
mod verify;

use std::path::{Path, PathBuf};
use std::process::{ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use clap::{Args, Subcommand};
use peerway_cli_read::args::Format;
use peerway_cli_read::host::accelerators;
use peerway_cli_read::output::{Output, complain};
use peerway_cli_read::{Exit, Global};
use peerway_roads::Plan;
use peerway_write::grant::{GrantError, Place};
use peerway_write::history::history;
use peerway_write::journal::Journal;
use peerway_write::live::blocking;
use peerway_write::store::{DirectoryStore, StoreError};
use peerway_write::transaction::{self, Ending, Ladder, Left, Settings, TransactionError};
use peerway_write::{Host, WriteGrant, recovery};

use crate::place::{self, PlaceError};
use error::ChangeError;

/// A plan is not longer than this.
const MOST_PLAN: usize = 64 << 20;

/// How often the timer tries for the lock: often enough to get it between two commands.
const BETWEEN_TRIES: Duration = Duration::from_millis(50);

/// The changing commands.
#[derive(Clone, Debug, Subcommand)]
pub(crate) enum ChangeCommand {
    /// Carry a plan out, up to the point where you confirm it
    Apply {
        /// File that `plan -o FILE` wrote
        plan: PathBuf,
        /// Seconds to confirm in; without a word it is taken back
        #[arg(long, default_value_t = 600, value_name = "SECONDS",
              value_parser = clap::value_parser!(u64).range(1..=86_400))]
        confirm_within: u64,
        /// No timer of its own: time passes by --later only (simulated hosts)
        #[arg(long, hide = true)]
        no_timer: bool,
        /// Program that copies between your devices and checks the data (running hosts; its
        /// protocol is docs/probe.md)
        #[arg(long, value_name = "PROGRAM")]
        probe: Option<PathBuf>,
        /// Take a road on a running host that was not proved through crashes there
        #[arg(long)]
        unproved: bool,
        #[command(flatten)]
        at: At,
    },
    /// Keep what was applied: fence down, environment lifted, services started
    Confirm(At),
    /// Take back what is under way
    Rollback(At),
    /// Finish what a crash or a holder left: the first state, or the last
    Recover {
        /// Reset a device that does not come back; of some boards it is reported that this hangs the host
        #[arg(long)]
        reset: bool,
        #[command(flatten)]
        at: At,
    },
    /// Take back everything that was ever set here and is in force
    Undo {
        /// Everything
        #[arg(long, required = true)]
        all: bool,
        #[command(flatten)]
        at: At,
    },
    /// Every transaction of this host
    History(At),
    /// Whether the last confirmed change is in force, and nobody else was touched
    Verify {
        /// Copy as well, with the program that `apply` had (running hosts); not while a process
        /// has one of the devices. Lets jobs in where a change that lasts was not proved on this
        /// boot yet
        #[arg(long, value_name = "PROGRAM")]
        probe: Option<PathBuf>,
        #[command(flatten)]
        at: At,
    },
    /// Carries out a plan that lasts, before the driver of its devices binds
    #[command(hide = true)]
    AtBoot {
        /// The confirmed plan
        plan: PathBuf,
        #[command(flatten)]
        at: At,
    },
    /// Waits, and takes back what was not confirmed
    #[command(hide = true)]
    DeadMan {
        /// Seconds
        seconds: u64,
        #[command(flatten)]
        at: At,
    },
    /// One look at this machine, for a process that changes it and so stands behind no walls
    #[command(hide = true)]
    SnapshotChild,
    /// One write to a file that was opened for it
    #[command(hide = true)]
    WriteChild {
        /// What is written
        #[arg(allow_hyphen_values = true)]
        word: String,
    },
}

/// Where.
#[derive(Args, Clone, Debug)]
pub(crate) struct At {
    /// Directory of the journal (default: /var/lib/peerway), and of the simulated host between
    /// commands
    #[arg(long, alias = "state-dir", value_name = "DIR")]
    state: Option<PathBuf>,
    /// Lets so many seconds pass first (simulated hosts)
    #[arg(long, default_value_t = 0, value_name = "SECONDS")]
    later: u64,
}

/// Runs a changing command.
pub(crate) fn run(global: &Global, command: &ChangeCommand) -> Exit {
    if let ChangeCommand::SnapshotChild = command {
        return children::look(global);
    }
    let mut output = Output::stdout();
    let mut left = false;
    let exit = match execute(global, command, &mut output, &mut left) {
        Ok(exit) => exit,
        Err(error) => {
            complain(&format!("peerway: {error}\n"));
            error.exit(left)
        }
    };
    match output.finish() {
        Ok(()) => exit,
        Err(error) => {
            complain(&format!("peerway: cannot write the answer: {error}\n"));
            exit.and(Exit::Internal)
        }
    }
}

/// Runs the child that writes, if that is what this process was started for.
pub(crate) fn dispatch(command: &ChangeCommand) -> Option<ExitCode> {
    match command {
        ChangeCommand::WriteChild { word } => Some(ExitCode::from(blocking::child(word))),
        _ => None,
    }
}

fn at(command: &ChangeCommand) -> Option<&At> {
    Some(match command {
        ChangeCommand::Apply { at, .. }
        | ChangeCommand::Undo { at, .. }
        | ChangeCommand::DeadMan { at, .. }
        | ChangeCommand::Verify { at, .. }
        | ChangeCommand::AtBoot { at, .. }
        | ChangeCommand::Confirm(at)
        | ChangeCommand::Rollback(at)
        | ChangeCommand::Recover { at, .. }
        | ChangeCommand::History(at) => at,
        ChangeCommand::SnapshotChild | ChangeCommand::WriteChild { .. } => return None,
    })
}

fn execute(
    global: &Global,
    command: &ChangeCommand,
    output: &mut Output,
    left: &mut bool,
) -> Result<Exit, ChangeError> {
    let Some(place) = at(command) else { return Ok(Exit::Internal) };
    if global.host == "live" {
        return live::execute(global, command, place, output, left);
    }
    let mut later = place.later;
    if let ChangeCommand::DeadMan { seconds, .. } = command {
        wait_out(*seconds);
        later = later.saturating_add(seconds.saturating_add(1));
    }
    let plan = plan_of(command)?;
    let directory = place::state_directory(place.state.as_deref(), &global.host)?;
    place::make_directories(&directory)?;
    let mut store = open_store(command, &directory)?;
    let declared = accelerators(&global.accelerator).map_err(PlaceError::from)?;
    let mut host = place::load(&directory, &global.host)?.with_accelerators(declared);
    host.pass(later);
    let result = granted(&mut store, Place::Simulated)
        .and_then(|grant| change(global, command, plan.as_ref(), grant, &mut host, output));
    // Whatever came of it, the host is what it is now.
    let saved = place::save(&directory, &global.host, &host);
    *left = leaves_open(&result, &mut store);
    let exit = result?;
    saved?;
    if let ChangeCommand::Apply { confirm_within, no_timer: false, .. } = command
        && Journal::open(&mut store).is_ok_and(|journal| journal.open_transaction().is_some())
    {
        start_timer(&global.host, &directory, *confirm_within)?;
    }
    Ok(exit)
}

/// Whether an error left a transaction open that it is about.
fn leaves_open(result: &Result<Exit, ChangeError>, store: &mut DirectoryStore) -> bool {
    let elsewhere = matches!(
        result,
        Err(ChangeError::Transaction(
            TransactionError::NothingToConfirm(_)
                | TransactionError::Grant(GrantError::Unfinished { .. })
        ))
    );
    result.is_err()
        && !elsewhere
        && Journal::open(store).is_ok_and(|journal| journal.open_transaction().is_some())
}

/// Takes the lock. The timer waits for it as long as another command has it: one that gave up
/// would leave a change in force that nobody confirmed.
fn open_store(command: &ChangeCommand, directory: &Path) -> Result<DirectoryStore, ChangeError> {
    loop {
        match DirectoryStore::open(directory) {
            Err(StoreError::Locked { .. }) if matches!(command, ChangeCommand::DeadMan { .. }) => {
                std::thread::sleep(BETWEEN_TRIES);
            }
            result => return Ok(result.map_err(PlaceError::from)?),
        }
    }
}

fn granted<'s>(
    store: &'s mut DirectoryStore,
    on: Place<'_>,
) -> Result<WriteGrant<'s>, ChangeError> {
    Ok(WriteGrant::take(store, on).map_err(TransactionError::from)?)
}

fn read_plan(path: &Path) -> Result<Plan, ChangeError> {
    let error = |why: String| ChangeError::Plan { path: path.display().to_string(), why };
    let bytes = peerway_cli_read::host::read_option_file(path, MOST_PLAN).map_err(error)?;
    serde_json::from_slice(&bytes).map_err(|why| error(why.to_string()))
}

/// The plan that a command carries out.
fn plan_of(command: &ChangeCommand) -> Result<Option<Plan>, ChangeError> {
    match command {
        ChangeCommand::Apply { plan, .. } | ChangeCommand::AtBoot { plan, .. } => {
            read_plan(plan).map(Some)
        }
        _ => Ok(None),
    }
}

fn signals() -> Result<Arc<AtomicBool>, ChangeError> {
    use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
    let flag = Arc::new(AtomicBool::new(false));
    for signal in [SIGHUP, SIGINT, SIGTERM] {
        signal_hook::flag::register(signal, Arc::clone(&flag)).map_err(ChangeError::Signals)?;
    }
    Ok(flag)
}

fn change(
    global: &Global,
    command: &ChangeCommand,
    plan: Option<&Plan>,
    mut grant: WriteGrant<'_>,
    host: &mut dyn Host,
    output: &mut Output,
) -> Result<Exit, ChangeError> {
    let flag = signals()?;
    let confirm_within = match command {
        ChangeCommand::Apply { confirm_within, .. } => *confirm_within,
        _ => 0,
    };
    let ladder = match command {
        ChangeCommand::Recover { reset: true, .. } => Ladder::Reset,
        ChangeCommand::Recover { .. } | ChangeCommand::Rollback(_) | ChangeCommand::Undo { .. } => {
            Ladder::Again
        }
        _ => Ladder::Leave,
    };
    let settings = Settings { confirm_within, interrupted: &flag, ladder };
    let ending = match command {
        ChangeCommand::Apply { .. } => match plan {
            Some(plan) if plan.before_driver => {
                return Err(not_offered("it is a plan for a boot; make one with peerway plan"));
            }
            Some(plan) => peerway_write::apply(grant, host, plan, settings)?,
            None => Ending::Nothing,
        },
        ChangeCommand::AtBoot { .. } => match plan {
            Some(plan) => {
                plan.check().map_err(TransactionError::from)?;
                if !transaction::was_made_to_last(grant.journal(), plan) {
                    return Err(not_offered(
                        "no confirmed change of this host put this plan in place to last",
                    ));
                }
                let root = host.root().map_err(TransactionError::from)?;
                if let Some(why) = transaction::claims_unseen(&root) {
                    return Err(not_offered(&why));
                }
                let snapshot = host.snapshot().map_err(TransactionError::from)?;
                let plan = plan.before_driver(&snapshot)?;
                peerway_write::apply(grant, host, &plan, settings)?
            }
            None => Ending::Nothing,
        },
        ChangeCommand::Confirm(_) => peerway_write::confirm(grant, host, settings)?,
        ChangeCommand::Rollback(_) => {
            let why = "the operator took it back";
            let ending = recovery::roll_back(grant, host, settings, why)?;
            return Ok(asked_back(&ending, output));
        }
        ChangeCommand::Recover { .. } | ChangeCommand::DeadMan { .. } => {
            peerway_write::recover(grant, host, settings)?
        }
        ChangeCommand::Undo { .. } => {
            let endings = recovery::undo_all(grant, host, settings)?;
            if endings.is_empty() {
                output.line("nothing of ours is in force");
            }
            return Ok(endings
                .iter()
                .map(|ending| asked_back(ending, output))
                .fold(Exit::Fine, Exit::and));
        }
        ChangeCommand::History(_) => return list(global, grant.journal(), output),
        ChangeCommand::Verify { probe, .. } => {
            let exit = verify::run(&grant, host, probe.is_some(), output)?;
            if exit != Exit::Fine || probe.is_none() {
                return Ok(exit);
            }
            match transaction::prove(&mut grant, host, settings) {
                Ok(None) => return Ok(exit),
                Ok(Some(ending)) => ending,
                Err(error @ TransactionError::Held(_)) => return Err(error.into()),
                Err(error) => {
                    recovery::close(&grant, host).map_err(TransactionError::from)?;
                    return Err(error.into());
                }
            }
        }
        ChangeCommand::SnapshotChild | ChangeCommand::WriteChild { .. } => Ending::Nothing,
    };
    Ok(say(&ending, output))
}

fn not_offered(why: &str) -> ChangeError {
    TransactionError::NotOffered(why.to_owned()).into()
}

/// Says what came of it.
fn say(ending: &Ending, output: &mut Output) -> Exit {
    match ending {
        Ending::Nothing => {
            output.line("nothing is under way");
            Exit::Fine
        }
        Ending::Waiting { id, until } => {
            output.line(&format!(
                "{id}: applied and verified; confirm it before {until} s after boot, or it is \
                 taken back"
            ));
            Exit::Fine
        }
        Ending::Succeeded { id } => {
            output.line(&format!("{id}: in force"));
            Exit::Fine
        }
        Ending::TakenBack { id, why, doubts } => {
            output.line(&format!("{id}: taken back: {why}"));
            for doubt in doubts {
                output.line(&format!("  not known: {doubt}"));
            }
            Exit::TakenBack
        }
        Ending::GoneWithBoot { id } => {
            output.line(&format!("{id}: gone with the last boot; nothing of it is left"));
            Exit::Fine
        }
        Ending::PendingHolder { id, holders } => {
            complain(&format!(
                "peerway: {id} is NOT taken back: {}\nhint: stop these processes, then run peerway \
                 recover; new jobs get the safe environment\n",
                holders.join("; ")
            ));
            Exit::NotTakenBack
        }
        Ending::Remains { id, left } => {
            let line = |left: &Left| match left.step {
                0 => format!("  the state: {}\n", left.why),
                step => format!("  step {step}: {}\n", left.why),
            };
            let lines: String = left.iter().map(line).collect();
            complain(&format!(
                "peerway: {id} is NOT taken back; what remains:\n{lines}hint: mend what it names, \
                 then run peerway recover\n"
            ));
            Exit::NotTakenBack
        }
    }
}

/// The same where going back is what was asked for.
fn asked_back(ending: &Ending, output: &mut Output) -> Exit {
    match say(ending, output) {
        Exit::TakenBack => Exit::Fine,
        other => other,
    }
}

fn list(global: &Global, journal: &Journal<'_>, output: &mut Output) -> Result<Exit, ChangeError> {
    for record in history(journal) {
        if global.format == Format::Text {
            let ended = record.ended.as_deref().unwrap_or("not over");
            output.line(&format!(
                "{}  {:16}  {:20}  {} .. {ended}",
                record.id, record.road, record.state, record.began
            ));
            if let Some(why) = &record.why {
                output.line(&format!("         {why}"));
            }
        } else {
            output.line(&serde_json::to_string(&record).map_err(ChangeError::Render)?);
        }
    }
    Ok(Exit::Fine)
}

/// Starts the timer: this program again, in a session of its own, so that it outlives terminal
/// and process.
#[expect(clippy::disallowed_methods, reason = "the command line starts this one child")]
fn start_timer(host: &str, state: &Path, seconds: u64) -> Result<(), ChangeError> {
    let program = std::env::current_exe().map_err(ChangeError::Timer)?;
    std::process::Command::new(program)
        .args(["--host", host, "dead-man", &seconds.to_string(), "--state"])
        .arg(state)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .map_err(ChangeError::Timer)?;
    Ok(())
}

fn wait_out(seconds: u64) {
    // It may lead a session already, which is all that is wanted.
    let _session = rustix::process::setsid();
    std::thread::sleep(Duration::from_secs(seconds));
}
