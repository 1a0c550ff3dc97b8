//! The `.host` format: what is accepted is written and read back as it was.
#![no_main]

use libfuzzer_sys::fuzz_target;
use peerway_read::host_file;
use peerway_read::tree::{Node, Tree};
use peerway_sim::build::{to_host_file, walk};

fuzz_target!(|text: &str| {
    let Ok(tree) = host_file::parse(text) else { return };
    let again = host_file::parse(&to_host_file("again", &tree)).expect("what was written");
    assert_eq!(nodes(&tree), nodes(&again));
});

/// Paths and nodes; of directories only that they are there.
fn nodes(tree: &Tree) -> Vec<(String, Option<Node>)> {
    let mut nodes = Vec::new();
    walk(tree, &mut |path, node| {
        let node = (!matches!(node, Node::Directory(_))).then(|| node.clone());
        nodes.push((path.to_owned(), node));
    });
    nodes
}
