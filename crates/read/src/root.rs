//! The root of a host, and the only place that opens a host's files.
//!
//! A root is a directory that stands for `/` (on a live host, `/` itself) or a recorded tree in
//! memory. Nothing can leave it: directories are opened with `openat2` and `RESOLVE_IN_ROOT`, so
//! absolute links and `..` resolve inside. Everything is opened read-only, and only regular files
//! are read.

use std::fmt;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::{Arc, Mutex};

use peerway_core::observed::Observed;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RawDir, ResolveFlags};
use rustix::io::Errno;

use crate::error::{ReadError, Reason, observe};
use crate::tree::{Node, NodeId, Tree};

/// Attributes and small files are never longer than this.
pub const SMALL: usize = 64 << 10;

/// Files such as `/proc/cpuinfo` of a large host stay below this.
pub const LARGE: usize = 16 << 20;

/// The kernel log's device, the only file that is read although it is no regular one.
pub const KMSG: &str = "/dev/kmsg";

/// Longest record of the kernel log (`CONSOLE_EXT_LOG_MAX`, `PRINTKRB_RECORD_MAX`).
const KMSG_RECORD: usize = 8 << 10;

/// Device number of `/dev/kmsg` (`drivers/char/mem.c`): memory devices, minor 11.
const KMSG_DEVICE: (u32, u32) = (1, 11);

/// Entries of one directory: more than any host has, and a bound for hostile trees.
const MOST_NAMES: usize = 1 << 20;

/// Reads for paths that can block for ever; answered by a child with a deadline.
pub trait SlowSource: Send + Sync {
    /// The content of a file, at most `limit` bytes.
    fn read(&self, path: &str, limit: usize) -> Result<Vec<u8>, Reason>;
    /// The names in a directory.
    fn list(&self, path: &str) -> Result<Vec<String>, Reason>;
    /// What a link names.
    fn link(&self, path: &str) -> Result<String, Reason>;
}

/// Trees that can block on a live host: Proxmox's cluster file system is FUSE, and the NVIDIA
/// driver's files wait for a hung GPU.
pub const SLOW_TREES: [&str; 2] = ["/etc/pve", "/proc/driver/nvidia"];

/// A host's file tree, read-only.
pub struct Root {
    backing: Backing,
    slow: Option<Box<dyn SlowSource>>,
    recorder: Option<Mutex<Recording>>,
}

enum Backing {
    Directory(OwnedFd),
    Tree(Arc<Tree>),
}

/// What was read, as nodes by path: the material of a capture.
#[derive(Debug, Default)]
pub struct Recording {
    nodes: std::collections::BTreeMap<String, Node>,
}

impl Recording {
    /// The nodes by path, in order.
    pub fn nodes(&self) -> &std::collections::BTreeMap<String, Node> {
        &self.nodes
    }

    fn note(&mut self, path: &str, node: Node) {
        match (self.nodes.get_mut(path), node) {
            (
                Some(Node::Sparse { parts, readable, .. }),
                Node::Sparse { parts: more, readable: seen, .. },
            ) => {
                // A read that came back short tells how much may be read at all.
                *readable = (*readable).min(seen);
                for part in more {
                    insert_part(parts, part);
                }
            }
            (Some(Node::Directory(_)) | None, node) => {
                self.nodes.insert(path.to_owned(), node);
            }
            (Some(_), _) => {}
        }
    }
}

/// Adds a part that was read, joining it with those it overlaps or touches; where two reads of one
/// byte disagree, the later one counts.
fn insert_part(parts: &mut Vec<(u64, Vec<u8>)>, (start, bytes): (u64, Vec<u8>)) {
    let length = |bytes: &[u8]| u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    let end = start.saturating_add(length(&bytes));
    let mut joined: std::collections::BTreeMap<u64, u8> = (start..end).zip(bytes).collect();
    let mut apart = Vec::new();
    for (other, content) in parts.drain(..) {
        let other_end = other.saturating_add(length(&content));
        if other_end < start || other > end {
            apart.push((other, content));
        } else {
            for (at, byte) in (other..other_end).zip(content) {
                joined.entry(at).or_insert(byte);
            }
        }
    }
    if let Some(first) = joined.keys().next().copied() {
        apart.push((first, joined.into_values().collect()));
    }
    apart.sort_by_key(|(start, _)| *start);
    *parts = apart;
}

