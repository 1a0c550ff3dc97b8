//! What the gates know about kernels, drivers and boards that no probe shows: data, each item with
//! its source, its evidence level and the versions that it holds for.
//!
//! Where a host can be asked (a file, a register, a state), gates ask it; the ranges here serve
//! where it cannot. The operator can add facts and override ours by identifier from a file
//! ([`Knowledge::merge_file`]), and outcomes of earlier transactions count as facts about this
//! board, driver and kernel ([`Knowledge::remember`]).

mod table;

use std::collections::BTreeMap;

use peerway_core::address::VendorDevice;
use peerway_core::observed::Observed;
use peerway_core::snapshot::kernel::Tristate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::gate::GateCode;
use crate::id::RoadId;
use crate::version::{Range, VersionError};

/// How well a statement is supported, best first.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum EvidenceLevel {
    /// Seen on this board, driver and kernel, on this host.
    HardwareHere,
    /// Seen on hardware elsewhere.
    HardwareElsewhere,
    /// Measured on a real kernel with devices that stand in for GPUs.
    Lab,
    /// Measured on an emulated IOMMU.
    Emulated,
    /// Read in source code.
    Source,
    /// Concluded from other facts.
    Inferred,
}

/// What a fact does to its gate inside its ranges.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Effect {
    /// Inside the ranges the condition holds.
    Allows,
    /// Inside the ranges it fails.
    Fails,
    /// Inside the ranges it is dangerous, and needs the operator's acceptance.
    Hazard,
}

/// One fact.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Fact {
    /// Its identifier; a later fact of the same identifier replaces it.
    pub id: String,
    /// The gate that asks for it.
    pub gate: GateCode,
    /// What it does there.
    pub effect: Effect,
    /// The road that it is about; absent for all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub road: Option<RoadId>,
    /// Boards that it is about; empty for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub boards: Vec<VendorDevice>,
    /// Kernels that it holds for.
    #[serde(default, skip_serializing_if = "Range::is_open")]
    pub kernels: Range,
    /// Driver versions that it holds for.
    #[serde(default, skip_serializing_if = "Range::is_open")]
    pub drivers: Range,
    /// Holds only where SNP is on (true) or off (false).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snp: Option<bool>,
    /// The statement.
    pub text: String,
    /// Where it is from.
    pub source: String,
    /// How well it is supported.
    pub level: EvidenceLevel,
}

/// What a host is, as far as facts ask.
#[derive(Clone, Debug)]
pub(crate) struct Situation<'a> {
    /// Kernel release.
    pub(crate) kernel: Option<&'a str>,
    /// Driver version.
    pub(crate) driver: Option<&'a str>,
    /// Boards of the goal; absent where one could not be read.
    pub(crate) boards: Option<Vec<VendorDevice>>,
    /// Whether SNP is on.
    pub(crate) snp: Tristate,
}

impl Fact {
    /// Whether it is about this situation.
    pub(crate) fn applies(&self, here: &Situation<'_>) -> Tristate {
        let board = match (&self.boards, &here.boards) {
            (wanted, _) if wanted.is_empty() => Tristate::Yes,
            (wanted, Some(boards)) if boards.iter().any(|board| wanted.contains(board)) => {
                Tristate::Yes
            }
            (_, Some(_)) => Tristate::No,
            (_, None) => Tristate::Unknown,
        };
        let snp = match (self.snp, here.snp) {
            (None, _) | (Some(true), Tristate::Yes) | (Some(false), Tristate::No) => Tristate::Yes,
            (Some(_), Tristate::Unknown) => Tristate::Unknown,
            (Some(_), Tristate::Yes | Tristate::No) => Tristate::No,
        };
        let all =
            [self.kernels.contains(here.kernel), self.drivers.contains(here.driver), board, snp];
        if all.contains(&Tristate::No) {
            Tristate::No
        } else if all.contains(&Tristate::Unknown) {
            Tristate::Unknown
        } else {
            Tristate::Yes
        }
    }
}

