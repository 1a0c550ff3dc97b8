//! Words of the kernel command line.

use peerway_core::command_line;

/// Runs the target.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let all = command_line::split(text);
    assert!(all.len() <= text.len());
    for (key, value) in all.iter().take(8) {
        let last = command_line::last_value(text, key);
        assert!(last.is_none_or(|last| last.len() <= text.len()));
        command_line::switch(value.as_deref().unwrap_or_default());
    }
    for word in command_line::parse(text) {
        assert!(!word.key.contains('='));
    }
}
