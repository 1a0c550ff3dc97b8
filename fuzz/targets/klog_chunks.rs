//! It does not matter where the input is cut.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let Some((size, data)) = data.split_first() else { return };
    let chunks = data.chunks(usize::from(*size) + 1);
    assert_eq!(peerway_fuzz::found(chunks), peerway_fuzz::found([data]));
});
