//! How much is looked at in all.
//!
//! Links can show one file under many names, so that a small hostile copy of a host looks like an
//! endless one. What is looked at through one root is bounded, several times above the largest
//! host; beyond that every look fails, and what it would have shown is unknown.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::Reason;

/// Looks through one root. A host of 10,000 functions takes 150,000.
const MOST_LOOKS: u64 = 1 << 20;

/// Bytes of what they give. The largest are the kernel log and the lists of directories.
const MOST_BYTES: u64 = 256 << 20;

/// What was spent so far.
#[derive(Debug, Default)]
pub(super) struct Budget {
    looks: AtomicU64,
    bytes: AtomicU64,
}

impl Budget {
    /// One more look that gave so many bytes.
    pub(super) fn spend(&self, bytes: usize) -> Result<(), Reason> {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX).min(MOST_BYTES + 1);
        // Nothing else hangs on these numbers, so that their order among threads does not matter.
        let looks = self.looks.fetch_add(1, Ordering::Relaxed);
        let before = self.bytes.fetch_add(bytes, Ordering::Relaxed);
        if looks >= MOST_LOOKS || before.saturating_add(bytes) > MOST_BYTES {
            return Err(Reason::TooMuch);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_ends() {
        let budget = Budget::default();
        assert_eq!(budget.spend(100 << 20), Ok(()));
        assert_eq!(budget.spend(100 << 20), Ok(()));
        assert_eq!(budget.spend(100 << 20), Err(Reason::TooMuch));
        assert_eq!(budget.spend(0), Err(Reason::TooMuch));
        let budget = Budget::default();
        for _ in 0..MOST_LOOKS {
            assert_eq!(budget.spend(0), Ok(()));
        }
        assert_eq!(budget.spend(0), Err(Reason::TooMuch));
    }
}