impl fmt::Debug for Root {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.backing {
            Backing::Directory(fd) => write!(out, "Root({fd:?})"),
            Backing::Tree(_) => out.write_str("Root(recorded)"),
        }
    }
}

impl Root {
    /// A directory that stands for `/`.
    pub fn open(path: &Path) -> Result<Self, ReadError> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(fd) => Ok(Self { backing: Backing::Directory(fd), slow: None, recorder: None }),
            Err(errno) => Err(ReadError {
                action: "open",
                path: path.display().to_string(),
                reason: Reason::Errno(errno),
            }),
        }
    }

    /// A recorded tree.
    pub fn recorded(tree: Arc<Tree>) -> Self {
        Self { backing: Backing::Tree(tree), slow: None, recorder: None }
    }

    /// Sends reads below [`SLOW_TREES`] to a source that cannot hang this process.
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
        SLOW_TREES.iter().any(|tree| below(tree)).then_some(slow)
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
                Backing::Directory(fd) => open_file(fd, path, ResolveFlags::IN_ROOT)
                    .and_then(|file| read_all(&file, limit)),
                Backing::Tree(tree) => tree
                    .find(0, path, true)
                    .and_then(|id| tree.read_at(id, 0, limit.saturating_add(1))),
            },
        };
        let result = result.and_then(|bytes| bounded(bytes, limit));
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
                Backing::Directory(fd) => list_directory(fd, path),
                Backing::Tree(tree) => tree.find(0, path, true).and_then(|id| names_of(tree, id)),
            },
        };
        let mut names = self.done("list", path, result)?;
        names.sort_unstable();
        self.note(path, || Node::Directory(std::collections::BTreeMap::new()));
        Ok(names)
    }

    /// The kernel log in records of `/dev/kmsg`: on a live host what the ring holds now, elsewhere
    /// the recorded file. The oldest records are kept when there are more than `limit` bytes.
    pub fn kernel_log(&self, limit: usize) -> Result<Vec<u8>, ReadError> {
        let result = match &self.backing {
            Backing::Directory(fd) => read_kernel_log(fd, limit),
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
            (None, Backing::Directory(fd)) => {
                open_directory(fd, parent).and_then(|dir| link_at(&dir, name))
            }
            (None, Backing::Tree(tree)) => {
                tree.find(0, path, false).and_then(|id| link_of(tree, id))
            }
        };
        let target = self.done("follow", path, result)?;
        self.note(path, || Node::Link(target.clone()));
        Ok(target)
    }

    /// A directory to read several entries of, so that the path is walked once.
    pub fn directory(&self, path: &str) -> Result<Directory<'_>, ReadError> {
        let place = match &self.backing {
            Backing::Directory(fd) => open_directory(fd, path).map(Place::Open),
            Backing::Tree(tree) => tree.find(0, path, true).and_then(|id| match tree.node(id) {
                Some(Node::Directory(_)) => Ok(Place::Node(id)),
                Some(Node::Fails(errno)) => Err(Reason::Errno(*errno)),
                Some(Node::Hangs) => Err(Reason::NoAnswer),
                _ => Err(Reason::Errno(Errno::NOTDIR)),
            }),
        };
        let place = self.done("open", path, place)?;
        Ok(Directory { root: self, path: path.to_owned(), place })
    }
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

