//! Properties over random hosts and constraints.

use std::collections::{BTreeMap, BTreeSet};

use crate::build::build;
use crate::host::Host;
use crate::random::{BLINDS, Recipe, blind, constraints, recipe};
use peerway_core::address::PciAddress;
use peerway_core::snapshot::Snapshot;
use peerway_core::snapshot::tenant::TenantId;
use peerway_roads::road::State;
use peerway_roads::{Constraints, GateCode, Op, Passed, Plan, PlanError, RoadId};
use proptest::prelude::*;
use proptest::sample::Index;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

fn host(recipe: &Recipe, constraints: &Constraints) -> Host {
    Host { constraints: constraints.clone(), ..Host::with(build(recipe)) }
}

/// Every plan that there is.
fn plans(host: &Host) -> Vec<Plan> {
    RoadId::ALL
        .into_iter()
        .filter_map(|road| match host.plan(road) {
            Ok(plan) => Some(plan),
            Err(PlanError::Refused(_) | PlanError::Constraint(_)) => None,
            Err(error @ (PlanError::Touches { .. } | PlanError::Digest(_))) => panic!("{error}"),
        })
        .collect()
}

/// Whose a function is, by every claim and by its driver.
fn owners(snapshot: &Snapshot, address: PciAddress) -> BTreeSet<TenantId> {
    let claimed: BTreeSet<TenantId> =
        snapshot.claims_on(address).map(|claim| claim.tenant.clone()).collect();
    if !claimed.is_empty() {
        return claimed;
    }
    let device = snapshot.device(address).unwrap();
    if device.is_vfio() { [TenantId("nobody".to_owned())].into() } else { claimed }
}

/// Whether everybody who has a say about a function is the goal's tenant.
fn only(snapshot: &Snapshot, address: PciAddress, tenant: &TenantId) -> bool {
    owners(snapshot, address).iter().all(|owner| owner == tenant)
}

