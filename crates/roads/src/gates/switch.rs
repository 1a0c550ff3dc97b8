//! Gates on PCIe switches and their access control.

use std::collections::BTreeSet;

use peerway_core::address::PciAddress;
use peerway_core::judge::Pair;
use peerway_core::observed::Observed;
use peerway_core::route::{Redirect, Turn};

use super::some_of;
use crate::gate::{Gate, GateCode};
use crate::scene::{Member, Scene};

/// Bridges that pairs of the goal have in common.
pub(crate) fn common_bridges(scene: &Scene<'_>) -> BTreeSet<PciAddress> {
    scene
        .pairs()
        .iter()
        .filter_map(|pair| match pair.route.turn {
            Turn::Bridge(bridge) => Some(bridge),
            Turn::NvLink { .. } | Turn::HostBridge | Turn::HostBridges | Turn::Nodes => None,
        })
        .collect()
}

/// Ports between these pairs that redirect, ordered.
pub(crate) fn redirecting_ports<'a>(pairs: impl Iterator<Item = &'a Pair>) -> BTreeSet<PciAddress> {
    pairs
        .filter_map(|pair| match pair.route.redirect() {
            Redirect::By(ports) => Some(ports),
            Redirect::NoCommonBridge | Redirect::None | Redirect::Unknown(_) => None,
        })
        .flatten()
        .collect()
}

/// At least one pair has a common bridge, with redirect between the two.
pub(crate) fn common_switch(scene: &Scene<'_>) -> Gate {
    let bridges = common_bridges(scene);
    if bridges.is_empty() {
        let turns: BTreeSet<&str> = scene
            .pairs()
            .iter()
            .map(|pair| match pair.route.turn {
                Turn::NvLink { .. } => "NVLink",
                Turn::Bridge(_) => "a common bridge",
                Turn::HostBridge => "two root ports of one host bridge",
                Turn::HostBridges => "two host bridges",
                Turn::Nodes => "two host bridges on different NUMA nodes",
            })
            .collect();
        let turns = turns.into_iter().collect::<Vec<_>>().join(", ");
        return Gate::fail(
            GateCode::CommonSwitch,
            format!("the pairs' requests turn at: {turns}"),
            "slots below one PCIe switch",
        );
    }
    let ports = redirecting_ports(scene.pairs().iter().copied());
    if ports.is_empty() {
        return Gate::unknown(
            GateCode::CommonSwitch,
            format!("common bridges = {}; no port was seen to redirect", list(&bridges)),
            "a readable configuration space (root) of the ports",
        );
    }
    Gate::pass(
        GateCode::CommonSwitch,
        format!("common bridges = {}; redirecting ports = {}", list(&bridges), list(&ports)),
    )
}

fn list(addresses: &BTreeSet<PciAddress>) -> String {
    let texts: Vec<String> = addresses.iter().map(ToString::to_string).collect();
    texts.join(" ")
}

/// Access control of every port between the pairs was read.
pub(crate) fn acs_readable(scene: &Scene<'_>) -> Gate {
    let mut unread = BTreeSet::new();
    let mut read = BTreeSet::new();
    for pair in scene.pairs().iter().filter(|pair| matches!(pair.route.turn, Turn::Bridge(_))) {
        for port in pair.route.up.iter().chain(&pair.route.down) {
            match &port.acs {
                Observed::Known(acs) => {
                    read.insert(format!("{}: {}", port.address, acs.words()));
                }
                Observed::Absent => {
                    read.insert(format!("{}: no such capability", port.address));
                }
                Observed::Unreadable(why) => {
                    unread.insert(format!("{}: unknown ({why})", port.address));
                }
            }
        }
    }
    let unread: Vec<String> = unread.into_iter().collect();
    let read: Vec<String> = read.into_iter().collect();
    if unread.is_empty() {
        Gate::pass(GateCode::AcsReadable, some_of(&read))
    } else {
        Gate::unknown(
            GateCode::AcsReadable,
            some_of(&unread),
            "running as root (CAP_SYS_ADMIN), with the ports awake",
        )
    }
}

/// Everything below the common bridges is the goal's tenant's: without redirect, what hangs there
/// reaches its neighbours without the IOMMU.
pub(crate) fn below(scene: &Scene<'_>) -> Gate {
    let bridges = common_bridges(scene);
    let mut read = Vec::new();
    let mut foreign = Vec::new();
    let mut unread = Vec::new();
    let endpoints = scene.snapshot().devices.iter().filter(|device| {
        !device.is_bridge() && device.ancestors.iter().any(|above| bridges.contains(above))
    });
    for endpoint in endpoints {
        match scene.member(endpoint.address) {
            Member::Foreign(why) => foreign.push(why),
            Member::Unknown(why) => unread.push(why),
            Member::Bridge => {}
            Member::Goal | Member::Sibling | Member::Memory | Member::Own => {
                read.push(endpoint.address.to_string());
            }
        }
    }
    if !foreign.is_empty() {
        return Gate::fail(
            GateCode::OneTenant,
            format!("below {}: {}", list(&bridges), some_of(&foreign)),
            "one tenant for everything below the switch",
        );
    }
    if !unread.is_empty() {
        return Gate::unknown(GateCode::OneTenant, some_of(&unread), "readable driver links");
    }
    if let Some(why) = super::tenants::unread_claims(scene) {
        let lifts = "readable configurations of guests and containers";
        return Gate::unknown(GateCode::OneTenant, why, lifts);
    }
    Gate::pass(GateCode::OneTenant, format!("below {}: {}", list(&bridges), some_of(&read)))
}
