//! The root of a host, and the only place that opens a host's files.
//!
//! A root is a directory that stands for `/` (on a live host, `/` itself) or a recorded tree in
//! memory. Nothing can leave it: directories are opened with `openat2` and `RESOLVE_IN_ROOT`, so
//! absolute links and `..` resolve inside. Everything is opened read-only, and only regular files
//! are read.

mod budget;
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

/// An open directory of a host.
#[derive(Debug)]
pub struct Directory<'root> {
    root: &'root Root,
    path: String,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Open(OwnedFd),
    Node(NodeId),
}

impl<'root> Directory<'root> {
    /// Its path below the root.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The directory that one of its links leads to, as [`Root::directory_behind`] gives it.
    pub fn directory_behind(&self, name: &str, target: &str) -> Result<Self, ReadError> {
        let root: &'root Root = self.root;
        root.directory_behind(&self.path_of(name), target)
    }

    /// A directory right below it that is no link, to be called `path`; `None` if there is none.
    pub fn inner(&self, name: &str, path: String) -> Option<Self> {
        let place = match (&self.place, &self.root.backing) {
            (Place::Open(fd), _) => Place::Open(files::open_inner(fd, name).ok()?),
            (Place::Node(id), Backing::Tree(tree)) => {
                let inner = tree.find(*id, name, false).ok()?;
                matches!(tree.node(inner), Some(Node::Directory(_)))
                    .then_some(Place::Node(inner))?
            }
            (Place::Node(_), Backing::Directory { .. }) => return None,
        };
        Some(Self { root: self.root, path, place })
    }

    /// The path of one of its entries.
    pub fn path_of(&self, name: &str) -> String {
        format!("{}/{name}", self.path)
    }

    /// A file's bytes; an error if it is longer than `limit`.
    pub fn read(&self, name: &str, limit: usize) -> Result<Vec<u8>, ReadError> {
        if is_slow(name) && self.root.slow.is_some() {
            return self.root.read(&self.path_of(name), limit);
        }
        let result = match (&self.place, &self.root.backing) {
            (Place::Open(fd), Backing::Directory { sysfs, .. }) => {
                Regular::open(fd, name, ResolveFlags::BENEATH)
                    .and_then(|file| file.read_all(limit, *sysfs))
            }
            (Place::Node(id), Backing::Tree(tree)) => tree
                .find(*id, name, true)
                .and_then(|file| tree.read_at(file, 0, limit.saturating_add(1))),
            (Place::Open(_), Backing::Tree(_)) | (Place::Node(_), Backing::Directory { .. }) => {
                Err(Reason::NotRecorded)
            }
        };
        let result = result
            .and_then(|bytes| bounded(bytes, limit))
            .and_then(|bytes| self.root.budget.spend(bytes.len()).map(|()| bytes));
        let path = || self.path_of(name);
        let bytes = match result {
            Ok(bytes) => bytes,
            Err(reason) => return self.root.done("read", &path(), Err(reason)),
        };
        if self.root.recorder.is_some() {
            self.root.note(&path(), || Node::File(bytes.clone()));
        }
        Ok(bytes)
    }

    /// A part of a file; shorter than asked for at its end.
    pub fn read_at(&self, name: &str, offset: u64, length: usize) -> Result<Vec<u8>, ReadError> {
        self.open_part(name).and_then(|part| part.read_at(offset, length))
    }