/// How an earlier transaction on this host ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Outcome {
    /// The road that was walked.
    pub road: RoadId,
    /// The board.
    pub board: Option<VendorDevice>,
    /// Version of its driver.
    pub driver: String,
    /// Release of the kernel.
    pub kernel: String,
    /// How it ended.
    pub result: OutcomeResult,
    /// What was seen, in words.
    pub reason: String,
}

/// How a transaction ended.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum OutcomeResult {
    /// It was verified and confirmed.
    Succeeded,
    /// It failed and was taken back.
    Failed,
    /// The control arm failed: the device does not survive a rebind, whatever the road.
    ControlFailed,
}

/// Why a file of facts was not taken.
#[derive(Debug, Error)]
pub enum KnowledgeError {
    /// It is no such file.
    #[error("cannot read the facts: {0}")]
    Shape(#[from] toml::de::Error),
    /// A range of a fact has an end that is no version.
    #[error("fact {id:?} has a range that cannot be used: {source}")]
    Range {
        /// The fact.
        id: String,
        /// Why.
        source: VersionError,
    },
}

/// Everything that the gates know beside the snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Knowledge {
    facts: BTreeMap<String, Fact>,
    outcomes: Vec<Outcome>,
    /// Why it is not known what earlier transactions came to.
    unread: Option<String>,
}

/// The shape of a file: facts and outcomes.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(default)]
    fact: Vec<Fact>,
    #[serde(default)]
    outcome: Vec<Outcome>,
}

impl Default for Knowledge {
    fn default() -> Self {
        Self::builtin()
    }
}

impl Knowledge {
    /// What this program brings along.
    pub fn builtin() -> Self {
        let facts = table::facts().into_iter().map(|fact| (fact.id.clone(), fact)).collect();
        Self { facts, outcomes: Vec::new(), unread: None }
    }

    /// Adds the facts and outcomes of a TOML text (`[[fact]]`, `[[outcome]]`). A fact whose
    /// identifier is known replaces it. Nothing is taken from a file with an error.
    pub fn merge_file(&mut self, text: &str) -> Result<(), KnowledgeError> {
        let file: File = toml::from_str(text)?;
        for fact in &file.fact {
            for range in [&fact.kernels, &fact.drivers] {
                range
                    .check()
                    .map_err(|source| KnowledgeError::Range { id: fact.id.clone(), source })?;
            }
        }
        self.facts.extend(file.fact.into_iter().map(|fact| (fact.id.clone(), fact)));
        self.outcomes.extend(file.outcome);
        Ok(())
    }

    /// Adds outcomes of earlier transactions, as far as they could be read: where they could not,
    /// nobody knows that a road did not fail here before.
    pub fn remember(&mut self, outcomes: &Observed<Vec<Outcome>>) {
        match outcomes {
            Observed::Known(outcomes) => self.outcomes.extend(outcomes.iter().cloned()),
            Observed::Absent => {}
            Observed::Unreadable(why) => self.unread = Some(why.clone()),
        }
    }

    /// Why it is not known what earlier transactions came to.
    pub(crate) fn unread(&self) -> Option<&str> {
        self.unread.as_deref()
    }

    /// A fact by its identifier.
    pub fn fact(&self, id: &str) -> Option<&Fact> {
        self.facts.get(id)
    }

    /// All facts, by identifier.
    pub fn facts(&self) -> impl Iterator<Item = &Fact> {
        self.facts.values()
    }

