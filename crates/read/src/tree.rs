//! A recorded host in memory: directories, files, links and failures.
//!
//! It answers as the kernel does below a root that cannot be left: links resolve inside it, `..`
//! stops at it, and a recorded failure is given back as the failure it was.

use std::collections::BTreeMap;

use rustix::io::Errno;

use crate::error::Reason;

/// Links followed in one look before it is called a loop (`MAXSYMLINKS` of the kernel).
const MOST_LINKS: usize = 40;

/// Number of a node; the root is 0.
pub type NodeId = usize;

/// A tree of recorded nodes.
#[derive(Clone, Debug)]
pub struct Tree {
    nodes: Vec<Node>,
}

/// One recorded node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// Directory: names and their nodes.
    Directory(BTreeMap<String, NodeId>),
    /// File with its whole content.
    File(Vec<u8>),
    /// File of which parts were read: size, and the parts by offset.
    Sparse {
        /// What `stat` said.
        size: u64,
        /// How many bytes the reader was allowed to see (64 of configuration space without
        /// privilege).
        readable: u64,
        /// Recorded parts: offset and bytes, ordered, apart.
        parts: Vec<(u64, Vec<u8>)>,
    },
    /// Symbolic link.
    Link(String),
    /// Every look fails so.
    Fails(Errno),
    /// Never answers.
    Hangs,
}

impl Default for Tree {
    fn default() -> Self {
        Self { nodes: vec![Node::Directory(BTreeMap::new())] }
    }
}

/// Why a node could not be added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AddError {
    /// Not absolute, or with `.`, `..` or an empty part.
    BadPath,
    /// A part of the path is a file or a link.
    NotADirectory,
    /// There is a node already.
    Twice,
}

impl Tree {
    /// Adds a node, and the directories above it.
    pub fn add(&mut self, path: &str, node: Node) -> Result<(), AddError> {
        let parts = plain_parts(path).ok_or(AddError::BadPath)?;
        let Some((name, above)) = parts.split_last() else { return Err(AddError::BadPath) };
        let mut at = 0;
        for part in above {
            at = self.child_directory(at, part)?;
        }
        let is_directory = matches!(node, Node::Directory(_));
        match self.children(at).and_then(|names| names.get(*name)) {
            // A directory may be named after something was put below it.
            Some(&there) if is_directory && self.children(there).is_some() => Ok(()),
            Some(_) => Err(AddError::Twice),
            None => {
                let id = self.nodes.len();
                self.nodes.push(node);
                self.insert_name(at, name, id)
            }
        }
    }

    /// Puts a node in place of what is there, or adds it.
    pub fn set(&mut self, path: &str, node: Node) -> Result<(), AddError> {
        let parts = plain_parts(path).ok_or(AddError::BadPath)?;
        let mut at = 0;
        for part in &parts {
            let Some(&next) = self.children(at).and_then(|names| names.get(*part)) else {
                return self.add(path, node);
            };
            at = next;
        }
        match self.nodes.get_mut(at) {
            Some(there) => {
                *there = node;
                Ok(())
            }
            None => Err(AddError::BadPath),
        }
    }

    /// Takes a name away (what hung below it is no longer reachable).
    pub fn remove(&mut self, path: &str) -> bool {
        let Some((above, name)) = path.rsplit_once('/') else { return false };
        let Some(parts) = (if above.is_empty() { Some(Vec::new()) } else { plain_parts(above) })
        else {
            return false;
        };
        let mut at = 0;
        for part in parts {
            match self.children(at).and_then(|names| names.get(part)) {
                Some(&next) => at = next,
                None => return false,
            }
        }
        match self.nodes.get_mut(at) {
            Some(Node::Directory(names)) => names.remove(name).is_some(),
            _ => false,
        }
    }

    fn child_directory(&mut self, at: NodeId, name: &str) -> Result<NodeId, AddError> {
        match self.children(at).and_then(|names| names.get(name)) {
            Some(&there) if self.children(there).is_some() => Ok(there),
            Some(_) => Err(AddError::NotADirectory),
            None => {
                let id = self.nodes.len();
                self.nodes.push(Node::Directory(BTreeMap::new()));
                self.insert_name(at, name, id)?;
                Ok(id)
            }
        }
    }

