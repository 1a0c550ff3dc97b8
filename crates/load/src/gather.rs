//! Waking up costs more than reading: at thousands of tokens a second the loop waits a moment before
//! it looks at its sockets again, and takes what has come meanwhile in one go.
//!
//! The moment is short beside any time between tokens, it is part of the lag that is measured and
//! reported, and below [`BUSY`] there is none.

use std::cell::Cell;
use std::time::Duration;

use crate::clock::now;

/// Reads a second from which on the loop gathers.
const BUSY: u64 = 2_000;
/// How long it does.
const MOMENT: Duration = Duration::from_micros(200);
/// How long reads are counted before it is decided anew.
const PERIOD: u64 = 10_000_000;

#[derive(Clone, Copy)]
struct Pace {
    reads: u64,
    since: u64,
    fresh: bool,
    busy: bool,
}

thread_local! {
    static PACE: Cell<Pace> =
        const { Cell::new(Pace { reads: 0, since: 0, fresh: false, busy: false }) };
}

/// Something was read.
#[inline]
pub(crate) fn came() {
    let pace = PACE.get();
    PACE.set(Pace { reads: pace.reads + 1, fresh: true, ..pace });
}

/// The loop has nothing left to do, and is about to wait for its sockets.
pub(crate) fn before_waiting() {
    let pace = decide(PACE.get(), now());
    PACE.set(Pace { fresh: false, ..pace });
    if pace.busy && pace.fresh {
        std::thread::sleep(MOMENT);
    }
}

/// Whether it is busy, from what came in the last period.
fn decide(pace: Pace, at: u64) -> Pace {
    let length = at.saturating_sub(pace.since);
    if length < PERIOD {
        return pace;
    }
    let busy = pace.reads.saturating_mul(1_000_000_000) / length >= BUSY;
    Pace { reads: 0, since: at, fresh: pace.fresh, busy }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gathers_only_where_much_comes() {
        let pace = Pace { reads: 19, since: 0, fresh: true, busy: false };
        assert!(!decide(pace, PERIOD).busy, "1,900 a second");
        assert!(decide(Pace { reads: 20, ..pace }, PERIOD).busy, "2,000 a second");
        assert!(!decide(Pace { reads: 20, ..pace }, PERIOD - 1).busy, "not yet decided");
        assert!(!decide(Pace { busy: true, ..pace }, PERIOD).busy, "no longer");
    }
}
