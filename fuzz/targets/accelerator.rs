//! The operator's declaration of accelerators.
#![no_main]

use libfuzzer_sys::fuzz_target;
use peerway_cli_read::declared;
use peerway_read::host::Memory;

fuzz_target!(|text: &str| {
    for one in declared::parse(text).into_iter().flatten() {
        assert!(one.bar < 6);
        assert!(!matches!(one.memory, Memory::Function(8..)));
    }
});
