//! Simulated hosts as snapshots.

pub mod random;

use std::collections::BTreeMap;
use std::sync::Arc;

use peerway_core::diagnose::pairs::{PairScope, judge_all};
use peerway_core::judge::Pair;
use peerway_core::snapshot::{OriginKind, Snapshot};
use peerway_read::host::{Request as Look, collect};
use peerway_read::root::Root;
use peerway_read::tree::Tree;
use peerway_roads::{
    Constraints, Gain, Knowledge, Passed, Plan, PlanError, Request, RoadId, Roads,
};

/// A host with everything that roads are judged from.
#[derive(Default)]
pub struct Host {
    pub snapshot: Snapshot,
    pub pairs: Vec<Pair>,
    pub constraints: Constraints,
    pub knowledge: Knowledge,
    pub gains: BTreeMap<RoadId, Gain>,
    pub in_force: BTreeMap<RoadId, Passed>,
}

impl Host {
    /// One of the named simulated hosts.
    pub fn named(name: &str) -> Self {
        Self::of(name, peerway_sim::host(name).unwrap().unwrap())
    }

    /// A tree that stands for a host.
    pub fn of(name: &str, tree: Tree) -> Self {
        let look = Look {
            host: format!("sim:{name}"),
            kind: OriginKind::Simulated,
            privileged: true,
            ..Look::default()
        };
        Self::with(collect(&Root::recorded(Arc::new(tree)), look))
    }

    /// A snapshot.
    pub fn with(snapshot: Snapshot) -> Self {
        let pairs = judge_all(&snapshot, &PairScope::default());
        Self { snapshot, pairs, ..Self::default() }
    }

    pub fn request(&self) -> Request<'_> {
        Request {
            snapshot: &self.snapshot,
            pairs: &self.pairs,
            constraints: &self.constraints,
            knowledge: &self.knowledge,
            gains: &self.gains,
            in_force: &self.in_force,
            faults: &[],
        }
    }

    pub fn roads(&self) -> Roads {
        peerway_roads::roads(&self.request()).unwrap()
    }

    pub fn plan(&self, road: RoadId) -> Result<Plan, PlanError> {
        peerway_roads::plan(&self.request(), road)
    }
}
