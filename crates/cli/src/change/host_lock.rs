//! One process at a time that changes this host, wherever it keeps its journal.
//!
//! The file holds the state directory whose transaction is not over: another directory's journal says
//! nothing of it. It is below `/run`, since nothing of a transaction outlives a boot.

use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use peerway_write::store::{OWN, StoreError};
use rustix::fd::OwnedFd;
use rustix::fs::{FlockOperation, OFlags};
use rustix::io::Errno;

/// Where it is: made once, and never removed, since a lock on a removed file locks nothing.
pub(super) const PLACE: &str = "/run/peerway.lock";
/// Longer than any path.
const MOST_BYTES: usize = 8192;

/// The lock, held for as long as it lives.
#[derive(Debug)]
pub(super) struct HostLock {
    file: OwnedFd,
    path: PathBuf,
}

impl HostLock {
    /// Takes it at once, or says that another process has it.
    pub(super) fn take(path: &Path) -> Result<Self, StoreError> {
        let call = |act: &'static str| {
            let path = path.display().to_string();
            move |errno| StoreError::Call { act, path, errno }
        };
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::open(path, flags, OWN).map_err(call("open"))?;
        rustix::fs::fchmod(&file, OWN).map_err(call("make"))?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => Ok(Self { file, path: path.to_owned() }),
            Err(Errno::WOULDBLOCK) => Err(StoreError::Locked { path: path.display().to_string() }),
            Err(errno) => Err(call("lock")(errno)),
        }
    }

    /// The other state directory in which a transaction is not over, if one is named.
    pub(super) fn elsewhere(&self, state: &Path) -> Result<Option<PathBuf>, StoreError> {
        let mut bytes = vec![0; MOST_BYTES];
        let count = rustix::io::pread(&self.file, &mut bytes[..], 0).map_err(self.call("read"))?;
        bytes.truncate(count);
        let named = PathBuf::from(std::ffi::OsStr::from_bytes(&bytes));
        Ok(Some(named).filter(|named| !named.as_os_str().is_empty() && named != state))
    }

    /// Names the state directory whose transaction is not over, before it begins.
    pub(super) fn name(&self, state: &Path) -> Result<(), StoreError> {
        self.clear()?;
        let bytes = state.as_os_str().as_bytes();
        let count = rustix::io::pwrite(&self.file, bytes, 0).map_err(self.call("write"))?;
        if count == bytes.len() { Ok(()) } else { Err(self.call("write")(Errno::NOSPC)) }
    }

    /// No transaction is open any more.
    pub(super) fn clear(&self) -> Result<(), StoreError> {
        rustix::fs::ftruncate(&self.file, 0).map_err(self.call("write"))
    }

    fn call(&self, act: &'static str) -> impl FnOnce(Errno) -> StoreError + use<> {
        let path = self.path.display().to_string();
        move |errno| StoreError::Call { act, path, errno }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_at_a_time_wherever_the_journal_is() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("lock");
        let (one, other) = (Path::new("/one"), Path::new("/other"));
        let lock = HostLock::take(&path).unwrap();
        assert!(matches!(HostLock::take(&path), Err(StoreError::Locked { .. })));
        assert_eq!(lock.elsewhere(other).unwrap(), None);
        lock.name(one).unwrap();
        drop(lock);
        let lock = HostLock::take(&path).unwrap();
        assert_eq!(lock.elsewhere(other).unwrap(), Some(one.to_owned()));
        assert_eq!(lock.elsewhere(one).unwrap(), None);
        lock.name(Path::new("/o")).unwrap();
        assert_eq!(lock.elsewhere(one).unwrap(), Some(PathBuf::from("/o")));
        lock.clear().unwrap();
        assert_eq!(lock.elsewhere(other).unwrap(), None);
    }
}
