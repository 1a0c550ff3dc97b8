//! What is known of one requester: the row of a report.

use peerway_core::address::{BusAddress, PciAddress};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::distinct::Distinct;
use crate::event::{Direction, Iommu, Kind, Requester};
use crate::stamp::Stamp;

/// Where and when something was logged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Occurrence {
    /// Line number, from 1, in what was scanned.
    pub line: u64,
    /// Boot within the input, from 0.
    pub boot: u32,
    /// Time.
    pub stamp: Stamp,
}

/// Who sent the refused requests, with its own texts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// A PCI function.
    Pci(PciAddress),
    /// A stream id of an Arm SMMU.
    Stream(u32),
    /// A device that is not on PCI.
    Named(String),
    /// The IOMMU itself, or not said.
    Unknown,
}

impl Source {
    /// The PCI address, if it is one.
    pub const fn pci(&self) -> Option<PciAddress> {
        match self {
            Self::Pci(address) => Some(*address),
            Self::Stream(_) | Self::Named(_) | Self::Unknown => None,
        }
    }

    pub(crate) const fn borrow(&self) -> Requester<'_> {
        match self {
            Self::Pci(address) => Requester::Pci(*address),
            Self::Stream(id) => Requester::Stream(*id),
            Self::Named(name) => Requester::Named(name.as_str()),
            Self::Unknown => Requester::Unknown,
        }
    }
}

impl From<Requester<'_>> for Source {
    fn from(requester: Requester<'_>) -> Self {
        match requester {
            Requester::Pci(address) => Self::Pci(address),
            Requester::Stream(id) => Self::Stream(id),
            Requester::Named(name) => Self::Named(name.to_owned()),
            Requester::Unknown => Self::Unknown,
        }
    }
}

impl std::fmt::Display for Source {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(&self.borrow(), out)
    }
}

/// How often each direction was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AccessCounts {
    /// Reads.
    pub read: u64,
    /// Writes.
    pub write: u64,
    /// Instruction fetches.
    pub execute: u64,
    /// Interrupts.
    pub interrupt: u64,
    /// Not said.
    pub unknown: u64,
    /// Those of the above whose direction is a hint only ([`crate::Access`]).
    pub hints: u64,
}

impl AccessCounts {
    /// From counts by direction, each for hints first.
    pub(crate) fn new(counts: &[u64; 2 * Direction::COUNT]) -> Self {
        let [read, write, execute, interrupt, unknown] = Direction::ALL.map(|direction| {
            let of_it = counts.get(2 * direction.index()..).unwrap_or_default();
            (of_it.iter().take(2).sum(), of_it.first().copied().unwrap_or(0))
        });
        Self {
            read: read.0,
            write: write.0,
            execute: execute.0,
            interrupt: interrupt.0,
            unknown: unknown.0,
            hints: read.1 + write.1 + execute.1 + interrupt.1,
        }
    }

    /// One word for all: `read`, `write`, `read+write`, `execute`, `interrupt`, `unknown`, and
    /// `mixed` for anything else.
    pub const fn word(&self) -> &'static str {
        match (self.read > 0, self.write > 0, self.execute > 0, self.interrupt > 0) {
            (true, false, false, false) => "read",
            (false, true, false, false) => "write",
            (true, true, false, false) => "read+write",
            (false, false, true, false) => "execute",
            (false, false, false, true) => "interrupt",
            (false, false, false, false) => "unknown",
            _ => "mixed",
        }
    }
}

/// A range of bus addresses that faults are attributed to, such as a BAR.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// First address.
    pub start: u64,
    /// Last address.
    pub end: u64,
    /// The caller's number of the region.
    pub tag: u32,
}

/// Events of a row inside one region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Hits {
    /// The region's number.
    pub tag: u32,
    /// Events.
    pub count: u64,
    /// Lowest offset into the region.
    pub offset_lowest: u64,
    /// Highest offset into the region.
    pub offset_highest: u64,
}

/// What one requester did, one kind of event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Row {
    /// Who.
    pub requester: Source,
    /// Whose events.
    pub iommu: Iommu,
    /// What.
    pub kind: Kind,
    /// Events in the log. Rate limits drop more: see the suppressed count.
    pub count: u64,
    /// Directions.
    pub access: AccessCounts,
    /// Distinct addresses.
    pub distinct_addresses: Distinct,
    /// The addresses, in order: all of them, or the first 4,096 that were met.
    pub addresses: Vec<BusAddress>,
    /// There were more.
    pub addresses_truncated: bool,
    /// Lowest address of all.
    pub lowest: Option<BusAddress>,
    /// Highest address of all.
    pub highest: Option<BusAddress>,
    /// Events inside the regions that the caller gave.
    pub regions: Vec<Hits>,
    /// Names that stood in front of the device.
    pub drivers: Vec<String>,
    /// IOMMUs that reported.
    pub units: Vec<String>,
    /// Flag words.
    pub flags: Vec<u32>,
    /// Numbers of domains.
    pub domains: Vec<u32>,
    /// PASIDs.
    pub pasids: Vec<u32>,
    /// Reason codes with their texts.
    pub reasons: Vec<(u32, String)>,
    /// Words of the first event that had some: AMD's device table entry, the SMMU's record.
    pub words: Option<[u64; 4]>,
    /// Events whose line was cut.
    pub cut: u64,
    /// The first event.
    pub first: Occurrence,
    /// The last event.
    pub last: Occurrence,
    /// The message of the first event, as evidence.
    pub text: String,
}
