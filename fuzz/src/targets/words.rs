//! Words of the kernel command line.

use peerway_core::words;

/// Runs the target.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
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
}
