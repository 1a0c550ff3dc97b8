//! What the timer did, for the operator who finds the machine in the morning.

use std::path::Path;

use peerway_write::store::OWN;
use rustix::fd::OwnedFd;
use rustix::fs::OFlags;

/// Name of the log, beside the journal.
pub(super) const NAME: &str = "guardian.log";
/// Longer than what is said in a year of tries; then it begins anew.
const MOST_BYTES: i64 = 16 << 20;

/// A log that nobody waits for: what cannot be written is lost, and nothing else is.
#[derive(Debug)]
pub(super) struct Log(Option<OwnedFd>);

impl Log {
    pub(super) fn open(state: &Path) -> Self {
        let flags =
            OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::open(state.join(NAME), flags, OWN).ok();
        Self(file.filter(|file| rustix::fs::fchmod(file, OWN).is_ok()))
    }

    /// Adds a line, with the time of day.
    pub(super) fn line(&self, text: &str) {
        let Some(file) = &self.0 else { return };
        if rustix::fs::fstat(file).is_ok_and(|state| state.st_size > MOST_BYTES) {
            let _cut = rustix::fs::ftruncate(file, 0);
        }
        let when = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ");
        let text = text.replace('\n', " ");
        let _written = rustix::io::write(file, format!("{when} {text}\n").as_bytes());
    }
}
