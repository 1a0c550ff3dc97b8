//! Any bytes: no panic.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    peerway_fuzz::scan(data);
});
