//! The root of a host, and the only place that opens a host's files.
//!
//! A root is a directory that stands for `/` (on a live host, `/` itself) or a recorded tree in
//! memory. Nothing can leave it: directories are opened with `openat2` and `RESOLVE_IN_ROOT`, so
//! absolute links and `..` resolve inside. Everything is opened read-only, and only regular files
//! are read.

mod budget;
mod directory;
mod files;
mod follow;
mod recording;

use std::fmt;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex};

use peerway_core::observed::Observed;
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags};
use rustix::io::Errno;

use crate::error::{ReadError, Reason, observe};
use crate::tree::{Node, NodeId, Tree};
use budget::Budget;
use directory::Place;
pub use directory::{Directory, Part, exists};
use files::Regular;
pub use follow::KernelLog;
pub use recording::Recording;

/// Attributes and small files are never longer than this.
pub const SMALL: usize = 64 << 10;

/// Files such as `/proc/cpuinfo` of a large host stay below this.
pub const LARGE: usize = 16 << 20;

/// The kernel log's device, the only file that is read although it is no regular one.
pub const KMSG: &str = "/dev/kmsg";

/// Reads for paths that can block for ever; answered by a child with a deadline.
pub trait SlowSource: Send + Sync {
    /// The content of a file, at most `limit` bytes.
    fn read(&self, path: &str, limit: usize) -> Result<Vec<u8>, Reason>;
    /// The names in a directory.
    fn list(&self, path: &str) -> Result<Vec<String>, Reason>;
    /// What a link names.
    fn link(&self, path: &str) -> Result<String, Reason>;
}

/// Trees that can block on a live host: Proxmox's cluster file system is FUSE, the NVIDIA driver's
/// files wait for a hung GPU, and of sysfs those of `SLOW_ATTRIBUTES` for a device's lock.
pub const SLOW_TREES: [&str; 3] = ["/etc/pve", "/proc/driver/nvidia", SYSFS];

const SYSFS: &str = "/sys";

/// Attributes that take the device's lock, which an unbinding that does not come back holds for as
/// long as its driver likes (`drivers/pci/pci-sysfs.c`, `driver_override_show`).
const SLOW_ATTRIBUTES: [&str; 1] = ["driver_override"];

/// A host's file tree, read-only.
pub struct Root {
    backing: Backing,
    slow: Option<Box<dyn SlowSource>>,
    recorder: Option<Mutex<Recording>>,
    budget: Budget,
}

enum Backing {
    Directory {
        fd: OwnedFd,
        /// Device number of a mounted sysfs, whose attributes come in one piece.
        sysfs: Option<u64>,
    },
    Tree(Arc<Tree>),
}

impl fmt::Debug for Root {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.backing {
            Backing::Directory { fd, .. } => write!(out, "Root({fd:?})"),
            Backing::Tree(_) => out.write_str("Root(recorded)"),
        }
    }
}

