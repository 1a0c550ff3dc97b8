//! Refusals, constraints, ranking and documents on the simulated hosts.

use crate::host::Host;
use expect_test::{Expect, expect};
use peerway_core::judge::Verdict;
use peerway_core::observed::Observed::{Absent, Known, Unreadable};
use peerway_core::snapshot::tenant::TenantId;
use peerway_roads::gain::GainBasis;
use peerway_roads::knowledge::OutcomeResult;
use peerway_roads::road::State;
use peerway_roads::{
    Gain, GateCode, Outcome, Passed, PlanError, Request, RoadId, SeenFault, Stop, document,
};

/// The refusal of a road, in one line.
#[track_caller]
pub(crate) fn refused(host: &Host, road: RoadId, expected: &Expect) {
    match host.plan(road) {
        Err(PlanError::Refused(refusal)) => {
            let gates: Vec<String> =
                refusal.gates.iter().map(|gate| format!("{}={}", gate.code, gate.passed)).collect();
            expected.assert_eq(&format!(
                "{}, {}: {}\n",
                refusal.state,
                refusal.reason,
                gates.join(" ")
            ));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn closed_roads_are_refused_with_their_reasons() {
    let host = Host::named("kpro6");
    refused(
        &host,
        RoadId::IdentityGroups,
        &expect![[r"
        closed, the road is closed on this host: snp-identity=no known-failure=no
    "]],
    );
    refused(
        &host,
        RoadId::PeerMap,
        &expect![[r"
        closed, the road is closed on this host: sme-mmio=no p2p-mechanism=no
    "]],
    );
    refused(
        &host,
        RoadId::BootPassthrough,
        &expect![[r"
        closed, the road is closed on this host: reboot=no keep-snp=no
    "]],
    );
    refused(
        &host,
        RoadId::AcsDirect,
        &expect![[r"
        closed, the road is closed on this host: common-switch=no
    "]],
    );
    refused(
        &Host::named("kpro6-pve7"),
        RoadId::MappingDriver,
        &expect![[r"
        open, the operator walks this road: 
    "]],
    );
}

#[test]
fn a_failed_transaction_closes_its_road() {
    let mut host = Host::named("fsp");
    assert_eq!(host.roads().road(RoadId::IdentityGroups).unwrap().state, State::Open);
    let mut outcome = Outcome {
        road: RoadId::IdentityGroups,
        board: Some("10de:2bb5".parse().unwrap()),
        driver: "580.95.05".to_owned(),
        kernel: "6.14.11-5-bpo12-pve".to_owned(),
        result: OutcomeResult::Failed,
        reason: "the security processor failed at its boot command".to_owned(),
    };
    host.knowledge.remember(&Known(vec![outcome.clone()]));
    refused(
        &host,
        RoadId::IdentityGroups,
        &expect![[r"
        closed, the road is closed on this host: known-failure=no
    "]],
    );
    // Another driver is another question.
    "590.48.01".clone_into(&mut outcome.driver);
    let mut host = Host::named("fsp");
    host.knowledge.remember(&Known(vec![outcome]));
    assert_eq!(host.roads().road(RoadId::IdentityGroups).unwrap().state, State::Open);
}

/// A host whose devices have no driver of NVIDIA's remembers without a version, and finds that again: what
/// worked does not close its road.
#[test]
fn without_a_drivers_version_what_worked_goes_on_working() {
    let mut host = Host::named("fsp");
    host.snapshot.nvidia.version = Absent;
    let gate = |host: &Host| {
        let roads = host.roads();
        let gates = &roads.road(RoadId::IdentityGroups).unwrap().gates;
        let gate = gates.iter().find(|gate| gate.code == GateCode::KnownFailure).unwrap();
        (gate.passed, gate.read.contains("remembered on this host"))
    };
    let mut outcome = Outcome {
        road: RoadId::IdentityGroups,
        board: Some("10de:2bb5".parse().unwrap()),
        driver: String::new(),
        kernel: "6.14.11-5-bpo12-pve".to_owned(),
        result: OutcomeResult::Succeeded,
        reason: String::new(),
    };
    host.knowledge.remember(&Known(vec![outcome.clone()]));
    assert_eq!(gate(&host), (Passed::Yes, true));
    outcome.result = OutcomeResult::Failed;
    host.knowledge.remember(&Known(vec![outcome]));
    assert_eq!(gate(&host), (Passed::No, true));
    // A version that cannot be read may be any.
    host.snapshot.nvidia.version = Unreadable("permission denied".into());
    assert_eq!(gate(&host).0, Passed::Unknown);
}

#[test]
fn what_was_asked_for_comes_first_and_excluded_roads_stay_listed() {
    let mut host = Host::named("kpro6-pve7");
    host.constraints.asked = Some(RoadId::IdentityGroups);
    host.constraints.exclude = [RoadId::PeerMap].into();
    let roads = host.roads();
    assert_eq!(roads.roads[0].id, RoadId::IdentityGroups);
    assert_eq!(roads.road(RoadId::PeerMap).unwrap().state, State::Closed);
    let held: Vec<String> = roads
        .constraints
        .iter()
        .map(|one| format!("{} = {}: {}", one.name, one.value, one.reason))
        .collect();
    expect![[r"
        goal = lxc:129: 0000:01:00.0 0000:11:00.0 0000:61:00.0 0000:71:00.0: the tenant with the most broken pairs (12)
        protect = host, vm:132: no step may touch what they hold or claim
        no-reboot = no reboot: a reboot would stop vm:132
        keep-snp = SNP stays on: vm:132 needs it: its memory is encrypted
        exclude = peer-map: excluded by the operator"]]
    .assert_eq(&held.join("\n"));
    let order: Vec<&str> = roads.roads.iter().map(|road| road.id.word()).collect();
    expect![[r"
        identity-groups mapping-driver elsewhere live-without peer-map acs-direct vfio-guest boot-passthrough driver-policy"]]
    .assert_eq(&order.join(" "));
}

#[test]
fn a_protected_goal_is_not_touched() {
    let mut host = Host::named("kpro6-pve7");
    host.constraints.protect = [TenantId("lxc:129".to_owned())].into();
    refused(
        &host,
        RoadId::PeerMap,
        &expect![[r"
        closed, the road is closed on this host: protected=no
    "]],
    );
}

#[test]
fn constraints_that_name_nothing_are_wrong_use() {
    let mut host = Host::named("kpro6");
    host.constraints.tenant = Some(TenantId("lxc:7".to_owned()));
    let text = peerway_roads::roads(&host.request()).unwrap_err().to_string();
    expect!["there is no tenant lxc:7 on this host; there are: host, lxc:129, vm:132"]
        .assert_eq(&text);
    let mut host = Host::named("kpro6");
    host.constraints.stop = Stop::Named(vec!["qm:132".parse().unwrap()]);
    let text = peerway_roads::roads(&host.request()).unwrap_err().to_string();
    expect!["stopping qm:132 would stop vm:132, which is not the goal: it is protected"]
        .assert_eq(&text);
    let mut host = Host::named("kpro6");
    host.constraints.tenant = Some(TenantId("lxc:129".to_owned()));
    host.constraints.devices = ["0000:81:00.0".parse().unwrap()].into();
    let text = peerway_roads::roads(&host.request()).unwrap_err().to_string();
    expect!["0000:81:00.0 belongs to vm:132 and not to lxc:129; name devices of one tenant"]
        .assert_eq(&text);
}

#[test]
fn documents_hold_their_schemas() {
    for name in ["kpro6", "kpro6-pve7", "kpro6-pve7-mailbox", "fsp"] {
        let host = Host::named(name);
        let head = peerway_core::document::Head {
            schema: "peerway/roads/1".to_owned(),
            tool_version: "0".to_owned(),
            host: name.to_owned(),
            generated_at: "2026-01-01T00:00:00Z".to_owned(),
        };
        let body = document::Roads::from(host.roads());
        let roads = peerway_core::document::Document { head: head.clone(), body };
        holds("roads", &serde_json::to_value(&roads).unwrap());
        for road in RoadId::ALL {
            let body = match host.plan(road) {
                Ok(plan) => document::Plan::from(plan),
                Err(PlanError::Refused(refusal)) => document::Plan::from(*refusal),
                Err(error) => panic!("{error}"),
            };
            let plan = peerway_core::document::Document { head: head.clone(), body };
            holds("plan", &serde_json::to_value(&plan).unwrap());
        }
    }
    assert!(document::NAMES.iter().all(|name| document::schema(name).is_some()));
}

#[track_caller]
fn holds(name: &str, value: &serde_json::Value) {
    let schema = serde_json::to_value(document::schema(name).unwrap()).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    let errors: Vec<String> = validator.iter_errors(value).map(|error| error.to_string()).collect();
    assert!(errors.is_empty(), "{name}: {errors:?}");
}

#[test]
fn gates_that_are_shown_do_not_decide() {
    let roads = Host::named("kpro6-pve7").roads();
    let road = roads.road(RoadId::PeerMap).unwrap();
    let shown = road.gates.iter().find(|gate| gate.code.word() == "rmp-mmio").unwrap();
    assert_eq!((shown.passed, shown.closes, road.state), (Passed::Unknown, false, State::Open));
}

#[test]
fn a_fault_in_bar0_tells_mailbox_access() {
    let host = Host::named("kpro6-pve7");
    let faults = [SeenFault {
        requester: "0000:01:00.0".parse().unwrap(),
        target: "0000:11:00.0".parse().unwrap(),
        bar: 0,
        count: 3,
    }];
    let request = Request { faults: &faults, ..host.request() };
    let roads = peerway_roads::roads(&request).unwrap();
    let reasons = roads.road(RoadId::PeerMap).unwrap().reasons();
    assert_eq!(reasons[0].code, GateCode::P2pMechanism);
}

#[test]
fn gains_of_this_workload_rank_and_reports_do_not() {
    let mut host = Host::named("kpro6-pve7");
    let order = |host: &Host| -> Vec<RoadId> {
        host.roads().roads.iter().take(3).map(|road| road.id).collect()
    };
    assert_eq!(order(&host), [RoadId::PeerMap, RoadId::MappingDriver, RoadId::Elsewhere]);
    let estimated = |low: f64| Gain {
        text: format!("from {low} %"),
        low_percent: Some(low),
        high_percent: None,
        basis: GainBasis::Estimated,
        source: "test".to_owned(),
    };
    host.gains.insert(RoadId::Elsewhere, estimated(20.0));
    assert_eq!(order(&host), [RoadId::Elsewhere, RoadId::PeerMap, RoadId::MappingDriver]);
    host.gains.insert(RoadId::PeerMap, estimated(30.0));
    assert_eq!(order(&host), [RoadId::PeerMap, RoadId::Elsewhere, RoadId::MappingDriver]);
}

/// What is decided in a guest stays undecided here; whose devices are here is whom the roads are for.
#[test]
fn the_goal_is_somebody_whose_devices_are_here() {
    let mut host = Host::named("kpro6-pve7");
    let goal = |host: &Host| {
        let goal = peerway_roads::roads(&host.request()).unwrap().goal.unwrap();
        format!("{}: {}", goal.tenant.unwrap(), goal.reason)
    };
    expect!["lxc:129: the tenant with the most broken pairs (12)"].assert_eq(&goal(&host));
    for pair in &mut host.pairs {
        if pair.verdict == Verdict::Broken {
            pair.verdict = Verdict::Works;
        }
    }
    expect!["lxc:129: the tenant with the most pairs; none of them is broken"]
        .assert_eq(&goal(&host));
}
