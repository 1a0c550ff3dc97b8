//! The order of the roads: what was asked for first, then gain, risk, reversibility and who is
//! disturbed. The order is total and does not depend on the order of devices.

use std::cmp::Reverse;

use crate::id::RoadId;
use crate::road::{Road, State};

/// What a road restores: those that bring peer access back go before those that do not.
fn tier(id: RoadId) -> (u8, &'static str) {
    match id {
        RoadId::PeerMap
        | RoadId::IdentityGroups
        | RoadId::AcsDirect
        | RoadId::VfioGuest
        | RoadId::MappingDriver
        | RoadId::BootPassthrough => (0, "brings peer access back"),
        RoadId::Elsewhere => (1, "speeds the workload up without peer access"),
        RoadId::DriverPolicy => (2, "prepares other roads"),
        RoadId::LiveWithout => (3, "keeps results right without peer access"),
    }
}

/// What may go wrong, and how much is opened to how many.
fn risk(id: RoadId) -> (u8, &'static str) {
    match id {
        RoadId::LiveWithout => (0, "changes nothing on the host"),
        RoadId::Elsewhere => (1, "touches the workload only"),
        RoadId::PeerMap => (2, "opens the peers' memory and nothing else, without unbinding"),
        RoadId::DriverPolicy => (3, "reloads the driver"),
        RoadId::AcsDirect => (4, "ends isolation below one switch"),
        RoadId::MappingDriver => (5, "replaces the driver"),
        RoadId::VfioGuest => (6, "moves the workload into a guest"),
        RoadId::IdentityGroups => (7, "opens all memory to the GPUs, with unbind and rebind"),
        RoadId::BootPassthrough => (8, "opens all memory to every device, with a reboot"),
    }
}

/// Orders roads, gives each its rank and the reason for it.
pub(crate) fn rank(roads: &mut [Road], asked: Option<RoadId>) {
    roads.sort_by_key(|road| {
        (
            Some(road.id) != asked,
            match road.state {
                State::Open => 0_u8,
                State::Unknown => 1,
                State::Closed => 2,
            },
            Reverse(road.gain.hundredths()),
            tier(road.id).0,
            risk(road.id).0,
            road.reversible,
            road.disturbs.len(),
            road.id,
        )
    });
    let mut place = 0;
    for road in roads {
        place += 1;
        road.rank = place;
        road.rank_reason = reason(road, asked);
    }
}

fn reason(road: &Road, asked: Option<RoadId>) -> String {
    let first = if Some(road.id) == asked { "asked for; " } else { "" };
    let gain = match (road.gain.ranks(), road.gain.high_percent) {
        (Some(low), Some(high)) => format!("gain {low} to {high} %"),
        (Some(low), None) => format!("gain from {low} %"),
        (None, _) => "gain not estimated for this workload".to_owned(),
    };
    let disturbed = if road.disturbs.is_empty() {
        "disturbs nobody".to_owned()
    } else {
        let names: Vec<String> = road.disturbs.iter().map(ToString::to_string).collect();
        format!("disturbs {}", names.join(", "))
    };
    format!("{first}{}: {}; {gain}; {}; {disturbed}", road.state, tier(road.id).1, risk(road.id).1)
}
