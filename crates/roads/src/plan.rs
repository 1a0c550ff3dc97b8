//! A plan: one open road as exact steps, each with what is expected before it and what takes it
//! back, and the fingerprint of everything that it rests on.

mod acs_direct;
mod before_driver;
pub(crate) mod build;
mod fingerprint;
mod form;
mod identity_groups;
mod live_without;
mod peer_map;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use peerway_core::address::PciAddress;
use peerway_core::snapshot::Snapshot;
use peerway_core::snapshot::tenant::TenantId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::assess::Request;
use crate::canonical;
use crate::constraint::ConstraintError;
use crate::gate::{Gate, Passed};
use crate::goal::Goal;
use crate::guide::Guide;
use crate::id::RoadId;
use crate::op::Op;
use crate::road::{self, Actor, Reversible, State};
use crate::scene::Scene;
use crate::service::Service;

pub use before_driver::NotBefore;
pub use fingerprint::Difference;

/// Number of the plan's own format; raised when a field changes its meaning.
pub const PLAN_SCHEMA: u32 = 1;

/// One road as steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Plan {
    /// [`PLAN_SCHEMA`] of the writer.
    pub schema: u32,
    /// SHA-256 over the canonical JSON of everything else.
    pub digest: String,
    /// The road.
    pub road: RoadId,
    /// The host, as it was named.
    pub host: String,
    /// SHA-256 over [`Plan::fingerprint`].
    pub host_fingerprint: String,
    /// Every value that the plan rests on, by its source.
    pub fingerprint: BTreeMap<String, String>,
    /// What is different in the fingerprint once the plan was carried out.
    pub after: BTreeMap<String, String>,
    /// Kernel and boot that it was made for.
    pub made_for: MadeFor,
    /// Whose pairs are to work.
    pub goal: Goal,
    /// Steps in order.
    pub steps: Vec<Step>,
    /// The device that goes first, alone.
    pub canary: Option<PciAddress>,
    /// Who is not touched, with what is theirs.
    pub protects: Vec<Protected>,
    /// What the operator must have done before.
    pub needs: Vec<Need>,
    /// What is taken for granted, and who checks it.
    pub assumptions: Vec<Assumption>,
    /// Whether it can be taken back.
    pub reversible: Reversible,
    /// What is to be known about the road here.
    pub notes: Vec<String>,
    /// Whether no driver is bound to the devices yet, so that nothing rests on what only a driver
    /// says.
    #[serde(default, skip_serializing_if = "is_false")]
    pub before_driver: bool,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for it so")]
fn is_false(flag: &bool) -> bool {
    !*flag
}

/// Kernel and boot that a plan was made for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MadeFor {
    /// Host name, where it was read.
    pub hostname: Option<String>,
    /// Kernel release, where it was read.
    pub kernel: Option<String>,
    /// Boot, where it was read.
    pub boot_id: Option<String>,
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Step {
    /// Its place, from 1.
    pub number: u32,
    /// The part of the transaction that it belongs to.
    pub phase: Phase,
    /// The act's word.
    pub op: String,
    /// The file that it writes, where it writes one.
    pub path: Option<String>,
    /// What has to be there before it; absent where only the run itself finds out.
    pub expect: Option<String>,
    /// What is there after it.
    pub set: String,
    /// The act itself.
    pub act: Op,
    /// What takes it back if what was expected is found; the run makes its own from what it finds.
    pub inverse: Option<Op>,
    /// Why nothing takes it back; absent where `inverse` does.
    pub irreversible: Option<String>,
}

/// Parts of a transaction.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Safe environment, nobody on the devices, fence.
    Prepare,
    /// Unbind and rebind of one device without any change.
    Control,
    /// The change on one device.
    Canary,
    /// The change on the others.
    Rest,
    /// Only after verification and the operator's word.
    Confirm,
}

/// A tenant that is not touched.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Protected {
    /// Who.
    pub tenant: TenantId,
    /// What it holds or claims.
    pub devices: Vec<PciAddress>,
    /// Their groups.
    pub groups: Vec<u32>,
}

/// Something that the operator does first.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Need {
    /// What.
    pub text: String,
    /// What finds out whether it was done.
    pub checked_by: String,
}

/// Something that the plan takes for granted.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Assumption {
    /// What.
    pub text: String,
    /// What finds out whether it holds.
    pub checked_by: String,
    /// What is known now.
    pub result: Passed,
}

/// A road that is not walked, with its reasons.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Refusal {
    /// The road.
    pub road: RoadId,
    /// Its state.
    pub state: State,
    /// In one sentence.
    pub reason: String,
    /// Gates that stand in the way.
    pub gates: Vec<Gate>,
    /// Where the operator walks it: how.
    pub guide: Vec<Guide>,
}

impl fmt::Display for Refusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}: {}", self.road, self.reason)?;
        for gate in &self.gates {
            write!(out, "\n  {} = {}: {}", gate.code, gate.passed, gate.read)?;
            if let Some(lifts) = &gate.lifts {
                write!(out, "\n    lifts: {lifts}")?;
            }
        }
        Ok(())
    }
}

