//! What a correct diagnosis says about each pair of a host, as data.

use peerway_core::address::PciAddress;

use crate::build::HostBuilder;

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
    /// Code of a finding that must stand among the pair's, where the host makes one certain.
    pub code: Option<&'static str>,
}

/// A host with the right answers beside it.
#[derive(Clone, Debug)]
pub struct ExpectedHost {
    /// Its name, unique among [`crate::hosts::all`].
    pub name: &'static str,
    /// Its description.
    pub builder: HostBuilder,
    /// One entry for every ordered pair of GPUs of one tenant.
    pub expectations: Vec<Expectation>,
}

impl ExpectedHost {
    /// A host about whose pairs nothing is said yet.
    pub fn new(name: &'static str, builder: HostBuilder) -> Self {
        Self { name, builder, expectations: Vec::new() }
    }

    /// The same verdict for every ordered pair within a set.
    #[must_use]
    pub fn all(
        self,
        devices: &[PciAddress],
        verdict: Verdict,
        code: impl Into<Option<&'static str>>,
    ) -> Self {
        self.pairs(devices, devices, verdict, code)
    }

    /// The same verdict from each device of one set to each other device of another.
    #[must_use]
    pub fn pairs(
        mut self,
        from: &[PciAddress],
        to: &[PciAddress],
        verdict: Verdict,
        code: impl Into<Option<&'static str>>,
    ) -> Self {
        let code = code.into();
        for &from in from {
            for &to in to.iter().filter(|to| **to != from) {
                self.expectations.push(Expectation { from, to, verdict, code });
            }
        }
        self
    }

    /// The same verdict in both directions between two sets.
    #[must_use]
    pub fn between(
        self,
        one: &[PciAddress],
        other: &[PciAddress],
        verdict: Verdict,
        code: impl Into<Option<&'static str>>,
    ) -> Self {
        let code = code.into();
        self.pairs(one, other, verdict, code).pairs(other, one, verdict, code)
    }
}
