//! `live-without`: peer access off for everything that would use it, and what remains tuned.

use std::collections::BTreeSet;

use peerway_core::judge::addressing::force_p2p;
use peerway_core::snapshot::tenant::Holder;

use super::{Actor, Draft};
use crate::gain::Gain;
use crate::gate::Passed;
use crate::gates::{pairs, tenants};
use crate::id::RoadId;
use crate::knowledge::EvidenceLevel;
use crate::operator;
use crate::scene::Scene;

pub(super) fn road(scene: &Scene<'_>) -> Draft {
    // A guest's jobs take the guest's environment, which the host does not write.
    let actor = if scene.goal_is_guest() { Actor::Operator } else { Actor::Peerway };
    let mut notes = vec![
        "NCCL_P2P_DISABLE=1 covers NCCL and nothing else: custom all-reduce kernels, symmetric \
         memory and copies by the framework have switches of their own"
            .to_owned(),
    ];
    let without: Vec<String> = computing(scene)
        .filter(|holder| !nccl_is_off(holder))
        .map(|holder| format!("process {} ({})", holder.pid, holder.command))
        .collect();
    if !without.is_empty() {
        notes.push(format!("not in the environment of {}", crate::gates::some_of(&without)));
    }
    Draft {
        in_force: in_force(scene),
        level: EvidenceLevel::HardwareElsewhere,
        interacts: &[RoadId::PeerMap, RoadId::IdentityGroups, RoadId::AcsDirect, RoadId::Elsewhere],
        gain: Gain::not_estimated("right results; slower than peer access"),
        notes,
        guide: operator::environment::safe(scene),
        ..Draft::new(actor, vec![pairs::goal(scene)])
    }
}

/// Holders of the goal's devices that compute on them.
fn computing<'s, 'a>(scene: &'s Scene<'a>) -> impl Iterator<Item = &'a Holder> + 's {
    scene
        .holders()
        .filter(|holder| Some(&holder.tenant) == scene.tenant())
        .filter(|holder| !tenants::is_persistence_daemon(holder))
}

/// Only the value 1 acts, or the level that admits no path (NCCL, `src/graph/paths.cc`).
fn nccl_is_off(holder: &Holder) -> bool {
    holder.switches.iter().any(|(name, value)| {
        (name == "NCCL_P2P_DISABLE" && value == "1")
            || (name == "NCCL_P2P_LEVEL" && matches!(value.as_str(), "LOC" | "0"))
    })
}

fn in_force(scene: &Scene<'_>) -> Passed {
    if force_p2p(scene.snapshot()).is_some_and(|value| value & 0x33 == 0) {
        return Passed::Yes;
    }
    if scene.snapshot().holders.known().is_none() {
        return Passed::Unknown;
    }
    let states: BTreeSet<bool> = computing(scene).map(nccl_is_off).collect();
    match (states.contains(&true), states.contains(&false)) {
        (true, false) => Passed::Yes,
        (_, true) => Passed::No,
        // Nobody computes now; what the next one is given does not show.
        (false, false) => Passed::Unknown,
    }
}
