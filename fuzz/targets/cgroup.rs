//! Control groups of processes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use peerway_read::parse::cgroup;

fuzz_target!(|text: &str| {
    let tenant = cgroup::tenant(text);
    assert!(!tenant.0.chars().any(char::is_control), "{tenant:?}");
    assert!(tenant.0.chars().count() <= 220, "{tenant:?}");
});