    /// A file to read parts of.
    pub fn open_part(&self, name: &str) -> Result<Part<'_>, ReadError> {
        let place = match (&self.place, &self.root.backing) {
            (Place::Open(fd), _) => {
                Regular::open(fd, name, ResolveFlags::BENEATH).map(PartPlace::Open)
            }
            (Place::Node(id), Backing::Tree(tree)) => {
                tree.find(*id, name, true).map(PartPlace::Node)
            }
            (Place::Node(_), Backing::Directory { .. }) => Err(Reason::NotRecorded),
        };
        let path = self.path_of(name);
        let place = self.root.done("open", &path, place)?;
        Ok(Part { root: self.root, path, place })
    }

    /// A small file's text, without the newline at its end.
    pub fn text(&self, name: &str) -> Result<String, ReadError> {
        self.text_within(name, SMALL)
    }

    /// A file's text of at most `limit` bytes, without blanks and newlines at its end.
    pub fn text_within(&self, name: &str, limit: usize) -> Result<String, ReadError> {
        to_text(self.read(name, limit)?).map_err(|reason| ReadError {
            action: "read",
            path: self.path_of(name),
            reason,
        })
    }

    /// A small file's text as an observation.
    pub fn observe(&self, name: &str) -> Observed<String> {
        observe(self.text(name))
    }

    /// The last part of what a link names, as an observation.
    pub fn link_name(&self, name: &str) -> Observed<String> {
        self.link_text(name).map(|target| target.rsplit('/').next().unwrap_or_default().to_owned())
    }

    /// What a link names, as an observation.
    pub fn link_text(&self, name: &str) -> Observed<String> {
        let result = match (&self.place, &self.root.backing) {
            (Place::Open(fd), _) => files::link_at(fd, name),
            (Place::Node(id), Backing::Tree(tree)) => {
                tree.find(*id, name, false).and_then(|link| link_of(tree, link))
            }
            (Place::Node(_), Backing::Directory { .. }) => Err(Reason::NotRecorded),
        };
        let result =
            result.and_then(|target| self.root.budget.spend(target.len()).map(|()| target));
        match result {
            Ok(target) => {
                if self.root.recorder.is_some() {
                    self.root.note(&self.path_of(name), || Node::Link(target.clone()));
                }
                Observed::Known(target)
            }
            Err(reason) => match self.root.done::<()>("follow", &self.path_of(name), Err(reason)) {
                Err(error) => error.observed(),
                Ok(()) => Observed::Absent,
            },
        }
    }
}

/// An open file of which parts are read.
#[derive(Debug)]
pub struct Part<'root> {
    root: &'root Root,
    path: String,
    place: PartPlace,
}

#[derive(Debug)]
enum PartPlace {
    Open(Regular),
    Node(NodeId),
}

impl Part<'_> {
    /// Up to `length` bytes at an offset; shorter at the end of what may be read.
    pub fn read_at(&self, offset: u64, length: usize) -> Result<Vec<u8>, ReadError> {
        let result = match (&self.place, &self.root.backing) {
            (PartPlace::Open(file), _) => file.read_at(offset, length),
            (PartPlace::Node(id), Backing::Tree(tree)) => tree.read_at(*id, offset, length),
            (PartPlace::Node(_), Backing::Directory { .. }) => Err(Reason::NotRecorded),
        };
        let bytes = self.root.done("read", &self.path, result)?;
        if self.root.recorder.is_some() {
            // Only configuration space is read in parts: 4096 bytes at most. That there are fewer
            // (256 of a conventional function, 64 without privilege) is learnt where a read ends
            // early. Until then more seems readable than is, which gives no wrong answer: what no
            // part holds is "not recorded", and never zeros.
            let end = offset.saturating_add(u64::try_from(bytes.len()).unwrap_or(0));
            let readable = if bytes.len() < length { end } else { 4096 };
            self.root.note(&self.path, || Node::Sparse {
                size: 4096,
                readable,
                parts: if bytes.is_empty() { Vec::new() } else { vec![(offset, bytes.clone())] },
            });
        }
        Ok(bytes)
    }
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

