//! The road's gates once more, on the host as it is: a plan file is somebody's word, and what a gate
//! asks may have changed since it was written.

use std::collections::BTreeMap;

use peerway_core::diagnose::pairs::{PairScope, judge_all};
use peerway_core::snapshot::Snapshot;
use peerway_roads::{Accepted, Constraints, GateCode, Knowledge, Op, Passed, Plan, Request, Stop};

use super::LiveHost;
use crate::mutator::Host as _;

/// Gates that are others' to answer: the kernel loads or refuses the module itself, failures are
/// remembered by those who make plans, who holds the devices is asked at every step, and what the
/// operator accepted is not in the plan.
const OTHERS: [GateCode; 6] = [
    GateCode::UnbindHazard,
    GateCode::Module,
    GateCode::SecureBoot,
    GateCode::KnownFailure,
    GateCode::Holders,
    GateCode::BrokenPairs,
];

/// Why a plan that changes devices is not one for this host as it is now.
pub(super) fn refuse(host: &LiveHost, plan: &Plan) -> Option<String> {
    match host.snapshot() {
        Ok(snapshot) => why(&snapshot, plan),
        Err(error) => Some(error.to_string()),
    }
}

fn why(snapshot: &Snapshot, plan: &Plan) -> Option<String> {
    let pairs = judge_all(snapshot, &PairScope::default());
    let constraints = Constraints {
        tenant: plan.goal.tenant.clone(),
        devices: plan.goal.devices.iter().copied().collect(),
        accepted: Accepted { module_signed: true, ..Accepted::default() },
        stop: Stop::Operator,
        ..Constraints::default()
    };
    let knowledge = Knowledge::builtin();
    let request = Request {
        snapshot,
        pairs: &pairs,
        constraints: &constraints,
        knowledge: &knowledge,
        gains: &BTreeMap::new(),
        in_force: &BTreeMap::new(),
        faults: &[],
    };
    let roads = match peerway_roads::roads(&request) {
        Ok(roads) => roads,
        Err(error) => return Some(error.to_string()),
    };
    let Some(road) = roads.road(plan.road) else {
        return Some(format!("{} is no road of this host", plan.road));
    };
    let gate = road
        .gates
        .iter()
        .filter(|gate| gate.closes && !OTHERS.contains(&gate.code))
        .find(|gate| gate.passed != Passed::Yes);
    if let Some(gate) = gate {
        let lifts = gate.lifts.as_deref().unwrap_or("nothing is known to lift it");
        return Some(format!("gate {}: {}; what would lift it: {lifts}", gate.code, gate.read));
    }
    beyond_a_region(snapshot, plan)
}

/// Every entry lies in the memory region of one of the goal's devices and leads there from another
/// one: the module asks only that it lies in some region of the target.
fn beyond_a_region(snapshot: &Snapshot, plan: &Plan) -> Option<String> {
    let goal: Vec<_> =
        plan.goal.devices.iter().filter_map(|address| snapshot.device(*address)).collect();
    plan.steps.iter().find_map(|step| {
        let (Op::Map(entry) | Op::Unmap(entry)) = &step.act else { return None };
        let leads = goal.iter().any(|target| {
            let memory = snapshot.peer_memory(target);
            target.address != entry.requester
                && memory.is_some_and(|(function, bar)| {
                    function.address == entry.target
                        && (bar.index, bar.start) == (entry.bar, entry.start)
                        && entry.offset.checked_add(entry.length).is_some_and(|end| end <= bar.size)
                })
        });
        let asks = goal.iter().any(|device| device.address == entry.requester);
        (!(leads && asks)).then(|| {
            format!(
                "step {}: the {} is not memory that one of the goal's devices has for another",
                step.number, entry
            )
        })
    })
}

#[cfg(test)]
mod tests {
    use peerway_core::address::BusAddress;
    use peerway_roads::RoadId;
    use peerway_sim::react::SimHost;

    use super::*;

    fn snapshot(name: &str) -> Snapshot {
        SimHost::named(name).unwrap().unwrap().snapshot()
    }

    fn plan(snapshot: &Snapshot) -> Plan {
        let request = Request {
            snapshot,
            pairs: &judge_all(snapshot, &PairScope::default()),
            constraints: &Constraints::default(),
            knowledge: &Knowledge::builtin(),
            gains: &BTreeMap::new(),
            in_force: &BTreeMap::new(),
            faults: &[],
        };
        peerway_roads::plan(&request, RoadId::PeerMap).unwrap()
    }

    #[track_caller]
    fn check(host: &str, says: Option<&str>) {
        let found = why(&snapshot(host), &plan(&snapshot("kpro6-pve7")));
        match says {
            None => assert_eq!(found, None),
            Some(says) => {
                assert!(found.as_ref().is_some_and(|one| one.contains(says)), "{found:?}")
            }
        }
    }

    #[test]
    fn a_plan_from_elsewhere_is_refused_by_the_gate_that_holds_here() {
        check("kpro6-pve7", None);
        check("kpro6", Some("gate sme-mmio"));
        check("kpro6-pve7-mailbox", Some("gate p2p-mechanism"));
    }

    #[test]
    fn an_entry_that_leads_elsewhere_is_refused() {
        let snapshot = snapshot("kpro6-pve7");
        let changes: [fn(&mut peerway_roads::op::MapEntry); 4] = [
            |entry| entry.target = "0000:81:00.0".parse().unwrap(),
            |entry| entry.requester = "0000:81:00.0".parse().unwrap(),
            |entry| entry.start = BusAddress(entry.start.0 + 0x1000),
            |entry| entry.length += 0x1000,
        ];
        for change in changes {
            let mut plan = plan(&snapshot);
            let entry = plan.steps.iter_mut().find_map(|step| match &mut step.act {
                Op::Map(entry) => Some(entry),
                _ => None,
            });
            change(entry.unwrap());
            let found = why(&snapshot, &plan);
            assert!(found.as_ref().is_some_and(|one| one.contains("is not memory")), "{found:?}");
        }
    }
}
