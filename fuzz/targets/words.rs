//! Words of the kernel command line.
#![no_main]

use libfuzzer_sys::fuzz_target;
use peerway_core::words;

fuzz_target!(|text: &str| {
    let all = words::split(text);
    assert!(all.len() <= text.len());
    for (key, value) in all.iter().take(8) {
        let last = words::last_value(text, key);
        assert!(last.is_none_or(|last| last.len() <= text.len()));
        words::switch(value.as_deref().unwrap_or_default());
    }
    for word in words::parse(text) {
        assert!(!word.key.contains('='));
    }
});
