//! Configurations of LXC containers.

use peerway_read::parse::lxc;

/// Runs the target.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let container = lxc::config(text);
    assert!(container.grants.len() <= text.lines().count());
}