impl Root {
    /// A directory that stands for `/`.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(fd) => {
                let sysfs = files::sysfs_device(&fd);
                Ok(Self::new(Backing::Directory { fd, sysfs }))
            }
            Err(errno) => Err(ReadError {
                action: "open",
                path: path.display().to_string(),
                reason: Reason::Errno(errno),
            }),
        }
    }

    /// A recorded tree.
    pub fn recorded(tree: Arc<Tree>) -> Self {
        Self::new(Backing::Tree(tree))
    }

    fn new(backing: Backing) -> Self {
        Self { backing, slow: None, recorder: None, budget: Budget::default() }
    }

    /// Sends reads below [`SLOW_TREES`] that can block to a source that cannot hang this process.
    #[must_use]
    pub fn with_slow(mut self, slow: Box<dyn SlowSource>) -> Self {
        self.slow = Some(slow);
        self
    }

    /// Keeps what is read, for a capture.
    #[must_use]
    pub fn recording(mut self) -> Self {
        self.recorder = Some(Mutex::default());
        self
    }

    /// What was read so far.
    pub fn into_recording(self) -> Recording {
        match self.recorder {
            Some(recording) => {
                recording.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner)
            }
            None => Recording::default(),
        }
    }

    fn note(&self, path: &str, node: impl FnOnce() -> Node) {
        if let Some(recorder) = &self.recorder {
            recorder.lock().unwrap_or_else(std::sync::PoisonError::into_inner).note(path, node());
        }
    }

    fn slow_for(&self, path: &str) -> Option<&dyn SlowSource> {
        let slow = self.slow.as_deref()?;
        let below = |tree: &str| {
            path.strip_prefix(tree).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        let attribute = path.rsplit_once('/').is_some_and(|(_, name)| is_slow(name));
        let waits = |tree: &str| below(tree) && (tree != SYSFS || attribute);
        SLOW_TREES.iter().any(|tree| waits(tree)).then_some(slow)
    }

    fn done<T>(
        &self,
        action: &'static str,
        path: &str,
        result: Result<T, Reason>,
    ) -> Result<T, ReadError> {
        result.map_err(|reason| {
            match &reason {
                Reason::Errno(errno) if *errno != Errno::NOENT && *errno != Errno::NOTDIR => {
                    self.note(path, || Node::Fails(*errno));
                }
                Reason::NoAnswer => self.note(path, || Node::Hangs),
                _ => {}
            }
            ReadError { action, path: path.to_owned(), reason }
        })
    }

    /// A file's bytes; an error if it is longer than `limit`.
    pub fn read(&self, path: &str, limit: usize) -> Result<Vec<u8>, ReadError> {
        let result = match self.slow_for(path) {
            Some(slow) => slow.read(path, limit),
            None => match &self.backing {
                Backing::Directory { fd, sysfs } => Regular::open(fd, path, ResolveFlags::IN_ROOT)
                    .and_then(|file| file.read_all(limit, *sysfs)),
                Backing::Tree(tree) => tree
                    .find(0, path, true)
                    .and_then(|id| tree.read_at(id, 0, limit.saturating_add(1))),
            },
        };
        let result = result
            .and_then(|bytes| bounded(bytes, limit))
            .and_then(|bytes| self.budget.spend(bytes.len()).map(|()| bytes));
        let bytes = self.done("read", path, result)?;
        self.note(path, || Node::File(bytes.clone()));
        Ok(bytes)
    }

    /// A file's text, without blanks and newlines at its end.
    pub fn text(&self, path: &str, limit: usize) -> Result<String, ReadError> {
        to_text(self.read(path, limit)?).map_err(|reason| ReadError {
            action: "read",
            path: path.to_owned(),
            reason,
        })
    }

    /// A small file's text as an observation.
    pub fn observe(&self, path: &str) -> Observed<String> {
        observe(self.text(path, SMALL))
    }

    /// The names in a directory, in order.
    pub fn list(&self, path: &str) -> Result<Vec<String>, ReadError> {
        let result = match self.slow_for(path) {
            Some(slow) => slow.list(path),
            None => match &self.backing {
                Backing::Directory { fd, .. } => files::list_directory(fd, path),
                Backing::Tree(tree) => tree.find(0, path, true).and_then(|id| names_of(tree, id)),
            },
        };
        let result = result.and_then(|names| {
            let bytes = names.iter().map(|name| name.len() + size_of::<String>()).sum();
            self.budget.spend(bytes).map(|()| names)
        });
        let mut names = self.done("list", path, result)?;
        names.sort_unstable();
        self.note(path, || Node::Directory(std::collections::BTreeMap::new()));
        Ok(names)
    }

    /// The kernel log in records of `/dev/kmsg`: on a live host what the ring holds now, elsewhere
    /// the recorded file. The oldest records are kept when there are more than `limit` bytes.
    pub fn kernel_log(&self, limit: usize) -> Result<Vec<u8>, ReadError> {
        let result = match &self.backing {
            Backing::Directory { fd, .. } => files::read_kernel_log(fd, limit),
            Backing::Tree(tree) => {
                tree.find(0, KMSG, true).and_then(|id| tree.read_at(id, 0, limit))
            }
        };
        let bytes = self.done("read", KMSG, result)?;
        self.note(KMSG, || Node::File(bytes.clone()));
        Ok(bytes)
    }

    /// The text of a link.
    pub fn link(&self, path: &str) -> Result<String, ReadError> {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        let result = match (self.slow_for(path), &self.backing) {
            (Some(slow), _) => slow.link(path),
            (None, Backing::Directory { fd, .. }) => {
                files::open_directory(fd, parent).and_then(|dir| files::link_at(&dir, name))
            }
            (None, Backing::Tree(tree)) => {
                tree.find(0, path, false).and_then(|id| link_of(tree, id))
            }
        };
        let result = result.and_then(|target| self.budget.spend(target.len()).map(|()| target));
        let target = self.done("follow", path, result)?;
        self.note(path, || Node::Link(target.clone()));
        Ok(target)
    }

    /// The number of what a path names, a last link not followed; another one once it was removed
    /// and made again. Recorded trees have none.
    pub fn inode(&self, path: &str) -> Result<u64, ReadError> {
        let (parent, name) = path.rsplit_once('/').unwrap_or(("", path));
        let result = match &self.backing {
            Backing::Directory { fd, .. } => files::open_directory(fd, parent).and_then(|dir| {
                rustix::fs::statat(&dir, name, AtFlags::SYMLINK_NOFOLLOW)
                    .map(|stat| stat.st_ino)
                    .map_err(Reason::Errno)
            }),
            Backing::Tree(_) => Err(Reason::NotRecorded),
        };
        result.map_err(|reason| ReadError { action: "look at", path: path.to_owned(), reason })
    }

    /// A directory to read several entries of, so that the path is walked once.
    pub fn directory(&self, path: &str) -> Result<Directory<'_>, ReadError> {
        let place = self.done("open", path, self.place(path))?;
        Ok(Directory { root: self, path: path.to_owned(), place })
    }

    /// The directory that a link leads to, by the link's own path and its text, which was read
    /// before: a short way to where the path leads, with fewer names to look up.
    pub fn directory_behind(&self, path: &str, target: &str) -> Result<Directory<'_>, ReadError> {
        match behind(path, target).map(|real| self.place(&real)) {
            Some(Ok(place)) => Ok(Directory { root: self, path: path.to_owned(), place }),
            Some(Err(_)) | None => self.directory(path),
        }
    }

    fn place(&self, path: &str) -> Result<Place, Reason> {
        match &self.backing {
            Backing::Directory { fd, .. } => files::open_directory(fd, path).map(Place::Open),
            Backing::Tree(tree) => tree.find(0, path, true).and_then(|id| match tree.node(id) {
                Some(Node::Directory(_)) => Ok(Place::Node(id)),
                Some(Node::Fails(errno)) => Err(Reason::Errno(*errno)),
                Some(Node::Hangs) => Err(Reason::NoAnswer),
                _ => Err(Reason::Errno(Errno::NOTDIR)),
            }),
        }
    }

    /// Whether a running kernel's sysfs is mounted below it, so that what is missing there does
    /// not exist; a copy may be partial.
    pub fn has_sysfs(&self) -> bool {
        matches!(self.backing, Backing::Directory { sysfs: Some(_), .. })
    }

    /// Whether looks at several places may run side by side: the order of a recording would
    /// depend on which came first, and a tree in memory gains nothing.
    pub fn is_shareable(&self) -> bool {
        self.recorder.is_none() && matches!(self.backing, Backing::Directory { .. })
    }

    /// Hands the lines of a file to `each` until it breaks off, without holding more than a piece
    /// of the file in memory; lines longer than [`SMALL`] are left out. An error if the file is
    /// longer than `limit`.
    pub fn lines(
        &self,
        path: &str,
        limit: usize,
        each: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<(), ReadError> {
        if self.recorder.is_some() || self.slow_for(path).is_some() {
            let bytes = self.read(path, limit)?;
            let mut lines = bytes.split(|byte| *byte == b'\n');
            let _stopped = lines.try_for_each(each);
            return Ok(());
        }
        let result = match &self.backing {
            Backing::Directory { fd, .. } => Regular::open(fd, path, ResolveFlags::IN_ROOT)
                .and_then(|file| files::lines(limit, &mut |place| file.read_on(place), each)),
            Backing::Tree(tree) => tree
                .find(0, path, true)
                .and_then(|id| tree.read_at(id, 0, limit.saturating_add(1)))
                .and_then(|bytes| bounded(bytes, limit))
                .map(|bytes| {
                    let mut lines = bytes.split(|byte| *byte == b'\n');
                    let _stopped = lines.try_for_each(each);
                }),
        };
        self.done("read", path, result)
    }
}

