//! Whether a flag can overtake the data that was written before it.

use std::time::Duration;

use super::{Link, Pair};
use crate::check;
use crate::kernels::Rounds;
use crate::plan::Span;
use crate::result::{Damage, DamageReport, Operation};
use crate::status::GpuError;
use crate::tag::{Header, UNIT};
use crate::transfer::ProduceOrder;
use crate::verdict::Expectation;

/// Units of payload in front of each flag: two cache lines.
const UNITS: u64 = 16;

/// Pause of the writer between rounds, so that the reader already waits when a flag comes.
const PAUSE: Duration = Duration::from_nanos(500);

impl Pair<'_> {
    /// Producer on the requester, consumer on the owner: payload, flag with release order; flag
    /// with acquire order, payload.
    pub(super) fn order(&mut self, link: &mut Link<'_>) -> Result<Option<DamageReport>, GpuError> {
        let (payload, poison) = self.headers(Operation::Write);
        let rounds = self.work.depth.rounds().min(link.arena.bytes / (UNITS * UNIT + 8) / 2);
        let bytes = rounds * UNITS * UNIT;
        let limit = Duration::from_millis(self.limit_ms());
        let span = Span::Range { offset: 0, bytes };
        check::poison(self.target, link.arena, span, poison)?;
        self.target.enter()?;
        let flags = link.arena.base + bytes;
        self.driver.fill_bytes(flags, 0, rounds * 8, self.target.stream())?;
        self.target.clear_report()?;
        self.target.finish(limit, "the owner's preparation")?;
        let row = Rounds {
            payload: link.arena.base,
            flags,
            count: rounds,
            units: UNITS,
            header: payload,
        };
        self.target.consume(row, limit)?;
        link.requester.produce(ProduceOrder {
            flags: bytes,
            rounds,
            units: UNITS,
            payload: payload.word(),
            pause_ns: u64::try_from(PAUSE.as_nanos()).unwrap_or(0),
            limit_ms: self.limit_ms(),
        })?;
        self.target.finish(limit * 2, "the reader of flags")?;
        let [bad, first, late, seen, low, high, ..] = self.target.read_report()?;
        if bad == 0 && late == 0 && seen == rounds {
            return Ok(None);
        }
        let expectation = Expectation { payload, poison, start: 0, end: bytes };
        // The guard behind the payload is the flags' place: check the payload only.
        let final_state = check::check_range(
            self.target,
            check::Arena { bytes, ..link.arena },
            expectation,
            limit,
        )?;
        let missing = if late == 0 {
            None
        } else {
            let word = self.target.download(flags + seen.min(rounds - 1) * 8, 8)?;
            let word = word.first_chunk::<8>().map_or(0, |word| u64::from_le_bytes(*word));
            Some(match word {
                0 => Damage::Dropped,
                // It did come in the end.
                value if value == seen + 1 => Damage::Stale,
                _ => Damage::Bits,
            })
        };
        let seen = Seen { bad, first, missing, rounds: seen, low, high };
        Ok(Some(final_state.unwrap_or_else(|| overtaken(payload, &seen))))
    }
}

/// What the reader of flags reported.
struct Seen {
    bad: u64,
    first: u64,
    /// A flag did not come in its time: what became of it.
    missing: Option<Damage>,
    rounds: u64,
    low: u64,
    high: u64,
}

/// All data is there in the end, so it came after its flag, or the flag never came.
fn overtaken(payload: Header, seen: &Seen) -> DamageReport {
    let step = if seen.missing.is_some() {
        format!("flags behind data: flag {} never came", seen.rounds + 1)
    } else {
        "flags behind data: a flag came before its data".to_owned()
    };
    let found = u128::from(seen.low) | u128::from(seen.high) << 64;
    let first = if seen.bad > 0 { seen.first } else { seen.rounds * UNITS };
    DamageReport {
        damage: seen.missing.filter(|_| seen.bad == 0).unwrap_or(Damage::Stale),
        first_bad_offset: first * UNIT,
        bad_units: seen.bad.max(1),
        pages: Vec::new(),
        found: format!("{:032x}", u128::from_be_bytes(found.to_le_bytes())),
        expected: format!("{:032x}", u128::from_be_bytes(payload.unit(first))),
        step,
        // Order can only be seen by the kernel that polls.
        confirmed_by_copy: false,
    }
}
