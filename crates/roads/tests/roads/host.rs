//! Simulated hosts as snapshots.

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
pub(crate) struct Host {
    pub(crate) snapshot: Snapshot,
    pub(crate) pairs: Vec<Pair>,
    pub(crate) constraints: Constraints,
    pub(crate) knowledge: Knowledge,
    pub(crate) gains: BTreeMap<RoadId, Gain>,
    pub(crate) in_force: BTreeMap<RoadId, Passed>,
}

impl Host {
    /// One of the named simulated hosts.
    pub(crate) fn named(name: &str) -> Self {
        Self::of(name, peerway_sim::host(name).unwrap().unwrap())
    }

    /// A tree that stands for a host.
    pub(crate) fn of(name: &str, tree: Tree) -> Self {
        let look = Look {
            host: format!("sim:{name}"),
            kind: OriginKind::Simulated,
            privileged: true,
            ..Look::default()
        };
        Self::with(collect(&Root::recorded(Arc::new(tree)), look))
    }

    /// A snapshot.
    pub(crate) fn with(snapshot: Snapshot) -> Self {
        let pairs = judge_all(&snapshot, &PairScope::default());
        Self { snapshot, pairs, ..Self::default() }
    }

    pub(crate) fn request(&self) -> Request<'_> {
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

    pub(crate) fn roads(&self) -> Roads {
        peerway_roads::roads(&self.request()).unwrap()
    }

    pub(crate) fn plan(&self, road: RoadId) -> Result<Plan, PlanError> {
        peerway_roads::plan(&self.request(), road)
    }
}
