//! What a correct diagnosis says about each pair of a host, as data.

use peerway_core::address::PciAddress;

/// Verdict on one ordered pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Verdict {
    /// Data arrives.
    Works,
    /// Data cannot arrive.
    Broken,
    /// Data arrives, over a route that gives less than half of its links.
    Impaired,
    /// It cannot be told from what was read.
    Unknown,
}

impl Verdict {
    /// The word in documents.
    pub fn word(self) -> &'static str {
        match self {
            Self::Works => "works",
            Self::Broken => "broken",
            Self::Impaired => "impaired",
            Self::Unknown => "unknown",
        }
    }
}

/// The right answer for one ordered pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Expectation {
    /// The requester.
    pub from: PciAddress,
    /// The target.
    pub to: PciAddress,
    /// The verdict.
    pub verdict: Verdict,
    /// Code of the finding that must stand among the pair's, where one is certain to.
    pub code: Option<&'static str>,
}

/// The same verdict for every ordered pair within a set.
pub fn all_pairs(devices: &[PciAddress], verdict: Verdict) -> Vec<Expectation> {
    pairs(devices, devices, verdict)
}

/// The same verdict from each device of one set to each other device of another.
pub fn pairs(from: &[PciAddress], to: &[PciAddress], verdict: Verdict) -> Vec<Expectation> {
    let mut all = Vec::new();
    for &from in from {
        for &to in to.iter().filter(|to| **to != from) {
            all.push(Expectation { from, to, verdict, code: None });
        }
    }
    all
}
