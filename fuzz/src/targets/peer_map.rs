//! The list of the peer-map module.

use peerway_read::parse::peer_map;

/// Runs the target.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(map) = peer_map::list(text) {
        let lines = text.lines().filter(|line| line.trim_start().starts_with("entry")).count();
        assert!(map.entries.len() <= lines, "{map:?}");
    }
}
