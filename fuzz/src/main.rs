//! Every parser under libFuzzer, in one program: `TARGET=NAME fuzz CORPUS…`.
//!
//! One, since linking a program for each would take longer than a minute of fuzzing does.
#![no_main]

use std::sync::LazyLock;

mod shared;
mod targets;

static TARGET: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let name = std::env::var("TARGET").expect("TARGET names a file of src/targets");
    targets::by_name(&name).expect("a file of src/targets")
});

libfuzzer_sys::fuzz_target!(|data: &[u8]| TARGET(data));
