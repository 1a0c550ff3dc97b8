//! A road on one host: its gates, and what follows from them.

mod acs_direct;
mod boot_passthrough;
mod driver_policy;
mod elsewhere;
mod identity_groups;
mod live_without;
mod mapping_driver;
mod peer_map;
mod vfio_guest;

use std::fmt;

use peerway_core::snapshot::kernel::Tristate;
use peerway_core::snapshot::tenant::TenantId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::gain::Gain;
use crate::gate::{Gate, GateCode, Passed};
use crate::guide::Guide;
use crate::id::RoadId;
use crate::knowledge::{EvidenceLevel, OutcomeResult};
use crate::scene::Scene;

/// Whether a road can be walked.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Every gate that decides holds.
    Open,
    /// A gate that decides could not be established.
    Unknown,
    /// A gate that decides does not hold.
    Closed,
}

impl fmt::Display for State {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            Self::Open => "open",
            Self::Unknown => "unknown",
            Self::Closed => "closed",
        })
    }
}

/// Who walks a road.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Actor {
    /// `peerway plan` and `peerway apply`.
    Peerway,
    /// The operator, by the guide.
    Operator,
}

/// What closes a road.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ClosedBy {
    /// A fact about the host.
    Gate,
    /// A choice: what the operator wants or has not lifted.
    Constraint,
}

/// Whether a road can be taken back.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Reversible {
    /// Live, by inverse steps.
    Yes,
    /// By another reload or reboot, or unless a race is lost.
    Conditional,
    /// Not.
    No,
}

/// A road on this host.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Road {
    /// Its name.
    pub id: RoadId,
    /// What it does.
    pub title: String,
    /// Whether it can be walked.
    pub state: State,
    /// Whether it is walked already.
    pub in_force: Passed,
    /// Who walks it.
    pub actor: Actor,
    /// What closes it; absent unless closed.
    pub closed_by: Option<ClosedBy>,
    /// Its gates, in the order in which they are asked.
    pub gates: Vec<Gate>,
    /// Whether it needs a reboot.
    pub reboot: bool,
    /// Tenants that it would disturb.
    pub disturbs: Vec<TenantId>,
    /// Whether it can be taken back.
    pub reversible: Reversible,
    /// How well it is known to work.
    pub evidence_level: EvidenceLevel,
    /// Roads whose effect depends on it, or which exclude it.
    pub interacts_with: Vec<RoadId>,
    /// Place in the ranking, from 1.
    pub rank: u32,
    /// Why it stands there.
    pub rank_reason: String,
    /// What it is expected to bring.
    pub gain: Gain,
    /// What is to be known about it here.
    pub notes: Vec<String>,
    /// How the operator walks it, or prepares it.
    pub guide: Vec<Guide>,
}

impl Road {
    /// Gates that stand in the way: those that fail, else those that are unknown.
    pub fn reasons(&self) -> Vec<&Gate> {
        let with = |passed| {
            self.gates.iter().filter(move |gate| gate.closes && gate.passed == passed).collect()
        };
        match self.state {
            State::Open => Vec::new(),
            State::Closed => with(Passed::No),
            State::Unknown => with(Passed::Unknown),
        }
    }
}

/// A road before it is ranked.
pub(crate) struct Draft {
    pub(crate) gates: Vec<Gate>,
    pub(crate) in_force: Passed,
    pub(crate) actor: Actor,
    pub(crate) reboot: bool,
    pub(crate) disturbs: Vec<TenantId>,
    pub(crate) reversible: Reversible,
    pub(crate) level: EvidenceLevel,
    pub(crate) interacts: &'static [RoadId],
    pub(crate) gain: Gain,
    pub(crate) notes: Vec<String>,
    pub(crate) guide: Vec<Guide>,
}

impl Draft {
    fn new(actor: Actor, gates: Vec<Gate>) -> Self {
        Self {
            gates,
            in_force: Passed::No,
            actor,
            reboot: false,
            disturbs: Vec::new(),
            reversible: Reversible::Yes,
            level: EvidenceLevel::Inferred,
            interacts: &[],
            gain: Gain::not_estimated("depends on the workload: name it with --model"),
            notes: Vec::new(),
            guide: Vec::new(),
        }
    }
}

/// Judges one road.
pub(crate) fn judge(scene: &Scene<'_>, id: RoadId) -> Road {
    let mut draft = match id {
        RoadId::PeerMap => peer_map::road(scene),
        RoadId::IdentityGroups => identity_groups::road(scene),
        RoadId::AcsDirect => acs_direct::road(scene),
        RoadId::VfioGuest => vfio_guest::road(scene),
        RoadId::MappingDriver => mapping_driver::road(scene),
        RoadId::BootPassthrough => boot_passthrough::road(scene),
        RoadId::DriverPolicy => driver_policy::road(scene),
        RoadId::LiveWithout => live_without::road(scene),
        RoadId::Elsewhere => elsewhere::road(scene),
    };
    if scene.constraints().exclude.contains(&id) {
        let gate = Gate::fail(
            GateCode::Excluded,
            format!("{id} is excluded"),
            "leaving it out of --exclude",
        );
        draft.gates.insert(0, gate.constraint());
    }
    if let Some(said) = scene.request().in_force.get(&id) {
        draft.in_force = *said;
    }
    if worked_here(scene, id) {
        draft.level = EvidenceLevel::HardwareHere;
    }
    let gain = scene.request().gains.get(&id).cloned().unwrap_or(draft.gain);
    let (state, closed_by) = state_of(&draft.gates);
    Road {
        id,
        title: id.title().to_owned(),
        state,
        in_force: draft.in_force,
        actor: draft.actor,
        closed_by,
        gates: draft.gates,
        reboot: draft.reboot,
        disturbs: draft.disturbs,
        reversible: draft.reversible,
        evidence_level: draft.level,
        interacts_with: draft.interacts.to_vec(),
        rank: 0,
        rank_reason: String::new(),
        gain,
        notes: draft.notes,
        guide: draft.guide,
    }
}

fn worked_here(scene: &Scene<'_>, id: RoadId) -> bool {
    scene.knowledge().outcome(id, &scene.situation()).is_some_and(|(outcome, sure)| {
        sure == Tristate::Yes && outcome.result == OutcomeResult::Succeeded
    })
}

/// A failed gate closes; without one, an unknown leaves the road unknown.
fn state_of(gates: &[Gate]) -> (State, Option<ClosedBy>) {
    let deciding = || gates.iter().filter(|gate| gate.closes);
    let mut failed = deciding().filter(|gate| gate.passed == Passed::No).peekable();
    if failed.peek().is_some() {
        let by =
            if failed.all(|gate| gate.constraint) { ClosedBy::Constraint } else { ClosedBy::Gate };
        return (State::Closed, Some(by));
    }
    if deciding().any(|gate| gate.passed == Passed::Unknown) {
        (State::Unknown, None)
    } else {
        (State::Open, None)
    }
}

/// The goal's tenant: it is stopped while a road is walked.
fn goals_tenant(scene: &Scene<'_>) -> Vec<TenantId> {
    scene.tenant().cloned().into_iter().collect()
}

/// Everybody who may run here: a reboot stops them.
fn everybody(scene: &Scene<'_>) -> Vec<TenantId> {
    scene
        .snapshot()
        .tenants
        .iter()
        .filter(|tenant| tenant.running != Tristate::No)
        .map(|tenant| tenant.id.clone())
        .collect()
}
