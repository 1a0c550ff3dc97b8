//! How many boots there were, and how many of them were repeated. A guest that dies of a double fault
//! before its first step has shown nothing of what the lab asks; that it happened is shown all the same.

use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};

static BOOTS: AtomicU32 = AtomicU32::new(0);
static REPEATED: AtomicU32 = AtomicU32::new(0);

/// Both counts of this process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    /// Boots, the repeated ones included.
    pub boots: u32,
    /// Those that were repeated.
    pub repeated: u32,
}

impl Tally {
    /// The counts up to now.
    pub fn now() -> Self {
        Self { boots: BOOTS.load(Ordering::Relaxed), repeated: REPEATED.load(Ordering::Relaxed) }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Boots: {}; repeated because the guest died of a double fault before its first step: {}.",
            self.boots, self.repeated
        )
    }
}

pub(super) fn booted() {
    BOOTS.fetch_add(1, Ordering::Relaxed);
}

pub(super) fn repeated() {
    REPEATED.fetch_add(1, Ordering::Relaxed);
}

/// Whether a guest died in that way, by its console and its records.
pub(super) fn died_early(console: &str, records: &str) -> bool {
    records.trim().is_empty() && console.contains("double fault")
}

#[cfg(test)]
mod tests {
    use super::died_early;

    #[test]
    fn only_a_double_fault_before_the_first_record_counts() {
        let panic = "[    2.1] traps: PANIC: double fault, error_code: 0x0";
        assert!(died_early(panic, "\n"));
        assert!(!died_early(panic, "{\"record\":\"ready\"}"));
        assert!(!died_early("[    2.1] Kernel panic - not syncing: no init", ""));
    }
}
