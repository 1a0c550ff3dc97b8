//! Files of a host under construction.

use std::fmt::Display;

use peerway_read::host_file::Writer;
use peerway_read::tree::{AddError, Node, NodeId, Tree};
use thiserror::Error;

/// Why a host could not be built.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum BuildError {
    /// Two parts of the description ask for the same file.
    #[error("cannot build the host: {path:?} is described twice")]
    Twice {
        /// The file.
        path: String,
    },
    /// A path that cannot be a file of a host.
    #[error("cannot build the host: {path:?} is no place for a file")]
    BadPath {
        /// The file.
        path: String,
    },
    /// A part of a switch or a bus that does not exist.
    #[error("cannot build the host: {what}")]
    Shape {
        /// What does not fit.
        what: String,
    },
    /// A checked-in host file that does not parse.
    #[error("cannot read the built-in host: {0}")]
    Fixture(#[from] peerway_read::host_file::HostFileError),
}

/// A tree that remembers the first thing that went wrong.
#[derive(Debug, Default)]
pub(super) struct Files {
    tree: Tree,
    error: Option<BuildError>,
}

impl Files {
    /// An attribute or a text file: a newline is put at its end.
    pub(super) fn line(&mut self, path: &str, value: impl Display) {
        self.node(path, Node::File(format!("{value}\n").into_bytes()));
    }

    /// A file with exactly this text.
    pub(super) fn text(&mut self, path: &str, text: impl Into<String>) {
        self.node(path, Node::File(text.into().into_bytes()));
    }

    pub(super) fn link(&mut self, path: &str, target: impl Into<String>) {
        self.node(path, Node::Link(target.into()));
    }

    pub(super) fn directory(&mut self, path: &str) {
        self.node(path, Node::Directory(std::collections::BTreeMap::new()));
    }

    pub(super) fn node(&mut self, path: &str, node: Node) {
        let path_text = || path.to_owned();
        if let Err(error) = self.tree.add(path, node) {
            self.error.get_or_insert(match error {
                AddError::Twice => BuildError::Twice { path: path_text() },
                AddError::BadPath | AddError::NotADirectory => {
                    BuildError::BadPath { path: path_text() }
                }
            });
        }
    }

    pub(super) fn finish(self) -> Result<Tree, BuildError> {
        match self.error {
            Some(error) => Err(error),
            None => Ok(self.tree),
        }
    }
}

/// Calls `visit` with every node of a tree and its path, in order; directories first.
pub fn walk(tree: &Tree, visit: &mut impl FnMut(&str, &Node)) {
    walk_below(tree, 0, "", visit);
}

fn walk_below(tree: &Tree, id: NodeId, path: &str, visit: &mut impl FnMut(&str, &Node)) {
    let Some(node) = tree.node(id) else { return };
    if !path.is_empty() {
        visit(path, node);
    }
    if let Node::Directory(names) = node {
        for (name, child) in names {
            walk_below(tree, *child, &format!("{path}/{name}"), visit);
        }
    }
}

/// A tree as the text of a `.host` file. Directories are named only where they are empty.
pub fn to_host_file(comment: &str, tree: &Tree) -> String {
    let mut writer = Writer::new(comment);
    walk(tree, &mut |path, node| match node {
        Node::Directory(names) if !names.is_empty() => {}
        _ => writer.entry(path, node),
    });
    writer.finish()
}

/// A relative link from a directory to another place, both absolute.
pub(super) fn relative(from_directory: &str, to: &str) -> String {
    let from: Vec<&str> = from_directory.split('/').filter(|part| !part.is_empty()).collect();
    let to: Vec<&str> = to.split('/').filter(|part| !part.is_empty()).collect();
    let common = from.iter().zip(&to).take_while(|(a, b)| a == b).count();
    let mut parts = vec![".."; from.len() - common];
    parts.extend(to.iter().skip(common));
    parts.join("/")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(from: &str, to: &str, expected: &str) {
        assert_eq!(relative(from, to), expected);
    }

    #[test]
    fn links_are_relative_as_in_sysfs() {
        check("/sys/bus/pci/devices", "/sys/devices/a/b", "../../../devices/a/b");
        check("/sys/devices/a", "/sys/devices/a/c/d", "c/d");
        check("/sys/devices/a/b", "/sys/kernel/x", "../../../kernel/x");
    }

    #[test]
    fn the_first_error_is_kept() {
        let mut files = Files::default();
        files.line("/a", 1);
        files.line("/a", 2);
        files.line("/a/b", 3);
        let error = files.finish().map(|_| ());
        assert_eq!(error, Err(BuildError::Twice { path: "/a".to_owned() }));
    }
}
