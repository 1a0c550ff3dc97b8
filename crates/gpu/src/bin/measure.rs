//! Standalone measurement.
fn main() {}