    fn insert_name(&mut self, at: NodeId, name: &str, id: NodeId) -> Result<(), AddError> {
        match self.nodes.get_mut(at) {
            Some(Node::Directory(names)) => {
                names.insert(name.to_owned(), id);
                Ok(())
            }
            _ => Err(AddError::NotADirectory),
        }
    }

    fn children(&self, at: NodeId) -> Option<&BTreeMap<String, NodeId>> {
        match self.nodes.get(at) {
            Some(Node::Directory(names)) => Some(names),
            _ => None,
        }
    }

    /// How many nodes there are.
    pub fn size(&self) -> usize {
        self.nodes.len()
    }

    /// The node at a number.
    pub fn node(&self, id: NodeId) -> Option<&Node> {
        self.nodes.get(id)
    }

    /// Finds a node from a starting directory, following links; the last one too if `follow`.
    pub fn find(&self, from: NodeId, path: &str, follow: bool) -> Result<NodeId, Reason> {
        let mut walk = Walk { stack: vec![0], links: 0 };
        if from != 0 && !path.starts_with('/') {
            walk.stack.push(from);
        }
        self.step_through(&mut walk, path, follow)?;
        Ok(walk.here())
    }

    fn step_through(&self, walk: &mut Walk, path: &str, follow: bool) -> Result<(), Reason> {
        if path.starts_with('/') {
            walk.stack.truncate(1);
        }
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        for (index, part) in parts.iter().enumerate() {
            match *part {
                "." => continue,
                ".." => {
                    if walk.stack.len() > 1 {
                        walk.stack.pop();
                    }
                    continue;
                }
                _ => {}
            }
            let next = match self.nodes.get(walk.here()) {
                Some(Node::Directory(names)) => {
                    *names.get(*part).ok_or(Reason::Errno(Errno::NOENT))?
                }
                Some(Node::Fails(errno)) => return Err(Reason::Errno(*errno)),
                Some(Node::Hangs) => return Err(Reason::NoAnswer),
                _ => return Err(Reason::Errno(Errno::NOTDIR)),
            };
            let last = index + 1 == parts.len();
            match self.nodes.get(next) {
                Some(Node::Link(target)) if !last || follow => {
                    walk.links += 1;
                    if walk.links > MOST_LINKS {
                        return Err(Reason::Errno(Errno::LOOP));
                    }
                    self.step_through(walk, target, true)?;
                }
                _ => walk.stack.push(next),
            }
        }
        Ok(())
    }

    /// Reads a part of a file.
    pub fn read_at(&self, id: NodeId, offset: u64, length: usize) -> Result<Vec<u8>, Reason> {
        match self.nodes.get(id) {
            Some(Node::File(bytes)) => {
                let start = usize::try_from(offset).unwrap_or(usize::MAX).min(bytes.len());
                let end = start.saturating_add(length).min(bytes.len());
                Ok(bytes.get(start..end).unwrap_or_default().to_vec())
            }
            Some(Node::Sparse { readable, parts, .. }) => {
                read_sparse(*readable, parts, offset, length)
            }
            Some(Node::Directory(_)) => Err(Reason::Errno(Errno::ISDIR)),
            Some(Node::Link(_)) => Err(Reason::Errno(Errno::LOOP)),
            Some(Node::Fails(errno)) => Err(Reason::Errno(*errno)),
            Some(Node::Hangs) => Err(Reason::NoAnswer),
            None => Err(Reason::Errno(Errno::NOENT)),
        }
    }
}

/// Position in the tree: the directories above, so that `..` cannot leave the root.
struct Walk {
    stack: Vec<NodeId>,
    links: usize,
}

impl Walk {
    fn here(&self) -> NodeId {
        self.stack.last().copied().unwrap_or(0)
    }
}

