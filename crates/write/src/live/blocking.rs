//! Writes that the kernel may keep: one child at a time, each with a deadline.
//!
//! The child opens nothing. Its standard output is the file that it writes to, and its standard input
//! is the lock that says that it lives: a lock of an open file stays taken until the last process that
//! has it is gone, so that a later command sees a write that outlived its parent.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use crate::store::OWN;

/// Name of the hidden command that runs [`child`].
pub const CHILD: &str = "write-child";
/// Name of the lock, beside the journal.
const LOCK: &str = "writing";
/// How often a child is looked at.
pub(super) const POLL: Duration = Duration::from_millis(2);
/// How long the write of an earlier process is waited for: its parent may just have been killed.
pub(super) const SETTLE: Duration = Duration::from_secs(5);
/// The longest text of what is being written.
const MOST_WORDS: usize = 4096;
/// Exit status of a child that did not get to write.
const NOT_WRITTEN: u8 = 255;

/// What became of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// The kernel took it.
    Done,
    /// The kernel refused it.
    Refused(Errno),
    /// It does not come back; it may still finish later.
    Hangs,
}

/// The lock, and the program of the children.
#[derive(Debug)]
pub struct Blocking {
    state: PathBuf,
    program: PathBuf,
}

impl Blocking {
    pub(super) fn new(state: PathBuf, program: PathBuf) -> Self {
        Self { state, program }
    }

    /// Writes a word by a child; an error is one of starting it, and nothing was written.
    pub(super) fn write(
        &self,
        file: OwnedFd,
        word: &str,
        what: &str,
        limit: Duration,
    ) -> Result<Written, String> {
        let Some(lock) = self.lock(SETTLE)? else { return Ok(Written::Hangs) };
        let failed = |errno: Errno| std::io::Error::from(errno).to_string();
        rustix::fs::ftruncate(&lock, 0).map_err(failed)?;
        rustix::io::pwrite(&lock, what.as_bytes(), 0).map_err(failed)?;
        #[expect(clippy::disallowed_methods, reason = "a write that may block is a child's")]
        let child = Command::new(&self.program)
            .args([CHILD, word])
            .stdin(Stdio::from(lock))
            .stdout(Stdio::from(file))
            .stderr(Stdio::null())
            // Signals of the terminal are for the one who can take back, and not for this.
            .process_group(0)
            .spawn();
        wait(&mut child.map_err(|error| error.to_string())?, limit)
    }

    /// Takes the lock; `None` where another write has it all the time.
    pub(super) fn lock(&self, patience: Duration) -> Result<Option<OwnedFd>, String> {
        let path = self.state.join(LOCK);
        let error = |errno: Errno| {
            format!("cannot lock {}: {}", path.display(), std::io::Error::from(errno))
        };
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::open(&path, flags, OWN).map_err(error)?;
        rustix::fs::fchmod(&file, OWN).map_err(error)?;
        let end = Instant::now() + patience;
        loop {
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Some(file)),
                Err(Errno::WOULDBLOCK) if Instant::now() < end => std::thread::sleep(POLL),
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(error(errno)),
            }
        }
    }

    /// What an earlier write is about that the kernel has not finished.
    pub(super) fn under_way(&self) -> Option<String> {
        match self.lock(SETTLE) {
            Ok(Some(_)) => None,
            Ok(None) => Some(self.words()),
            Err(why) => Some(format!("whether a write is under way is unknown: {why}")),
        }
    }

    fn words(&self) -> String {
        let path = self.state.join(LOCK);
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut text = vec![0; MOST_WORDS];
        let count = rustix::fs::open(&path, flags, Mode::empty())
            .and_then(|file| rustix::io::read(&file, &mut text[..]))
            .unwrap_or(0);
        String::from_utf8_lossy(text.get(..count).unwrap_or_default()).into_owned()
    }
}

fn wait(child: &mut Child, limit: Duration) -> Result<Written, String> {
    let end = Instant::now() + limit;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => {
                return match status.code() {
                    Some(0) => Ok(Written::Done),
                    Some(code) if code != i32::from(NOT_WRITTEN) => {
                        Ok(Written::Refused(Errno::from_raw_os_error(code)))
                    }
                    // Whether it wrote is not known; what is in place is read back.
                    _ => Err(format!("the child that writes ended with {status}")),
                };
            }
            Ok(None) if Instant::now() < end => std::thread::sleep(POLL),
            // It is left alone: it cannot be ended, and its lock says that it is there.
            Ok(None) => return Ok(Written::Hangs),
            Err(error) => return Err(error.to_string()),
        }
    }
}

/// The child: writes one word to standard output in one call; its exit status is the error number.
pub fn child(word: &str) -> u8 {
    match rustix::io::write(rustix::stdio::stdout(), word.as_bytes()) {
        Ok(count) if count == word.len() => 0,
        Ok(_) => NOT_WRITTEN,
        Err(errno) => u8::try_from(errno.raw_os_error()).unwrap_or(NOT_WRITTEN),
    }
}
