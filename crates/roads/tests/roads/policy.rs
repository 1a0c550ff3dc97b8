//! What the road of the driver's parameters proposes, and what it must not.

use crate::host::Host;
use peerway_core::observed::Observed;
use peerway_roads::road::State;
use peerway_roads::{GateCode, Passed, RoadId};

/// State of the road, and all lines of its guides.
fn policy(host: &Host) -> (State, String) {
    let roads = host.roads();
    let road = roads.road(RoadId::DriverPolicy).unwrap();
    let lines = road.guide.iter().flat_map(|guide| guide.lines.clone()).collect::<Vec<_>>();
    (road.state, lines.join("\n"))
}

fn with_parameter(name: &str, key: &str, value: &str) -> Host {
    let mut snapshot = Host::named(name).snapshot;
    match &mut snapshot.nvidia.params {
        Observed::Known(params) => drop(params.insert(key.to_owned(), value.to_owned())),
        other => panic!("{other:?}"),
    }
    Host::with(snapshot)
}

#[test]
fn a_forced_answer_is_not_handed_out() {
    let forced = with_parameter("geforce-stock", "RegistryDwords", "ForceP2P=0x11");
    for host in [Host::named("geforce-stock"), forced] {
        let (state, lines) = policy(&host);
        assert_eq!(state, State::Closed, "{lines}");
        assert!(!lines.contains("RegistryDwords=\"ForceP2P"), "{lines}");
        assert!(lines.contains("# ForceP2P=0x11 would make"), "{lines}");
    }
}

#[test]
fn a_forced_answer_opens_no_road() {
    let host = with_parameter("geforce-stock", "RegistryDwords", "ForceP2P=0x11");
    let roads = host.roads();
    let road = roads.road(RoadId::IdentityGroups).unwrap();
    let offers = road.gates.iter().find(|gate| gate.code == GateCode::DriverOffers).unwrap();
    assert_eq!(offers.passed, Passed::Unknown);
}

#[test]
fn nvlink_is_not_switched_off() {
    for name in ["hgx-h100", "hgx-h100-translated"] {
        let (state, lines) = policy(&Host::named(name));
        assert_eq!(state, State::Closed, "{lines}");
        assert!(!lines.contains("RMForceP2PType=2\""), "{lines}");
        assert!(lines.contains("forces one type for all pairs"), "{lines}");
    }
}

#[test]
fn a_driver_told_not_to_map_is_told_otherwise() {
    let host = Host::named("kernel-6.8-no-remap");
    let (state, lines) = policy(&host);
    assert_eq!(state, State::Open);
    assert!(lines.contains("take NVreg_DmaRemapPeerMmio=0 out"), "{lines}");
    let roads = host.roads();
    let rebuilt = roads.road(RoadId::MappingDriver).unwrap();
    assert!(rebuilt.notes[0].starts_with("needs DmaRemapPeerMmio: 1"), "{:?}", rebuilt.notes);
}
