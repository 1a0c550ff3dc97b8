//! Control groups of processes.

use peerway_read::parse::cgroup;

/// Runs the target.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let tenant = cgroup::tenant(text);
    assert!(!tenant.0.chars().any(char::is_control), "{tenant:?}");
    assert!(tenant.0.chars().count() <= 220, "{tenant:?}");
}
