//! What the children have in common: they are this same program, started again with a hidden
//! first argument before the walls go up.

use std::ffi::OsString;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use serde::Serialize;

use crate::{scan_child, slow};

/// The running program, even if its file was replaced since it was started.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// Exit code of a child that could not do its work (`EX_SOFTWARE`).
const FAILED: i32 = 70;

/// A child could not be started; what it would have read is unknown.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The options do not go into an argument.
    #[error("cannot hand its options to a child process")]
    Options(#[from] serde_json::Error),
    /// No process could be made.
    #[error("cannot start \"{program}\" again as a child")]
    Start {
        /// The program.
        program: String,
        /// Why.
        source: std::io::Error,
    },
    /// It was made without its pipes.
    #[error("the child was started without its pipes")]
    Pipes,
}

/// Runs a child's work if the arguments (without the program's name) ask for it, and gives the
/// exit code. To be called first thing in `main`, with one thread.
pub fn dispatch(args: &[OsString]) -> Option<i32> {
    let options = || args.get(1).and_then(|a| a.to_str()).unwrap_or_default();
    let done = match args.first()?.to_str()? {
        scan_child::COMMAND => scan_child::main(options()).is_ok(),
        slow::COMMAND => slow::server::main(options()).is_ok(),
        _ => return None,
    };
    Some(if done { 0 } else { FAILED })
}

/// Starts this program as a child. `program` other than [`THIS_PROGRAM`] is for tests.
pub(crate) fn start(
    program: Option<&Path>,
    command: &str,
    options: &impl Serialize,
    stdin: Stdio,
) -> Result<Child, SpawnError> {
    let program = program.unwrap_or(Path::new(THIS_PROGRAM));
    let options = serde_json::to_string(options)?;
    #[expect(clippy::disallowed_methods, reason = "the one place that starts this program again")]
    let mut child = Command::new(program);
    child
        .arg(command)
        .arg(options)
        .env_clear()
        .current_dir("/")
        .stdin(stdin)
        .stdout(Stdio::piped());
    child
        .spawn()
        .map_err(|source| SpawnError::Start { program: program.display().to_string(), source })
}

/// Ends this process as soon as nobody listens to it any more, even while it hangs in a call.
///
/// A parent behind its walls can send no signal; nor could the kernel in its name
/// (`PR_SET_PDEATHSIG`), since Landlock refuses that too. But it can close its end of the pipe,
/// and the end of the parent closes it as well. A second thread waits for that, and its exit ends
/// the first one too, unless that hangs where the kernel lets no signal through.
///
/// To be called once the walls stand, since they go up around one thread only.
pub(crate) fn end_when_unheard() -> std::io::Result<()> {
    std::thread::Builder::new().name("listener".to_owned()).spawn(|| {
        let stdout = std::io::stdout();
        // Errors and hang-ups are reported without being asked for.
        let mut fds = [PollFd::new(&stdout, PollFlags::empty())];
        while let Ok(0) | Err(Errno::INTR) = rustix::event::poll(&mut fds, None) {}
        #[expect(clippy::exit, reason = "the first thread may hang and cannot be asked to return")]
        std::process::exit(FAILED);
    })?;
    Ok(())
}

/// Lets go of a child whose pipe is closed already: ends it where this process still may send
/// signals, and never waits.
pub(crate) fn let_go(child: &mut Child) {
    match child.kill() {
        // Refused behind the walls; then the child ends by `end_when_unheard`.
        Ok(()) | Err(_) => {}
    }
    match child.try_wait() {
        // A child that hangs in the kernel does not end at once; init takes care of it later.
        Ok(_) | Err(_) => {}
    }
}

/// Waits until there is something to read or nothing will come any more; `false` at the deadline.
pub(crate) fn wait_readable(fd: impl std::os::fd::AsFd, deadline: Instant) -> Result<bool, Errno> {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec::try_from(left).map_err(|_| Errno::INVAL)?;
        let mut fds = [PollFd::new(&fd, PollFlags::IN)];
        match rustix::event::poll(&mut fds, Some(&timeout)) {
            Ok(0) => return Ok(false),
            Ok(_) => return Ok(true),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
}

/// Writes all of it.
pub(crate) fn write_all(fd: impl std::os::fd::AsFd, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        match rustix::io::write(&fd, bytes) {
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(Errno::INTR) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}
