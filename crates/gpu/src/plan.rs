//! Which transfers are made, and in which order: a pure function of the depth asked for.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::result::{Engine, Operation};

/// Bytes on both sides of a tested range that must stay as they were.
pub(crate) const GUARD: u64 = 64 << 10;

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;

/// Distance of the samples that are spread over all memory: the smallest window that a BAR can be
/// short by is far larger, and 2 MiB is the page size of GPU mappings.
pub(crate) const SAMPLE_STRIDE: u64 = 2 * MIB;

/// What moves the data in one step.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Mover {
    /// The copy engine.
    Copy,
    /// 16-byte loads and stores.
    Vector,
    /// 4-byte loads and stores.
    Scalar,
    /// 4-byte volatile loads and stores.
    Volatile,
}

impl Mover {
    /// The engine that it belongs to.
    #[cfg(test)]
    fn engine(self) -> Engine {
        match self {
            Self::Copy => Engine::Copy,
            Self::Vector | Self::Scalar | Self::Volatile => Engine::Sm,
        }
    }
}

/// Part of the target's memory that a step touches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "shape")]
pub(crate) enum Span {
    /// A range, in bytes from the start of the arena.
    Range {
        /// First byte.
        offset: u64,
        /// Length.
        bytes: u64,
    },
    /// Single 16-byte units at even distances, counted in units.
    Samples {
        /// First unit.
        first: u64,
        /// Distance.
        stride: u64,
        /// How many.
        units: u64,
    },
}

impl Span {
    /// Bytes that move.
    pub(crate) fn bytes(self) -> u64 {
        match self {
            Self::Range { bytes, .. } => bytes,
            Self::Samples { units, .. } => units * crate::tag::UNIT,
        }
    }
}

/// One transfer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// Write or read, from the requester's side.
    pub operation: Operation,
    /// What moves the data.
    pub mover: Mover,
    /// Which part of the target's memory.
    pub span: Span,
}

impl std::fmt::Display for Step {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let operation = match self.operation {
            Operation::Write => "write",
            Operation::Read => "read",
        };
        let mover = match self.mover {
            Mover::Copy => "copy engine",
            Mover::Vector => "16-byte stores",
            Mover::Scalar => "4-byte stores",
            Mover::Volatile => "volatile stores",
        };
        match self.span {
            Span::Range { offset, bytes } => {
                write!(f, "{operation} {bytes} B at {offset} by {mover}")
            }
            Span::Samples { units, .. } => write!(f, "{operation} {units} samples by {mover}"),
        }
    }
}

/// How much is tested.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Depth {
    /// Up to 4 MiB, no samples over all memory. Seconds for a pair.
    Quick,
    /// Up to 64 MiB, and samples over all memory that can be allocated.
    Standard,
    /// Up to 1 GiB, and samples over all memory.
    Full,
}

impl Depth {
    /// The largest range.
    pub(crate) fn largest(self) -> u64 {
        match self {
            Self::Quick => 4 * MIB,
            Self::Standard => 64 * MIB,
            Self::Full => 1 << 30,
        }
    }

    /// Whether samples are spread over all memory.
    pub(crate) fn samples(self) -> bool {
        self > Self::Quick
    }

    /// Rounds of the test that a flag does not overtake its data.
    pub(crate) fn rounds(self) -> u64 {
        match self {
            Self::Quick => 1_024,
            Self::Standard => 8_192,
            Self::Full => 65_536,
        }
    }
}

/// Memory that the steps up to `largest` need on each side.
pub(crate) fn arena_bytes(largest: u64) -> u64 {
    (largest + 4 * MIB).next_multiple_of(2 * MIB)
}

/// Ranges that are safe to try first: none larger than 64 KiB and a unit.
const SMALL: [(u64, u64); 14] = [
    // A whole unit first: what stands in it says most about the damage.
    (16, 16),
    (0, 4),
    (4 * KIB - 16, 32),
    (0, 4 * KIB - 16),
    (0, 4 * KIB),
    (0, 4 * KIB + 16),
    (60 * KIB, 8 * KIB),
    (64 * KIB - 16, 32),
    (0, 64 * KIB - 16),
    (0, 64 * KIB),
    (0, 64 * KIB + 16),
    (2 * MIB - 16, 32),
    (2 * MIB - 4 * KIB, 8 * KIB),
    (MIB + 12, 20),
];

/// Ranges that only a copy engine can move: neither start nor length are multiples of a word.
const ODD: [(u64, u64); 4] = [(1, 1), (4 * KIB - 1, 2), (3, 4 * KIB + 1), (64 * KIB - 5, 11)];

