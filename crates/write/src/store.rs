//! Where a journal lies: appended and synced, read whole, and cut only behind its last good record.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use rustix::fd::OwnedFd;
use rustix::fs::{FallocateFlags, FlockOperation, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use thiserror::Error;

/// Name of the journal in its directory.
const JOURNAL: &str = "journal.jsonl";
/// Name of the lock: created once and never replaced, since a lock on a replaced file locks nothing.
const LOCK: &str = "lock";
/// Mode of every file beside the journal, whatever the mask of the one who asked.
pub const OWN: Mode = Mode::RUSR.union(Mode::WUSR);
/// A journal longer than this was not written by this program.
const MOST_BYTES: u64 = 1 << 30;

/// Why the journal cannot be used.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum StoreError {
    /// A call failed.
    #[error("cannot {act} {path:?}: {}", std::io::Error::from(*errno))]
    Call {
        /// What.
        act: &'static str,
        /// Of what.
        path: String,
        /// Why.
        errno: Errno,
    },
    /// Another process works on this host.
    #[error("another peerway holds the lock {path:?}; wait until it is done")]
    Locked {
        /// The lock.
        path: String,
    },
    /// The process ends here (tests only).
    #[error("the process ended while it wrote the journal")]
    Stopped,
}

/// A place for one journal.
pub trait Store {
    /// Everything that was appended.
    fn read(&self) -> Result<Vec<u8>, StoreError>;
    /// Appends, and comes back when it is on the disk.
    fn append(&mut self, bytes: &[u8]) -> Result<(), StoreError>;
    /// Cuts a torn end away.
    fn truncate(&mut self, length: u64) -> Result<(), StoreError>;
    /// Makes sure that so many bytes can still be appended.
    fn reserve(&mut self, bytes: u64) -> Result<(), StoreError>;
    /// Where it is, for messages.
    fn place(&self) -> String;
}

/// A journal in a directory, under a lock.
#[derive(Debug)]
pub struct DirectoryStore {
    path: PathBuf,
    journal: OwnedFd,
    /// Held for as long as the store lives.
    _lock: OwnedFd,
}

impl DirectoryStore {
    /// Takes the lock of a directory, and opens its journal. The directory is made if it is
    /// missing; it must belong to this user and nobody else may write to it.
    pub fn open(path: &Path) -> Result<Self, StoreError> {
        let call = |act: &'static str, name: &str| {
            let path = path.join(name).display().to_string();
            move |errno| StoreError::Call { act, path, errno }
        };
        match rustix::fs::mkdir(path, Mode::RWXU) {
            // Whatever the mask of the one who asked.
            Ok(()) => rustix::fs::chmod(path, Mode::RWXU).map_err(call("make", ""))?,
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(call("make", "")(errno)),
        }
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let directory = rustix::fs::open(path, flags, Mode::empty()).map_err(call("open", ""))?;
        let state = rustix::fs::fstat(&directory).map_err(call("look at", ""))?;
        if state.st_uid != rustix::process::geteuid().as_raw() || state.st_mode & 0o022 != 0 {
            return Err(call("trust (others may write to it)", "")(Errno::PERM));
        }
        let open = |name: &str, flags: OFlags| {
            let file = rustix::fs::openat2(
                &directory,
                name,
                flags | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW,
                OWN,
                ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS,
            )?;
            rustix::fs::fchmod(&file, OWN)?;
            Ok(file)
        };
        let lock = open(LOCK, OFlags::RDWR).map_err(call("open", LOCK))?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::WOULDBLOCK) => {
                return Err(StoreError::Locked { path: path.join(LOCK).display().to_string() });
            }
            Err(errno) => return Err(call("lock", LOCK)(errno)),
        }
        let journal =
            open(JOURNAL, OFlags::RDWR | OFlags::APPEND).map_err(call("open", JOURNAL))?;
        // The name has to survive as well as the content.
        rustix::fs::fsync(&directory).map_err(call("sync", ""))?;
        Ok(Self { path: path.to_owned(), journal, _lock: lock })
    }

    fn error(&self, act: &'static str) -> impl FnOnce(Errno) -> StoreError + use<> {
        let path = self.place();
        move |errno| StoreError::Call { act, path, errno }
    }
}