    /// Facts that speak of failures of a road, with whether they are about this situation.
    pub(crate) fn failures<'k>(
        &'k self,
        road: RoadId,
        here: &'k Situation<'_>,
    ) -> impl Iterator<Item = (&'k Fact, Tristate)> {
        self.facts
            .values()
            .filter(|fact| fact.gate == GateCode::KnownFailure && fact.effect == Effect::Fails)
            .filter(move |fact| fact.road.is_none_or(|one| one == road))
            .map(|fact| (fact, fact.applies(here)))
    }

    /// The last outcome of a road that is, or may be, about this board, driver and kernel.
    pub(crate) fn outcome(
        &self,
        road: RoadId,
        here: &Situation<'_>,
    ) -> Option<(&Outcome, Tristate)> {
        let same = |said: &str, seen: Option<&str>| match seen {
            Some(seen) => Tristate::from(Observed::Known(said == seen)),
            None => Tristate::Unknown,
        };
        self.outcomes.iter().rev().filter(|outcome| outcome.road == road).find_map(|outcome| {
            let board = match (&outcome.board, &here.boards) {
                (Some(board), Some(boards)) => {
                    Tristate::from(Observed::Known(boards.contains(board)))
                }
                // Not knowing which board it was about is no reason to forget it.
                (None, _) => Tristate::Yes,
                (Some(_), None) => Tristate::Unknown,
            };
            let all =
                [board, same(&outcome.driver, here.driver), same(&outcome.kernel, here.kernel)];
            if all.contains(&Tristate::No) {
                None
            } else if all.contains(&Tristate::Unknown) {
                Some((outcome, Tristate::Unknown))
            } else {
                Some((outcome, Tristate::Yes))
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn here(boards: &[&str], snp: Tristate) -> Situation<'static> {
        let boards = boards.iter().map(|board| board.parse().unwrap()).collect();
        Situation {
            kernel: Some("6.14.11-5-bpo12-pve"),
            driver: Some("580.95.05"),
            boards: Some(boards),
            snp,
        }
    }

    #[test]
    fn every_builtin_range_is_one() {
        for fact in Knowledge::builtin().facts() {
            fact.kernels.check().unwrap();
            fact.drivers.check().unwrap();
            assert!(!fact.source.is_empty() && !fact.text.is_empty(), "{}", fact.id);
        }
    }

    #[test]
    fn builtin_facts_survive_their_own_file_format() {
        for fact in Knowledge::builtin().facts() {
            let value = serde_json::to_value(fact).unwrap();
            assert_eq!(serde_json::from_value::<Fact>(value).unwrap(), *fact);
        }
    }

    #[test]
    fn a_file_adds_and_overrides() {
        let mut knowledge = Knowledge::builtin();
        let text = r#"
            [[fact]]
            id = "unbind-hazard"
            gate = "unbind-hazard"
            effect = "hazard"
            drivers = { from = "600" }
            text = "seen to be cured in branch 595 with our patch"
            source = "operator"
            level = "hardware-here"

            [[outcome]]
            road = "identity-groups"
            board = "10de:2bb5"
            driver = "580.95.05"
            kernel = "6.14.11-5-bpo12-pve"
            result = "failed"
            reason = "FSP boot command failed"
        "#;
        knowledge.merge_file(text).unwrap();
        assert_eq!(knowledge.fact("unbind-hazard").unwrap().source, "operator");
        let here = here(&["10de:2bb5"], Tristate::No);
        assert!(knowledge.outcome(RoadId::IdentityGroups, &here).is_some());
        assert!(knowledge.outcome(RoadId::PeerMap, &here).is_none());
    }

    #[test]
    fn a_broken_file_changes_nothing() {
        for text in [
            "[[fact]]\nid = 1",
            "fact = 3",
            "[[fact]]\nid=\"x\"\ngate=\"module\"\neffect=\"allows\"\ntext=\"\"\nsource=\"\"\n\
             level=\"lab\"\nkernels={from=\"six\"}",
            "[[outcome]]\nroad=\"no-such\"",
        ] {
            let mut knowledge = Knowledge::builtin();
            assert!(knowledge.merge_file(text).is_err(), "{text}");
            assert_eq!(knowledge, Knowledge::builtin(), "{text}");
        }
    }

    #[test]
    fn the_reported_failure_is_about_snp_hosts() {
        let knowledge = Knowledge::builtin();
        let applies = |snp, board: &str| {
            let here = here(&[board], snp);
            knowledge
                .failures(RoadId::IdentityGroups, &here)
                .find(|(fact, _)| fact.id == "fsp-identity-snp")
                .map(|(_, state)| state)
        };
        assert_eq!(applies(Tristate::Yes, "10de:2bb5"), Some(Tristate::Yes));
        assert_eq!(applies(Tristate::No, "10de:2bb5"), Some(Tristate::No));
        assert_eq!(applies(Tristate::Unknown, "10de:2bb5"), Some(Tristate::Unknown));
        assert_eq!(applies(Tristate::Yes, "10de:26b9"), Some(Tristate::No));
    }
}