/// Why there is no plan.
#[derive(Debug, Error)]
pub enum PlanError {
    /// A constraint that names what is not there (wrong use).
    #[error(transparent)]
    Constraint(#[from] ConstraintError),
    /// The road is closed, unknown, or the operator's (exit 4).
    #[error("{0}")]
    Refused(Box<Refusal>),
    /// A step would have touched what is not the goal's: a fault of this program, caught here.
    #[error("the plan for {road} would touch {what}, which is protected; nothing was planned")]
    Touches {
        /// The road.
        road: RoadId,
        /// What.
        what: String,
    },
    /// The plan could not be written down.
    #[error("cannot make the plan's digest: {0}")]
    Digest(#[from] serde_json::Error),
}

/// Why a plan is not carried out as it stands.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum Invalid {
    /// Another program, or another version of this one, wrote it.
    #[error("the plan has format {found}, and this program knows {PLAN_SCHEMA}; make a new plan")]
    Schema {
        /// What it says.
        found: u32,
    },
    /// It was changed after it was made.
    #[error("the plan was changed after it was made: its digest is {computed}, and it says {said}")]
    Digest {
        /// What it says.
        said: String,
        /// What it is.
        computed: String,
    },
    /// A step that the road does not have.
    #[error("step {number} of the plan is none that {road} takes there; make a new plan")]
    Form {
        /// Which.
        number: u32,
        /// The road.
        road: RoadId,
    },
    /// A plan that lacks what the road has.
    #[error("the plan for {road} {why}; make a new plan")]
    Whole {
        /// The road.
        road: RoadId,
        /// What it lacks.
        why: &'static str,
    },
    /// A step says one thing and does another.
    #[error("step {number} of the plan says one thing and does another; make a new plan")]
    Step {
        /// Which.
        number: u32,
    },
}

/// Makes the plan of a road.
pub fn plan(request: &Request<'_>, id: RoadId) -> Result<Plan, PlanError> {
    let scene = Scene::new(request)?;
    let road = road::judge(&scene, id);
    let refuse = |reason: &str, gates: Vec<Gate>| {
        PlanError::Refused(Box::new(Refusal {
            road: id,
            state: road.state,
            reason: reason.to_owned(),
            gates,
            guide: road.guide.clone(),
        }))
    };
    match road.state {
        State::Open => {}
        State::Closed => {
            let gates = road.reasons().into_iter().cloned().collect();
            return Err(refuse("the road is closed on this host", gates));
        }
        State::Unknown => {
            let gates = road.reasons().into_iter().cloned().collect();
            return Err(refuse("what the road depends on could not be established", gates));
        }
    }
    let (Some(goal), Actor::Peerway) = (scene.goal(), road.actor) else {
        return Err(refuse("the operator walks this road", Vec::new()));
    };
    let mut draft = build::Draft::default();
    let built = match id {
        RoadId::PeerMap => peer_map::steps(&scene, &mut draft),
        RoadId::IdentityGroups => identity_groups::steps(&scene, &mut draft),
        RoadId::AcsDirect => acs_direct::steps(&scene, &mut draft),
        RoadId::LiveWithout => {
            live_without::steps(&mut draft);
            Ok(())
        }
        RoadId::VfioGuest
        | RoadId::MappingDriver
        | RoadId::BootPassthrough
        | RoadId::DriverPolicy
        | RoadId::Elsewhere => return Err(refuse("the operator walks this road", Vec::new())),
    };
    built.map_err(|gate| refuse("a value that a step needs could not be read", vec![gate]))?;
    let protects = build::protects(&scene);
    guard(&scene, id, &draft.steps, &protects)?;
    let snapshot = scene.snapshot();
    let ports = ports_of(&draft.steps);
    let fingerprint = fingerprint::values(snapshot, goal, &ports, false);
    let mut plan = Plan {
        schema: PLAN_SCHEMA,
        digest: String::new(),
        road: id,
        host: snapshot.origin.host.clone(),
        host_fingerprint: canonical::digest(&fingerprint)?,
        fingerprint,
        after: draft.after,
        made_for: MadeFor {
            hostname: snapshot.origin.hostname.known().cloned(),
            kernel: snapshot.kernel.release.known().cloned(),
            boot_id: snapshot.origin.boot_id.known().cloned(),
        },
        goal: goal.clone(),
        steps: draft.steps,
        canary: draft.canary,
        protects,
        needs: draft.needs,
        assumptions: draft.assumptions,
        reversible: road.reversible,
        notes: road.notes,
        before_driver: false,
    };
    plan.digest = plan.compute_digest()?;
    Ok(plan)
}

fn ports_of(steps: &[Step]) -> BTreeSet<PciAddress> {
    steps
        .iter()
        .filter_map(|step| match step.act {
            Op::WriteAcs { port, .. } => Some(port),
            _ => None,
        })
        .collect()
}

/// The last look at a plan before it leaves: it may touch the goal's devices, functions that share
/// their groups and are nobody else's, and ports that the road's gates have looked at.
fn guard(
    scene: &Scene<'_>,
    road: RoadId,
    steps: &[Step],
    protects: &[Protected],
) -> Result<(), PlanError> {
    let touches = |what: String| Err(PlanError::Touches { road, what });
    let mut allowed: BTreeSet<PciAddress> =
        scene.groups().values().flat_map(|(group, _)| group.devices.iter().copied()).collect();
    allowed.extend(scene.devices().iter().map(|device| device.address));
    allowed.extend(crate::gates::switch::redirecting_ports(scene.pairs().iter().copied()));
    let memory = scene.devices().iter().filter_map(|device| scene.snapshot().peer_memory(device));
    allowed.extend(memory.map(|(function, _)| function.address));
    let protected: BTreeSet<PciAddress> =
        protects.iter().flat_map(|one| one.devices.iter().copied()).collect();
    for act in steps.iter().flat_map(|step| [Some(&step.act), step.inverse.as_ref()]).flatten() {
        for address in act.touches() {
            if protected.contains(&address) || !allowed.contains(&address) {
                return touches(address.to_string());
            }
        }
        if let Op::WriteGroupType { group, .. } = act
            && protects.iter().any(|one| one.groups.contains(group))
        {
            return touches(format!("group {group}"));
        }
        if let Op::Stop { service } | Op::Start { service } | Op::Restart { service } = act
            && service.tenant().is_some_and(|tenant| scene.protected().contains(&tenant))
        {
            return touches(service.to_string());
        }
    }
    Ok(())
}

impl Plan {
    pub(crate) fn compute_digest(&self) -> Result<String, serde_json::Error> {
        let mut value = serde_json::to_value(self)?;
        if let Some(fields) = value.as_object_mut() {
            fields.remove("digest");
        }
        canonical::digest(&value)
    }

