//! The operator's declaration of accelerators.

use peerway_cli_read::declared;
use peerway_read::host::Memory;

/// Runs the target.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    for one in declared::parse(text).into_iter().flatten() {
        assert!(one.bar < 6);
        assert!(!matches!(one.memory, Memory::Function(8..)));
    }
}
