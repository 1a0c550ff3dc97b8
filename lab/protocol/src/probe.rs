//! The line that a probe program prints.

use serde::{Deserialize, Serialize};

/// Number of the protocol that this type speaks.
pub const PROBE_PROTOCOL: u32 = 1;

/// The verdict on one copy from a requester into a target's memory, judged on the target's side.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Probe {
    /// [`PROBE_PROTOCOL`].
    pub protocol: u32,
    /// PCI address of the device that made the requests.
    pub from: String,
    /// PCI address of the device whose memory they went to.
    pub to: String,
    /// What moved the data: `dma`, `copy-engine`, `sm`, whatever the program has.
    pub engine: String,
    /// How the target was addressed: `raw` (its bus address) or `mapped`.
    pub mode: String,
    /// What came of it.
    pub verdict: Verdict,
    /// What kind of damage; set exactly when the verdict is `damaged`.
    pub damage: Option<Damage>,
    /// Bytes that were judged.
    pub bytes: u64,
    /// Offset of the first wrong byte.
    pub first_bad_offset: Option<u64>,
    /// One sentence for people.
    pub detail: String,
}

/// What came of a probe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// Every byte was right in the target's memory.
    Intact,
    /// The copy ended and the target's memory is wrong.
    Damaged,
    /// The copy did not end by the deadline.
    Hung,
    /// The device or its driver refused before anything moved.
    Refused,
    /// It could not be tried; the detail says why.
    NotRun,
}

/// What kind of damage the target's memory shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Damage {
    /// The poison is untouched: the writes never arrived.
    Dropped,
    /// All zeros: reads were answered with nothing.
    Zeros,
    /// All ones: reads were aborted.
    Ones,
    /// The right data at the wrong offset.
    Aliased,
    /// Data of an earlier round.
    Stale,
    /// Data that belongs to another pair.
    Misrouted,
    /// Anything else: wrong bits.
    Bits,
    /// The writer sees its data, the target does not.
    Mirrored,
}