/// Whether a path names something, without following a last link.
pub fn exists(directory: &Directory<'_>, name: &str) -> bool {
    match (&directory.place, &directory.root.backing) {
        (Place::Open(fd), _) => rustix::fs::statat(fd, name, AtFlags::SYMLINK_NOFOLLOW).is_ok(),
        (Place::Node(id), Backing::Tree(tree)) => tree.find(*id, name, false).is_ok(),
        (Place::Node(_), Backing::Directory { .. }) => false,
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "fixtures on disk")]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    /// A tree on disk that tries to mislead its reader.
    fn hostile() -> tempfile::TempDir {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        std::fs::create_dir(at("sys")).unwrap();
        std::fs::write(at("sys/type"), "DMA-FQ\n").unwrap();
        std::fs::write(at("sys/latin"), b"caf\xe9\n").unwrap();
        std::fs::write(at("sys/long"), vec![b'x'; SMALL + 1]).unwrap();
        std::fs::write(at("sys/empty"), "").unwrap();
        symlink("/sys/type", at("sys/absolute")).unwrap();
        symlink("/etc/hostname", at("sys/outside")).unwrap();
        symlink("../../../../../../etc/hostname", at("sys/climbing")).unwrap();
        symlink("circle", at("sys/circle")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, at("sys/pipe"), Mode::RUSR | Mode::WUSR).unwrap();
        place
    }

    #[track_caller]
    fn check(path: &str, expected: &str) {
        let place = hostile();
        let root = Root::open(place.path()).unwrap();
        assert_eq!(root.observe(path).to_string(), expected);
        // The same through an open directory.
        let (parent, name) = path.rsplit_once('/').unwrap();
        let through = match root.directory(parent) {
            Ok(directory) if !path.contains("absolute") => directory.observe(name).to_string(),
            _ => expected.to_owned(),
        };
        // Links that lead out are refused there instead of resolving inside.
        assert!(through == expected || through == "unknown (leads out of the host's root)");
    }

    struct Locked;

    impl SlowSource for Locked {
        fn read(&self, _path: &str, _limit: usize) -> Result<Vec<u8>, Reason> {
            Err(Reason::NoAnswer)
        }

        fn list(&self, _path: &str) -> Result<Vec<String>, Reason> {
            Err(Reason::NoAnswer)
        }

        fn link(&self, _path: &str) -> Result<String, Reason> {
            Err(Reason::NoAnswer)
        }
    }

    /// Only what takes a device's lock is asked of a child, by either way.
    #[test]
    fn an_attribute_behind_a_lock_is_never_read_here() {
        let place = tempfile::tempdir().unwrap();
        let device = place.path().join("sys/bus/pci/devices/0000:01:00.0");
        std::fs::create_dir_all(&device).unwrap();
        for name in ["driver_override", "vendor"] {
            std::fs::write(device.join(name), "0x10de\n").unwrap();
        }
        let directory = "/sys/bus/pci/devices/0000:01:00.0";
        let both = |root: &Root, name: &str| {
            let through = root.directory(directory).unwrap().observe(name).to_string();
            assert_eq!(root.observe(&format!("{directory}/{name}")).to_string(), through);
            through
        };
        let root = Root::open(place.path()).unwrap();
        assert_eq!(both(&root, "driver_override"), "0x10de");
        let root = root.with_slow(Box::new(Locked));
        assert_eq!(both(&root, "vendor"), "0x10de");
        let unknown = both(&root, "driver_override");
        assert!(unknown.starts_with("unknown"), "{unknown}");
    }

    #[test]
    fn a_hostile_tree_gives_values_or_reasons() {
        check("/sys/type", "DMA-FQ");
        check("/sys/empty", "");
        check("/sys/absolute", "DMA-FQ");
        check("/sys/outside", "none");
        check("/sys/climbing", "none");
        check("/sys/missing", "none");
        check("/sys/latin", "unknown (not text)");
        check("/sys/long", "unknown (longer than 65536 bytes)");
        check("/sys/circle", "unknown (too many links, or a link where none may be)");
        check("/sys/pipe", "unknown (not a regular file)");
    }

    #[test]
    fn endless_and_special_files_are_refused() {
        let root = Root::open(Path::new("/")).unwrap();
        assert_eq!(root.observe("/dev/zero").to_string(), "unknown (not a regular file)");
    }

    #[track_caller]
    fn check_behind(path: &str, target: &str, expected: Option<&str>) {
        assert_eq!(behind(path, target).as_deref(), expected);
    }

    #[test]
    fn where_links_lead() {
        let path = "/sys/bus/pci/devices/0000:01:00.0";
        let target = "../../../devices/pci0000:00/0000:00:01.1/0000:01:00.0";
        let real = "/sys/devices/pci0000:00/0000:00:01.1/0000:01:00.0";
        check_behind(path, target, Some(real));
        check_behind(path, "/a/./b//c", Some("/a/b/c"));
        check_behind(path, "../../../../..", None);
        check_behind(path, "", Some("/sys/bus/pci/devices"));
    }
}