fn read_sparse(
    readable: u64,
    parts: &[(u64, Vec<u8>)],
    offset: u64,
    length: usize,
) -> Result<Vec<u8>, Reason> {
    let left = usize::try_from(readable.saturating_sub(offset)).unwrap_or(usize::MAX);
    let length = length.min(left);
    if length == 0 {
        return Ok(Vec::new());
    }
    let (start, bytes) =
        parts.iter().rev().find(|(start, _)| *start <= offset).ok_or(Reason::NotRecorded)?;
    let skip = usize::try_from(offset - start).unwrap_or(usize::MAX);
    let end = skip.checked_add(length).ok_or(Reason::NotRecorded)?;
    bytes.get(skip..end).map(<[u8]>::to_vec).ok_or(Reason::NotRecorded)
}

/// The parts of an absolute path without `.`, `..` and empty parts.
fn plain_parts(path: &str) -> Option<Vec<&str>> {
    let parts: Vec<&str> = path.strip_prefix('/')?.trim_end_matches('/').split('/').collect();
    let plain = parts
        .iter()
        .all(|part| !part.is_empty() && *part != "." && *part != ".." && !part.contains('\0'));
    plain.then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> Tree {
        let mut tree = Tree::default();
        let file = |text: &str| Node::File(text.as_bytes().to_vec());
        tree.add("/sys/devices/a/type", file("DMA\n")).unwrap();
        tree.add("/sys/bus/b", Node::Link("../devices/a".to_owned())).unwrap();
        tree.add("/sys/out", Node::Link("../../../../../sys/devices/a".to_owned())).unwrap();
        tree.add("/sys/absolute", Node::Link("/sys/devices/a".to_owned())).unwrap();
        tree.add("/sys/loop", Node::Link("loop".to_owned())).unwrap();
        tree.add("/sys/broken", Node::Link("nowhere".to_owned())).unwrap();
        tree.add("/sys/denied", Node::Fails(Errno::ACCESS)).unwrap();
        tree.add("/sys/mute", Node::Hangs).unwrap();
        let parts = vec![(0, vec![1, 2, 3, 4]), (8, vec![9, 10])];
        tree.add("/sys/config", Node::Sparse { size: 4096, readable: 64, parts }).unwrap();
        tree
    }

    #[track_caller]
    fn check(path: &str, expected: Result<&[u8], &str>) {
        let tree = tree();
        let seen = tree.find(0, path, true).and_then(|id| tree.read_at(id, 0, 4));
        assert_eq!(seen.as_deref().map_err(ToString::to_string), expected.map_err(str::to_owned));
    }

    #[test]
    fn links_resolve_inside() {
        check("/sys/bus/b/type", Ok(b"DMA\n"));
        check("/sys/out/type", Ok(b"DMA\n"));
        check("/sys/absolute/type", Ok(b"DMA\n"));
        check("/../../sys/devices/a/type", Ok(b"DMA\n"));
    }

    #[test]
    fn failures_come_back() {
        check("/sys/loop", Err("too many links, or a link where none may be"));
        check("/sys/broken", Err("no such file"));
        check("/sys/denied", Err("permission denied"));
        check("/sys/denied/below", Err("permission denied"));
        check("/sys/mute", Err("no answer within a second"));
        check("/sys/devices/a/type/below", Err("Not a directory (os error 20)"));
        check("/sys/config", Ok(&[1, 2, 3, 4]));
    }

    #[test]
    fn parts_that_were_not_recorded_are_unknown() {
        let tree = tree();
        let id = tree.find(0, "/sys/config", true).unwrap();
        assert_eq!(tree.read_at(id, 8, 2), Ok(vec![9, 10]));
        assert_eq!(tree.read_at(id, 8, 4), Err(Reason::NotRecorded));
        assert_eq!(tree.read_at(id, 20, 4), Err(Reason::NotRecorded));
        assert_eq!(tree.read_at(id, 64, 4), Ok(Vec::new()));
    }

    #[test]
    fn nothing_is_added_twice_or_below_a_file() {
        let mut tree = tree();
        assert_eq!(tree.add("/sys/mute", Node::Hangs), Err(AddError::Twice));
        assert_eq!(tree.add("/sys/mute/x", Node::Hangs), Err(AddError::NotADirectory));
        assert_eq!(tree.add("sys", Node::Hangs), Err(AddError::BadPath));
        assert_eq!(tree.add("/sys/../x", Node::Hangs), Err(AddError::BadPath));
        assert_eq!(tree.add("/", Node::Hangs), Err(AddError::BadPath));
    }
}