impl Store for DirectoryStore {
    fn read(&self) -> Result<Vec<u8>, StoreError> {
        let size = rustix::fs::fstat(&self.journal).map_err(self.error("look at"))?.st_size;
        let size = u64::try_from(size).unwrap_or(0);
        if size > MOST_BYTES {
            return Err(self.error("read")(Errno::FBIG));
        }
        let mut bytes = vec![0; usize::try_from(size).unwrap_or(0)];
        let mut done = 0_usize;
        while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
            let offset = u64::try_from(done).unwrap_or(0);
            match rustix::io::pread(&self.journal, rest, offset) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.error("read")(errno)),
            }
        }
        bytes.truncate(done);
        Ok(bytes)
    }

    fn append(&mut self, mut bytes: &[u8]) -> Result<(), StoreError> {
        while !bytes.is_empty() {
            match rustix::io::write(&self.journal, bytes) {
                Ok(count) => bytes = bytes.get(count..).unwrap_or_default(),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.error("append to")(errno)),
            }
        }
        rustix::fs::fdatasync(&self.journal).map_err(self.error("sync"))
    }

    fn truncate(&mut self, length: u64) -> Result<(), StoreError> {
        rustix::fs::ftruncate(&self.journal, length).map_err(self.error("cut"))?;
        rustix::fs::fsync(&self.journal).map_err(self.error("sync"))
    }

    fn reserve(&mut self, bytes: u64) -> Result<(), StoreError> {
        let size = rustix::fs::fstat(&self.journal).map_err(self.error("look at"))?.st_size;
        let size = u64::try_from(size).unwrap_or(0);
        match rustix::fs::fallocate(&self.journal, FallocateFlags::KEEP_SIZE, size, bytes) {
            // A file system that cannot promise room is used without a promise.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            Err(errno) => Err(self.error("reserve room in")(errno)),
        }
    }

    fn place(&self) -> String {
        self.path.join(JOURNAL).display().to_string()
    }
}

/// A journal in memory, shared by its clones: for tests and dry runs.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore {
    bytes: Rc<RefCell<Vec<u8>>>,
    /// Bytes that still fit.
    room: Rc<RefCell<Option<u64>>>,
    /// The process ends while this many bytes more were written.
    stops_after: Rc<RefCell<Option<usize>>>,
}

impl MemoryStore {
    /// A journal with a content.
    pub fn with(bytes: Vec<u8>) -> Self {
        Self { bytes: Rc::new(RefCell::new(bytes)), ..Self::default() }
    }

    /// What it holds.
    pub fn bytes(&self) -> Vec<u8> {
        self.bytes.borrow().clone()
    }

    /// The disk is full after so many bytes more; `None`: never.
    pub fn leave_room(&self, bytes: Option<u64>) {
        *self.room.borrow_mut() = bytes;
    }

    /// The process ends once so many bytes more were written; `None`: never.
    pub fn stop_after(&self, bytes: Option<usize>) {
        *self.stops_after.borrow_mut() = bytes;
    }
}

impl Store for MemoryStore {
    fn read(&self) -> Result<Vec<u8>, StoreError> {
        Ok(self.bytes())
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        if let Some(left) = self.stops_after.borrow_mut().as_mut() {
            if let Some(part) = bytes.get(..*left).filter(|part| part.len() < bytes.len()) {
                self.bytes.borrow_mut().extend_from_slice(part);
                *left = 0;
                return Err(StoreError::Stopped);
            }
            *left -= bytes.len();
        }
        let mut room = self.room.borrow_mut();
        let wanted = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        if let Some(left) = room.as_mut() {
            let Some(rest) = left.checked_sub(wanted) else {
                return Err(StoreError::Call {
                    act: "append to",
                    path: self.place(),
                    errno: Errno::NOSPC,
                });
            };
            *left = rest;
        }
        self.bytes.borrow_mut().extend_from_slice(bytes);
        Ok(())
    }

    fn truncate(&mut self, length: u64) -> Result<(), StoreError> {
        self.bytes.borrow_mut().truncate(usize::try_from(length).unwrap_or(usize::MAX));
        Ok(())
    }

    fn reserve(&mut self, bytes: u64) -> Result<(), StoreError> {
        match *self.room.borrow() {
            Some(left) if left < bytes => Err(StoreError::Call {
                act: "reserve room in",
                path: self.place(),
                errno: Errno::NOSPC,
            }),
            _ => Ok(()),
        }
    }

    fn place(&self) -> String {
        "the journal in memory".to_owned()
    }
}