/// Whether reading an attribute can wait for a device's lock.
fn is_slow(attribute: &str) -> bool {
    SLOW_ATTRIBUTES.contains(&attribute)
}

fn to_text(bytes: Vec<u8>) -> Result<String, Reason> {
    let mut text = String::from_utf8(bytes).map_err(|_| Reason::NotText)?;
    text.truncate(text.trim_end().len());
    Ok(text)
}

fn bounded(bytes: Vec<u8>, limit: usize) -> Result<Vec<u8>, Reason> {
    if bytes.len() > limit { Err(Reason::TooLong { limit }) } else { Ok(bytes) }
}

fn names_of(tree: &Tree, id: NodeId) -> Result<Vec<String>, Reason> {
    match tree.node(id) {
        Some(Node::Directory(names)) => Ok(names.keys().cloned().collect()),
        Some(Node::Fails(errno)) => Err(Reason::Errno(*errno)),
        Some(Node::Hangs) => Err(Reason::NoAnswer),
        _ => Err(Reason::Errno(Errno::NOTDIR)),
    }
}

fn link_of(tree: &Tree, id: NodeId) -> Result<String, Reason> {
    match tree.node(id) {
        Some(Node::Link(target)) => Ok(target.clone()),
        Some(Node::Fails(errno)) => Err(Reason::Errno(*errno)),
        Some(Node::Hangs) => Err(Reason::NoAnswer),
        _ => Err(Reason::NotLink),
    }
}

/// Where a link leads, by its text alone; `None` if it climbs above the root or is no path.
fn behind(path: &str, target: &str) -> Option<String> {
    let (parent, _) = path.rsplit_once('/')?;
    let mut parts: Vec<&str> = if target.starts_with('/') {
        Vec::new()
    } else {
        parent.split('/').filter(|part| !part.is_empty()).collect()
    };
    for part in target.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            part => parts.push(part),
        }
    }
    Some(format!("/{}", parts.join("/")))
}

#[cfg(test)]
mod tests;
