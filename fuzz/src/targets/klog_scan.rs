//! Any bytes: no panic.

/// Runs the target.
pub fn run(data: &[u8]) {
    crate::shared::scan(data);
}
