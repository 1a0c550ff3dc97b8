//! From a snapshot to every road on it.

use std::collections::BTreeMap;

use peerway_core::address::PciAddress;
use peerway_core::judge::Pair;
use peerway_core::snapshot::Snapshot;

use crate::constraint::{self, ConstraintError, Constraints, HeldConstraint};
use crate::gain::Gain;
use crate::gate::Passed;
use crate::goal::Goal;
use crate::id::RoadId;
use crate::knowledge::Knowledge;
use crate::rank;
use crate::road::{self, Road};
use crate::scene::Scene;

/// Everything that roads and plans are made from.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The host.
    pub snapshot: &'a Snapshot,
    /// Its judged pairs; measurements may have joined them.
    pub pairs: &'a [Pair],
    /// Wishes and limits.
    pub constraints: &'a Constraints,
    /// Facts and outcomes.
    pub knowledge: &'a Knowledge,
    /// Gains estimated or measured for the workload; roads that are missing are not estimated.
    pub gains: &'a BTreeMap<RoadId, Gain>,
    /// What is known to be in force beside what the snapshot shows, such as from the journal.
    pub in_force: &'a BTreeMap<RoadId, Passed>,
    /// Faults that were attributed to memory regions.
    pub faults: &'a [SeenFault],
}

/// Faults of one requester in one region of another device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenFault {
    /// Who faulted.
    pub requester: PciAddress,
    /// In whose region.
    pub target: PciAddress,
    /// Resource index of the region.
    pub bar: u8,
    /// How often.
    pub count: u64,
}

/// Every road on a host, ranked.
#[derive(Clone, Debug, PartialEq)]
pub struct Roads {
    /// Constraints that hold, to be printed first.
    pub constraints: Vec<HeldConstraint>,
    /// What is to work; absent where there is nothing to connect.
    pub goal: Option<Goal>,
    /// Every road, best first.
    pub roads: Vec<Road>,
}

impl Roads {
    /// One road.
    pub fn road(&self, id: RoadId) -> Option<&Road> {
        self.roads.iter().find(|road| road.id == id)
    }
}

/// Judges and ranks every road.
pub fn roads(request: &Request<'_>) -> Result<Roads, ConstraintError> {
    let scene = Scene::new(request)?;
    let mut roads: Vec<Road> = RoadId::ALL.map(|id| road::judge(&scene, id)).into();
    rank::rank(&mut roads, request.constraints.asked);
    Ok(Roads { constraints: constraint::held(&scene), goal: scene.goal().cloned(), roads })
}
