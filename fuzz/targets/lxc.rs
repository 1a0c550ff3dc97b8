//! Configurations of LXC containers.
#![no_main]

use libfuzzer_sys::fuzz_target;
use peerway_read::parse::lxc;

fuzz_target!(|text: &str| {
    let container = lxc::config(text);
    assert!(container.grants.len() <= text.lines().count());
});
