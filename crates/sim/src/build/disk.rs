//! Writes a rendered host to a directory, for programs that read files.

use std::path::Path;

use peerway_read::tree::{Node, Tree};

use super::files::walk;

/// Writes a tree below a directory. Parts of configuration space that were not recorded become
/// zeros; places that fail when read are left out, since a directory cannot express them.
#[expect(clippy::disallowed_methods, reason = "writes a new directory of fixtures, never a host")]
pub fn write_tree(tree: &Tree, directory: &Path) -> std::io::Result<()> {
    let mut result = Ok(());
    walk(tree, &mut |path, node| {
        if result.is_ok() {
            let place = directory.join(path.trim_start_matches('/'));
            result = match node {
                Node::Directory(_) => std::fs::create_dir_all(&place),
                Node::File(bytes) => std::fs::write(&place, bytes),
                Node::Sparse { readable, parts, .. } => {
                    std::fs::write(&place, filled(*readable, parts))
                }
                Node::Link(target) => std::os::unix::fs::symlink(target, &place),
                Node::Fails(_) | Node::Hangs => Ok(()),
            };
        }
    });
    result
}

/// A reader without privilege gets the first part of a file only: so long is it here.
fn filled(readable: u64, parts: &[(u64, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = vec![0; usize::try_from(readable).unwrap_or(0)];
    for (offset, part) in parts {
        let start = usize::try_from(*offset).unwrap_or(usize::MAX);
        let place = start.checked_add(part.len()).and_then(|end| bytes.get_mut(start..end));
        if let Some(place) = place {
            place.copy_from_slice(part);
        }
    }
    bytes
}
