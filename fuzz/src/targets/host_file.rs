//! The `.host` format: what is accepted is written and read back as it was.

use peerway_read::host_file;
use peerway_read::tree::{Node, Tree};
use peerway_sim::build::{to_host_file, walk};

/// Runs the target.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let Ok(tree) = host_file::parse(text) else { return };
    let again = host_file::parse(&to_host_file("again", &tree)).expect("what was written");
    assert_eq!(nodes(&tree), nodes(&again));
}

/// Paths and nodes; of directories only that they are there.
fn nodes(tree: &Tree) -> Vec<(String, Option<Node>)> {
    let mut nodes = Vec::new();
    walk(tree, &mut |path, node| {
        let node = (!matches!(node, Node::Directory(_))).then(|| node.clone());
        nodes.push((path.to_owned(), node));
    });
    nodes
}