/// Ranges for after the small ones were right.
const LARGE: [(u64, u64); 8] = [
    (0, 2 * MIB - 16),
    (0, 2 * MIB),
    (0, 2 * MIB + 16),
    (MIB, 3 * MIB),
    (2 * MIB, 4 * MIB),
    (0, 16 * MIB),
    (2 * MIB, 64 * MIB),
    (0, 1 << 30),
];

/// The small or the large steps of one engine and operation, smallest danger first.
pub(crate) fn steps(engine: Engine, operation: Operation, large: bool, largest: u64) -> Vec<Step> {
    let ranges = if large { LARGE.as_slice() } else { SMALL.as_slice() };
    let mut steps = Vec::new();
    for &(offset, bytes) in ranges.iter().filter(|(_, bytes)| *bytes <= largest) {
        for mover in movers(engine).iter().copied() {
            let unit = if mover == Mover::Vector { 16 } else { 4 };
            if offset % unit == 0 && bytes % unit == 0 {
                steps.push(Step { operation, mover, span: Span::Range { offset, bytes } });
            }
        }
    }
    if engine == Engine::Copy && !large {
        steps.extend(ODD.map(|(offset, bytes)| Step {
            operation,
            mover: Mover::Copy,
            span: Span::Range { offset, bytes },
        }));
    }
    steps
}

fn movers(engine: Engine) -> &'static [Mover] {
    match engine {
        Engine::Copy => &[Mover::Copy],
        Engine::Sm => &[Mover::Vector, Mover::Scalar, Mover::Volatile],
    }
}

/// Units by which samples move within their pages from one to the next: odd, so that they come to
/// all places.
const WANDER: u64 = 2_531;

/// The steps that sample memory of `bytes`, a multiple of the page size: at one place of each page,
/// so that what wraps around at any page meets its like; then at another place of each, with the
/// last unit of all as the last one.
pub(crate) fn sample_steps(engine: Engine, operation: Operation, bytes: u64) -> [Step; 2] {
    let page = SAMPLE_STRIDE / crate::tag::UNIT;
    let last = (bytes / crate::tag::UNIT).saturating_sub(1);
    let mover = if engine == Engine::Copy { Mover::Copy } else { Mover::Vector };
    // Not at the start of a page, where other things may be tidy too.
    let even =
        Span::Samples { first: page / 3, stride: page, units: (bytes / SAMPLE_STRIDE).max(1) };
    let stride = page - WANDER;
    let units = last / stride + 1;
    let wandering = Span::Samples { first: last % stride, stride, units };
    [even, wandering].map(|span| Step { operation, mover, span })
}

/// Bytes that the samples of one step over `bytes` take where they lie close.
pub(crate) fn sampled_bytes(bytes: u64) -> u64 {
    let steps = sample_steps(Engine::Copy, Operation::Write, bytes);
    steps.iter().map(|step| step.span.bytes()).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_stay_in_the_arena_and_fit_their_mover() {
        for depth in [Depth::Quick, Depth::Standard, Depth::Full] {
            let largest = depth.largest();
            for engine in [Engine::Copy, Engine::Sm] {
                for large in [false, true] {
                    let steps = steps(engine, Operation::Write, large, largest);
                    assert!(!steps.is_empty());
                    for step in steps {
                        let Span::Range { offset, bytes } = step.span else { unreachable!() };
                        assert_eq!(step.mover.engine(), engine);
                        assert!(offset + bytes + GUARD <= arena_bytes(largest), "{step}");
                        assert!(large || bytes <= 64 * KIB + 16, "{step}");
                        if step.mover != Mover::Copy {
                            assert_eq!((offset % 4, bytes % 4), (0, 0));
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn samples_come_to_every_page_at_many_places_and_to_the_end() {
        let bytes = 512 * SAMPLE_STRIDE;
        let [even, wandering] = sample_steps(Engine::Sm, Operation::Read, bytes);
        let places = |step: Step| -> Vec<u64> {
            let Span::Samples { first, stride, units } = step.span else { unreachable!() };
            (0..units).map(|k| (first + k * stride) * crate::tag::UNIT).collect()
        };
        assert_eq!(places(even).len(), 512);
        let places = places(wandering);
        assert_eq!(places.last(), Some(&(bytes - crate::tag::UNIT)));
        let pages: std::collections::BTreeSet<u64> =
            places.iter().map(|at| at / SAMPLE_STRIDE).collect();
        let offsets: std::collections::BTreeSet<u64> =
            places.iter().map(|at| at % SAMPLE_STRIDE).collect();
        assert_eq!((pages.len(), offsets.len()), (512, places.len()));
        assert!(sampled_bytes(bytes) / crate::tag::UNIT >= 512);
    }
}
