//! `/proc/cpuinfo`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use peerway_read::parse::cpuinfo;

fuzz_target!(|text: &str| {
    let cpu = cpuinfo::parse(text);
    if let Some(flags) = cpu.flags.known() {
        assert!(flags.len() < 32, "each flag counts once");
    }
});
