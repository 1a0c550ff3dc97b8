//! A child in the view of a container, or of any other process: its files, its devices, its rights.
//!
//! The process that enters is a copy of this program which does nothing else: it joins the control
//! group and the namespaces, takes the identity of the process whose view it is, gives up whatever
//! that process need not have, and only then starts the program that loads the library. Nothing is
//! installed: the program travels as a sealed file in memory. Whatever of the container runs here
//! (its loader, its C library, its driver library) runs without any capability.

mod identity;
mod limits;
mod place;

use std::ffi::OsString;
use std::os::fd::AsRawFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitCode};

use rustix::process::{DumpableBehavior, Signal};
use thiserror::Error;

use crate::child::die_with_parent;
use crate::precondition::{Precondition, Unmet};
use crate::protocol::Event;
use crate::report::Reporter;
use place::Place;

/// Whose view a measurement has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct View {
    /// As it was asked for, `lxc:101`; for messages.
    pub name: String,
    /// The process whose view it is.
    pub pid: u32,
    /// When that process started (`/proc/PID/stat`, field 22): a number may be used again.
    pub start: u64,
    /// Arguments by which the program comes to `enter_main`; process and start come behind.
    pub arguments: Vec<String>,
}

/// Why a view could not be entered.
#[derive(Debug, Error)]
pub(crate) enum EnterError {
    /// Wrong arguments: this program's own mistake.
    #[error("wrong arguments")]
    Arguments,
    /// The process went away, or its number belongs to another one now.
    #[error("process {0} is gone; look whether the container still runs")]
    Gone(u32),
    /// A call failed.
    #[error("cannot {act}: {why}")]
    Call {
        /// What.
        act: &'static str,
        /// Why.
        why: std::io::Error,
    },
    /// The namespaces are closed to this user.
    #[error("cannot join the namespaces of process {pid}: {why}; that takes root")]
    Refused {
        /// The process.
        pid: u32,
        /// Why.
        why: std::io::Error,
    },
    /// A user or group of the process has no number there.
    #[error("{what} {id} of the process has no number in its own user namespace")]
    Unmapped {
        /// User or group.
        what: &'static str,
        /// As the host numbers it.
        id: u32,
    },
    /// The program could not be started there.
    #[error(
        "cannot start the measuring program in there: {why}; it takes the C library's loader, as \
         the driver's library does, and a mounted /proc"
    )]
    Start {
        /// Why.
        why: std::io::Error,
    },
}

impl EnterError {
    fn call(act: &'static str) -> impl FnOnce(rustix::io::Errno) -> Self {
        move |errno| Self::Call { act, why: errno.into() }
    }
}

/// The process that enters. Arguments: process, its start, and the arguments of the child.
pub fn main(arguments: &[OsString]) -> ExitCode {
    let mut output = std::io::stdout();
    let mut out = Reporter::new(&mut output);
    match enter(arguments, &mut out) {
        Ok(code) => code,
        Err(error) => {
            let text = format!("the container's view could not be entered: {error}");
            let unmet = Precondition::host(Unmet::NoView, text.clone());
            let failed = Event::Failed { code: None, hung: false, text };
            // If nobody listens any more, the exit code still says it.
            drop(out.emit(&Event::Unmet(unmet)).and_then(|()| out.emit(&failed)));
            ExitCode::FAILURE
        }
    }
}

fn enter(arguments: &[OsString], out: &mut Reporter<'_>) -> Result<ExitCode, EnterError> {
    let text = |index: usize| arguments.get(index).and_then(|word| word.to_str());
    let pid = text(0).and_then(|word| word.parse().ok()).ok_or(EnterError::Arguments)?;
    let start = text(1).and_then(|word| word.parse().ok()).ok_or(EnterError::Arguments)?;
    let rest = arguments.get(2..).unwrap_or_default();
    die_with_parent().map_err(|_| EnterError::Arguments)?;
    // What is in there must not look into this process while it has more rights.
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(EnterError::call("close this process to debuggers"))?;
    let program = place::sealed_program()?;
    let place = Place::look(pid, start)?;
    let mut notes = place.join_control_groups();
    notes.extend(place.enter()?);
    identity::take(&place.identity)?;
    notes.extend(limits::raise());
    for note in notes {
        // A parent that does not listen ends this process anyway.
        drop(out.emit(&Event::Note(note)));
    }
    // Forgotten by the kernel whenever a process's rights change.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(EnterError::call("tie this process to its parent"))?;
    // By the number of a descriptor: the child has its own `/proc/self`, in its own process space.
    #[expect(clippy::disallowed_methods, reason = "the child that opens GPUs, in another view")]
    let status = Command::new(format!("/proc/self/fd/{}", program.as_raw_fd()))
        .args(rest)
        .envs(place.environment)
        .status()
        .map_err(|why| EnterError::Start { why })?;
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal)).unwrap_or(1);
    Ok(ExitCode::from(u8::try_from(code).unwrap_or(1)))
}