    /// Whether the plan is as it was made, each step says what it does, and its road has such steps.
    pub fn check(&self) -> Result<(), Invalid> {
        if self.schema != PLAN_SCHEMA {
            return Err(Invalid::Schema { found: self.schema });
        }
        // A plan that cannot be digested has no digest, and so not the one that it says.
        let computed = self.compute_digest().unwrap_or_default();
        if computed != self.digest {
            return Err(Invalid::Digest { said: self.digest.clone(), computed });
        }
        for step in &self.steps {
            let same = step.op == step.act.word()
                && step.path == step.act.path()
                && step.set == step.act.set();
            if !same {
                return Err(Invalid::Step { number: step.number });
            }
        }
        form::check(self)
    }

    fn values_of(&self, snapshot: &Snapshot) -> BTreeMap<String, String> {
        fingerprint::values(snapshot, &self.goal, &ports_of(&self.steps), self.before_driver)
    }

    /// Where a host differs from what the plan rests on; empty if the plan is fresh.
    pub fn differences(&self, snapshot: &Snapshot) -> Vec<Difference> {
        let now = self.values_of(snapshot);
        fingerprint::differences(&self.fingerprint, &now)
    }

    /// Where a host differs from what it should be after the plan was carried out.
    pub fn differences_after(&self, snapshot: &Snapshot) -> Vec<Difference> {
        let now = self.values_of(snapshot);
        let mut expected = self.fingerprint.clone();
        expected.extend(self.after.clone());
        fingerprint::differences(&expected, &now)
    }

    /// What tenants other than the goal's have on a host, and the plan does not protect: one line
    /// each. A file may have been written before they had it, or by hand.
    pub fn unprotected(&self, snapshot: &Snapshot) -> Vec<String> {
        let own = self.goal.tenant.as_ref();
        let others = snapshot.tenants.iter().map(|tenant| &tenant.id);
        let there = build::of_tenants(snapshot, others.filter(|tenant| Some(*tenant) != own));
        let mut missing = Vec::new();
        for one in there {
            let named = self.protects.iter().find(|named| named.tenant == one.tenant);
            let named = named.map_or(&[][..], |named| &named.devices);
            for device in &one.devices {
                // Whether a device of the goal is another's is asked of its claims, one by one.
                if !named.contains(device) && !self.goal.devices.contains(device) {
                    missing.push(format!("{device} of {}", one.tenant));
                }
            }
        }
        missing
    }

    /// Members of a goal device's group when the plan was made, with blanks between them.
    pub fn group_members(&self, device: PciAddress) -> Option<&str> {
        let source = fingerprint::group_source(device, "devices");
        self.fingerprint.get(&source).map(String::as_str)
    }

    /// Node number of a goal device when the plan was made, where NVIDIA's driver had given one.
    pub fn minor_of(&self, device: PciAddress) -> Option<u32> {
        self.fingerprint.get(&fingerprint::minor_source(device))?.parse().ok()
    }

    /// Everything that its steps stop or start.
    pub fn services(&self) -> BTreeSet<&Service> {
        self.steps
            .iter()
            .filter_map(|step| match &step.act {
                Op::Stop { service } | Op::Start { service } | Op::Restart { service } => {
                    Some(service)
                }
                _ => None,
            })
            .collect()
    }
}