fn untouched(snapshot: &Snapshot, plan: &Plan, constraints: &Constraints) {
    let Some(tenant) = plan.goal.tenant.as_ref() else {
        assert!(plan.steps.iter().all(|step| step.act.touches().is_empty()), "{plan:?}");
        return;
    };
    if plan.road != RoadId::LiveWithout {
        assert!(!constraints.protect.contains(tenant), "{tenant} was protected");
    }
    for act in plan.steps.iter().flat_map(|step| [Some(&step.act), step.inverse.as_ref()]).flatten()
    {
        for address in act.touches() {
            let device = snapshot.device(address).unwrap();
            if !device.is_bridge() {
                assert!(only(snapshot, address, tenant), "{address} by {act:?}");
                continue;
            }
            // A port: everything that hangs with it below a common bridge is the tenant's.
            let bridge = device.ancestors.last().unwrap();
            for below in snapshot.devices.iter().filter(|one| one.ancestors.contains(bridge)) {
                assert!(
                    below.is_bridge() || only(snapshot, below.address, tenant),
                    "{} below {address}",
                    below.address
                );
            }
        }
        match act {
            Op::WriteGroupType { group, .. } => {
                for member in &snapshot.group(*group).unwrap().devices {
                    let bridge = snapshot.device(*member).unwrap().is_bridge();
                    assert!(bridge || only(snapshot, *member, tenant), "{member} in {group}");
                }
            }
            Op::Map(entry) => {
                let group = snapshot.group_of(snapshot.device(entry.requester).unwrap()).unwrap();
                for member in &group.devices {
                    assert!(only(snapshot, *member, tenant), "{member} shares {}", group.id);
                }
                let target = snapshot.device(entry.target).unwrap();
                let (_, bar) = snapshot.peer_memory(target).unwrap();
                assert_eq!((entry.bar, entry.offset, entry.length), (bar.index, 0, bar.size));
            }
            Op::Stop { service } | Op::Restart { service } | Op::Start { service } => {
                assert!(service.tenant().is_none_or(|one| one == *tenant), "{service}");
            }
            _ => {}
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 384,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn no_plan_touches_what_is_not_the_goals(recipe in recipe(), constraints in constraints()) {
        let host = host(&recipe, &constraints);
        for plan in plans(&host) {
            untouched(&host.snapshot, &plan, &constraints);
        }
    }

    #[test]
    fn every_step_has_an_inverse_or_says_why_not(recipe in recipe()) {
        let host = host(&recipe, &Constraints::default());
        for plan in plans(&host) {
            for step in &plan.steps {
                prop_assert!(step.inverse.is_some() != step.irreversible.is_some());
                // Nothing that a plan does here is without a way back.
                prop_assert!(step.irreversible.is_none(), "{step:?}");
            }
            prop_assert_eq!(plan.check(), Ok(()));
            prop_assert_eq!(plan.differences(&host.snapshot), vec![]);
            let text = serde_json::to_string(&plan).unwrap();
            prop_assert_eq!(&serde_json::from_str::<Plan>(&text).unwrap(), &plan);
        }
    }

    #[test]
    fn the_ranking_does_not_depend_on_the_order_of_what_was_read(
        recipe in recipe(),
        constraints in constraints(),
        turn in any::<Index>(),
    ) {
        let mut host = host(&recipe, &constraints);
        let order = |host: &Host| peerway_roads::roads(&host.request()).map(|roads| {
            roads.roads.iter().map(|road| (road.rank, road.id, road.state)).collect::<Vec<_>>()
        });
        let before = order(&host);
        let pairs = host.pairs.len();
        if pairs > 0 {
            host.pairs.rotate_left(turn.index(pairs));
        }
        host.pairs.reverse();
        host.snapshot.claims.reverse();
        host.snapshot.tenants.reverse();
        prop_assert_eq!(order(&host), before);
    }

    #[test]
    fn what_nobody_could_read_opens_nothing(
        recipe in recipe(),
        what in 0..BLINDS,
        which in any::<Index>(),
    ) {
        let mut host = host(&recipe, &Constraints::default());
        let Some(goal) = host.roads().goal else { return Ok(()) };
        host.constraints.devices = goal.devices.iter().copied().collect();
        let before = host.roads();
        let mut snapshot = host.snapshot.clone();
        blind(&mut snapshot, what, which);
        let constraints = host.constraints.clone();
        let blinded = Host { constraints, ..Host::with(snapshot) };
        // A device whose identity is lost is no GPU any more: nothing is judged for it at all.
        let Ok(after) = peerway_roads::roads(&blinded.request()) else { return Ok(()) };
        for road in &after.roads {
            let seen = before.road(road.id).unwrap();
            for gate in &road.gates {
                let was = seen.gates.iter().find(|one| one.code == gate.code).unwrap();
                // These follow from verdicts, which are the judge's: less knowledge may well make a
                // pair look broken, and so its requester concerned.
                if matches!(gate.code, GateCode::BrokenPairs | GateCode::Translating) {
                    continue;
                }
                prop_assert!(
                    gate.passed != Passed::Yes || was.passed == Passed::Yes,
                    "{}: {} passed after blinding {what}: {} (was {}: {})",
                    road.id, gate.code, gate.read, was.passed, was.read
                );
            }
            prop_assert!(road.state != State::Open || seen.state == State::Open, "{}", road.id);
        }
    }

    #[test]
    fn states_follow_from_gates(recipe in recipe(), constraints in constraints()) {
        let host = host(&recipe, &constraints);
        let Ok(roads) = peerway_roads::roads(&host.request()) else { return Ok(()) };
        prop_assert_eq!(roads.roads.len(), RoadId::ALL.len());
        for road in &roads.roads {
            let deciding = || road.gates.iter().filter(|gate| gate.closes);
            let failed = deciding().any(|gate| gate.passed == Passed::No);
            let unknown = deciding().any(|gate| gate.passed == Passed::Unknown);
            let expected = match (failed, unknown) {
                (true, _) => State::Closed,
                (false, true) => State::Unknown,
                (false, false) => State::Open,
            };
            prop_assert_eq!(road.state, expected);
            prop_assert_eq!(road.closed_by.is_some(), failed);
            for gate in &road.gates {
                prop_assert!(!gate.read.is_empty(), "{} {}", road.id, gate.code);
                prop_assert_eq!(gate.lifts.is_some(), gate.passed != Passed::Yes, "{}", gate.code);
            }
        }
    }
}

/// The properties above say nothing unless random hosts have plans of every kind.
#[test]
fn random_hosts_have_plans_of_every_kind() {
    let mut runner = TestRunner::deterministic();
    let mut counts: BTreeMap<RoadId, u32> = BTreeMap::new();
    for _ in 0..1_000 {
        let recipe = recipe().new_tree(&mut runner).unwrap().current();
        for plan in plans(&host(&recipe, &Constraints::default())) {
            *counts.entry(plan.road).or_default() += 1;
        }
    }
    for road in [RoadId::PeerMap, RoadId::IdentityGroups, RoadId::AcsDirect, RoadId::LiveWithout] {
        let count = counts.get(&road).copied().unwrap_or_default();
        assert!(count >= 10, "{road}: {count} of {counts:?}");
    }
}