impl Directory<'_> {
    /// Its path below the root.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The path of one of its entries.
    pub fn path_of(&self, name: &str) -> String {
        format!("{}/{name}", self.path)
    }

    /// A file's bytes; an error if it is longer than `limit`.
    pub fn read(&self, name: &str, limit: usize) -> Result<Vec<u8>, ReadError> {
        let result = match (&self.place, &self.root.backing) {
            (Place::Open(fd), _) => {
                open_file(fd, name, ResolveFlags::BENEATH).and_then(|file| read_all(&file, limit))
            }
            (Place::Node(id), Backing::Tree(tree)) => tree
                .find(*id, name, true)
                .and_then(|file| tree.read_at(file, 0, limit.saturating_add(1))),
            (Place::Node(_), Backing::Directory(_)) => Err(Reason::NotRecorded),
        };
        let result = result.and_then(|bytes| bounded(bytes, limit));
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
            (Place::Open(fd), _) => open_file(fd, name, ResolveFlags::BENEATH).map(Place::Open),
            (Place::Node(id), Backing::Tree(tree)) => tree.find(*id, name, true).map(Place::Node),
            (Place::Node(_), Backing::Directory(_)) => Err(Reason::NotRecorded),
        };
        let path = self.path_of(name);
        let place = self.root.done("open", &path, place)?;
        Ok(Part { root: self.root, path, place })
    }

    /// A small file's text, without the newline at its end.
    pub fn text(&self, name: &str) -> Result<String, ReadError> {
        to_text(self.read(name, SMALL)?).map_err(|reason| ReadError {
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
            (Place::Open(fd), _) => link_at(fd, name),
            (Place::Node(id), Backing::Tree(tree)) => {
                tree.find(*id, name, false).and_then(|link| link_of(tree, link))
            }
            (Place::Node(_), Backing::Directory(_)) => Err(Reason::NotRecorded),
        };
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
    place: Place,
}

impl Part<'_> {
    /// Up to `length` bytes at an offset; shorter at the end of what may be read.
    pub fn read_at(&self, offset: u64, length: usize) -> Result<Vec<u8>, ReadError> {
        let result = match (&self.place, &self.root.backing) {
            (Place::Open(fd), _) => pread(fd, offset, length),
            (Place::Node(id), Backing::Tree(tree)) => tree.read_at(*id, offset, length),
            (Place::Node(_), Backing::Directory(_)) => Err(Reason::NotRecorded),
        };
        let bytes = self.root.done("read", &self.path, result)?;
        if self.root.recorder.is_some() {
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
        _ => Err(Reason::Errno(Errno::INVAL)),
    }
}

/// Relative to the root: `openat2` takes absolute paths as such only below `RESOLVE_IN_ROOT`.
fn relative(path: &str) -> &str {
    match path.trim_start_matches('/') {
        "" => ".",
        rest => rest,
    }
}

fn open_file(fd: &OwnedFd, path: &str, resolve: ResolveFlags) -> Result<OwnedFd, Reason> {
    // NONBLOCK: a named pipe in a hostile tree must not hold the open until a writer comes.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let resolve = resolve | ResolveFlags::NO_MAGICLINKS;
    let file = retry(|| rustix::fs::openat2(fd, relative(path), flags, Mode::empty(), resolve))?;
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&file).map_err(Reason::Errno)?.st_mode);
    match kind {
        FileType::RegularFile => Ok(file),
        FileType::Directory => Err(Reason::Errno(Errno::ISDIR)),
        _ => Err(Reason::NotRegular),
    }
}

fn open_directory(fd: &OwnedFd, path: &str) -> Result<OwnedFd, Reason> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    retry(|| rustix::fs::openat2(fd, relative(path), flags, Mode::empty(), resolve))
}

/// `openat2` may answer `EAGAIN` when a rename raced with the walk; a few tries settle it.
fn retry(mut open: impl FnMut() -> Result<OwnedFd, Errno>) -> Result<OwnedFd, Reason> {
    for _ in 0..8 {
        match open() {
            Err(Errno::AGAIN | Errno::INTR) => {}
            other => return other.map_err(Reason::Errno),
        }
    }
    Err(Reason::Errno(Errno::AGAIN))
}

/// Reads to the end, or one byte past the limit so that the caller can tell.
fn read_all(file: &OwnedFd, limit: usize) -> Result<Vec<u8>, Reason> {
    // Attributes fit the first buffer: one call for the content, one for the end.
    let mut bytes = Vec::with_capacity(4096.min(limit.saturating_add(1)));
    loop {
        if bytes.len() > limit {
            return Err(Reason::TooLong { limit });
        }
        if bytes.capacity() == bytes.len() {
            bytes.reserve(bytes.len().clamp(4096, 1 << 20));
        }
        match rustix::io::read(file, rustix::buffer::spare_capacity(&mut bytes)) {
            Ok(0) => return Ok(bytes),
            Ok(_) => {}
            Err(Errno::INTR) => {}
            Err(errno) => return Err(Reason::Errno(errno)),
        }
    }
}

