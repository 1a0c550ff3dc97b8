//! The `peerway` binary.
fn main() {}
