//! Programs of the host. Those that change something are run one at a time with the writes of
//! [`super::blocking`], under the same lock; those that only tell are asked without it. All have a
//! deadline.

use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use rustix::fs::OFlags;
use rustix::io::Errno;

use super::blocking::{Blocking, POLL, SETTLE};

/// Where programs look for others.
const PATH: &str = "/usr/sbin:/usr/bin:/sbin:/bin";

/// The most that is kept of what a program says.
const MOST_SAID: usize = 4096;

/// The most that is read of an answer.
const MOST_TOLD: u64 = 1 << 20;

/// What became of a program that was run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ran {
    /// It ended well.
    Done,
    /// It did not, and said this.
    Refused(String),
    /// It does not come back; it may still finish later.
    Hangs,
}

/// Runs a program; an error is one of starting it, and nothing was done.
pub(super) fn run(
    blocking: &Blocking,
    (program, words): (&Path, &[&str]),
    what: &str,
    limit: Duration,
) -> Result<Ran, String> {
    let Some(lock) = blocking.lock(SETTLE)? else { return Ok(Ran::Hangs) };
    let failed = |errno: Errno| std::io::Error::from(errno).to_string();
    rustix::fs::ftruncate(&lock, 0).map_err(failed)?;
    rustix::io::pwrite(&lock, what.as_bytes(), 0).map_err(failed)?;
    #[expect(clippy::disallowed_methods, reason = "some changes are a program's work")]
    let child = Command::new(program)
        .args(words)
        .env_clear()
        .env("PATH", PATH)
        .stdin(Stdio::from(lock))
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn();
    let mut child =
        child.map_err(|error| format!("cannot start {}: {error}", program.display()))?;
    let end = Instant::now() + limit;
    loop {
        match child.try_wait().map_err(|error| error.to_string())? {
            Some(status) if status.success() => return Ok(Ran::Done),
            Some(status) => return Ok(Ran::Refused(said(&mut child, status))),
            None if Instant::now() < end => std::thread::sleep(POLL),
            None => return Ok(Ran::Hangs),
        }
    }
}

/// What a program that changes nothing says; an error where it fails, or does not answer.
pub(super) fn ask((program, words): (&Path, &[&str]), limit: Duration) -> Result<String, String> {
    #[expect(clippy::disallowed_methods, reason = "what the host's manager knows, it tells itself")]
    let child = Command::new(program)
        .args(words)
        .env_clear()
        .env("PATH", PATH)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .spawn();
    let name = program.display();
    let mut child = child.map_err(|error| format!("cannot start {name}: {error}"))?;
    let answer = child.stdout.take();
    let end = Instant::now() + limit;
    let mut text = Vec::new();
    // Read beside it: a pipe that is full would hold it.
    let (told, tells) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let read = answer.map(|pipe| pipe.take(MOST_TOLD).read_to_end(&mut text));
        // Nobody may wait for it any more.
        drop(told.send(read.transpose().map(|_| text)));
    });
    let status = loop {
        match child.try_wait().map_err(|error| error.to_string())? {
            Some(status) => break status,
            None if Instant::now() < end => std::thread::sleep(POLL),
            None => {
                // One that waits in the kernel goes when that lets it.
                drop(child.kill());
                drop(child.try_wait());
                return Err(format!("{name} did not answer within {} s", limit.as_secs()));
            }
        }
    };
    if !status.success() {
        return Err(format!("{name} says {}", said(&mut child, status)));
    }
    // What it started may keep the pipe open.
    let bytes = tells.recv_timeout(end.saturating_duration_since(Instant::now()));
    let bytes = bytes.map_err(|_| format!("what {name} said did not end in time"))?;
    let bytes = bytes.map_err(|error| format!("{name} could not be read: {error}"))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// What a program that ended said on standard error, or how it ended. What it started may keep the pipe
/// open, so that its end is not waited for.
fn said(child: &mut Child, status: ExitStatus) -> String {
    let mut bytes = [0; MOST_SAID];
    let read = child.stderr.take().and_then(|mut pipe| {
        rustix::fs::fcntl_setfl(&pipe, OFlags::NONBLOCK).ok()?;
        pipe.read(&mut bytes).ok()
    });
    let text = String::from_utf8_lossy(bytes.get(..read.unwrap_or(0)).unwrap_or_default());
    let words: Vec<&str> = text.split_whitespace().collect();
    if words.is_empty() { format!("it ended with {status}") } else { words.join(" ") }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn ran(words: &[&str], limit: Duration) -> Result<Ran, String> {
        let place = tempfile::tempdir().unwrap();
        let blocking = Blocking::new(place.path().to_owned(), PathBuf::new());
        run(&blocking, (Path::new("/bin/sh"), words), "loading", limit)
    }

    #[test]
    fn a_program_ends_as_it_says() {
        let second = Duration::from_secs(30);
        assert_eq!(ran(&["-c", "exit 0"], second), Ok(Ran::Done));
        let said = Ran::Refused("not found".to_owned());
        assert_eq!(ran(&["-c", "echo not found >&2; exit 1"], second), Ok(said));
        assert_eq!(ran(&["-c", "exec sleep 2"], Duration::from_millis(50)), Ok(Ran::Hangs));
    }
}
