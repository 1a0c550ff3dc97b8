//! `/proc/cpuinfo`.

use peerway_read::parse::cpuinfo;

/// Runs the target.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let cpu = cpuinfo::parse(text);
    if let Some(flags) = cpu.flags.known() {
        assert!(flags.len() < 32, "each flag counts once");
    }
}