/// Reads record by record until there is none left; the descriptor does not wait.
fn read_kernel_log(root: &OwnedFd, limit: usize) -> Result<Vec<u8>, Reason> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let file = retry(|| rustix::fs::openat2(root, relative(KMSG), flags, Mode::empty(), resolve))?;
    let state = rustix::fs::fstat(&file).map_err(Reason::Errno)?;
    match FileType::from_raw_mode(state.st_mode) {
        FileType::RegularFile => {
            let mut bytes =
                read_all(&file, limit.saturating_sub(1)).or_else(|reason| match reason {
                    Reason::TooLong { .. } => pread(&file, 0, limit),
                    other => Err(other),
                })?;
            bytes.truncate(limit);
            return Ok(bytes);
        }
        FileType::CharacterDevice => {}
        _ => return Err(Reason::NotRegular),
    }
    let device = (rustix::fs::major(state.st_rdev), rustix::fs::minor(state.st_rdev));
    if device != KMSG_DEVICE {
        return Err(Reason::NotRegular);
    }
    let mut bytes: Vec<u8> = Vec::new();
    while bytes.len() < limit {
        bytes.reserve(KMSG_RECORD);
        match rustix::io::read(&file, rustix::buffer::spare_capacity(&mut bytes)) {
            Ok(0) | Err(Errno::AGAIN) => break,
            // EPIPE: records were overwritten under the reader; the next read goes on behind them.
            Ok(_) | Err(Errno::INTR | Errno::PIPE) => {}
            Err(errno) => return Err(Reason::Errno(errno)),
        }
    }
    Ok(bytes)
}

fn pread(file: &OwnedFd, offset: u64, length: usize) -> Result<Vec<u8>, Reason> {
    let mut bytes = Vec::with_capacity(length);
    loop {
        match rustix::io::pread(file, rustix::buffer::spare_capacity(&mut bytes), offset) {
            Ok(_) => break,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(Reason::Errno(errno)),
        }
    }
    bytes.truncate(length);
    Ok(bytes)
}

fn list_directory(fd: &OwnedFd, path: &str) -> Result<Vec<String>, Reason> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let directory =
        retry(|| rustix::fs::openat2(fd, relative(path), flags, Mode::empty(), resolve))?;
    let mut buffer = Vec::with_capacity(32 << 10);
    let mut entries = RawDir::new(&directory, buffer.spare_capacity_mut());
    let mut names = Vec::new();
    while let Some(entry) = entries.next() {
        let entry = entry.map_err(Reason::Errno)?;
        let name = entry.file_name().to_bytes();
        if name == b"." || name == b".." {
            continue;
        }
        // Names that are no text cannot name anything that this program looks for.
        if let Ok(name) = std::str::from_utf8(name) {
            names.push(name.to_owned());
        }
        if names.len() > MOST_NAMES {
            return Err(Reason::TooLong { limit: MOST_NAMES });
        }
    }
    Ok(names)
}

fn link_at(fd: &OwnedFd, name: &str) -> Result<String, Reason> {
    let target = rustix::fs::readlinkat(fd, name, Vec::new()).map_err(Reason::Errno)?;
    target.into_string().map_err(|_| Reason::NotText)
}

/// Whether a path names something, without following a last link.
pub fn exists(directory: &Directory<'_>, name: &str) -> bool {
    match (&directory.place, &directory.root.backing) {
        (Place::Open(fd), _) => rustix::fs::statat(fd, name, AtFlags::SYMLINK_NOFOLLOW).is_ok(),
        (Place::Node(id), Backing::Tree(tree)) => tree.find(*id, name, false).is_ok(),
        (Place::Node(_), Backing::Directory(_)) => false,
    }
}

#[cfg(test)]
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

    #[test]
    fn recorded_parts_join() {
        let mut parts = Vec::new();
        insert_part(&mut parts, (0, vec![1, 2, 3, 4]));
        insert_part(&mut parts, (8, vec![9, 9]));
        insert_part(&mut parts, (2, vec![3, 4, 5, 6]));
        assert_eq!(parts, vec![(0, vec![1, 2, 3, 4, 5, 6]), (8, vec![9, 9])]);
        insert_part(&mut parts, (6, vec![7, 8]));
        assert_eq!(parts, vec![(0, vec![1, 2, 3, 4, 5, 6, 7, 8, 9, 9])]);
    }
}
