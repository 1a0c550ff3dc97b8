//! An open directory of a host, and files in it of which parts are read.

use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, ResolveFlags};

use super::files::Regular;
use super::{Backing, Root, SMALL, bounded, files, is_slow, link_of, to_text};
use crate::error::{ReadError, Reason, observe};
use crate::tree::{Node, NodeId};
use peerway_core::observed::Observed;

/// An open directory of a host.
#[derive(Debug)]
pub struct Directory<'root> {
    pub(super) root: &'root Root,
    pub(super) path: String,
    pub(super) place: Place,
}

#[derive(Debug)]
pub(super) enum Place {
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

/// Whether a path names something, without following a last link.
pub fn exists(directory: &Directory<'_>, name: &str) -> bool {
    match (&directory.place, &directory.root.backing) {
        (Place::Open(fd), _) => rustix::fs::statat(fd, name, AtFlags::SYMLINK_NOFOLLOW).is_ok(),
        (Place::Node(id), Backing::Tree(tree)) => tree.find(*id, name, false).is_ok(),
        (Place::Node(_), Backing::Directory { .. }) => false,
    }
}
