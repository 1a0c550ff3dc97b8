//! What `roads` says on the simulated hosts: the table of the reference host.

use crate::host::Host;
use expect_test::{Expect, expect};
use peerway_roads::{Passed, RoadId};

/// One line a road, in the order of the names: state, who closes it, whether it is in force, and
/// the gates that stand in the way or are shown as unknown.
#[track_caller]
fn check(name: &str, expected: &Expect) {
    let roads = Host::named(name).roads();
    let mut table = String::new();
    for id in RoadId::ALL {
        let road = roads.road(id).unwrap();
        let by = match road.closed_by {
            Some(by) => serde_json::to_value(by).unwrap().as_str().unwrap().to_owned(),
            None => "-".to_owned(),
        };
        let gates: Vec<String> = road
            .gates
            .iter()
            .filter(|gate| gate.passed != Passed::Yes)
            .map(|gate| {
                let shown = if gate.closes { "" } else { " (shown)" };
                format!("{}={}{shown}", gate.code, gate.passed)
            })
            .collect();
        let actor = serde_json::to_value(road.actor).unwrap();
        let line = format!(
            "{:17} {:7} {:11} in force {:8} {:9} {}",
            id.word(),
            road.state.to_string(),
            by,
            road.in_force.to_string(),
            actor.as_str().unwrap(),
            gates.join(" ")
        );
        table.push_str(line.trim_end());
        table.push('\n');
    }
    expected.assert_eq(&table);
}

#[test]
fn the_reference_host() {
    check(
        "kpro6",
        &expect![[r"
            peer-map          closed  gate        in force no       peerway   sme-mmio=no rmp-mmio=unknown (shown) p2p-mechanism=no
            identity-groups   closed  gate        in force no       peerway   snp-identity=no known-failure=no
            acs-direct        closed  gate        in force no       peerway   common-switch=no
            vfio-guest        closed  gate        in force no       operator  sme-mmio=no rmp-mmio=unknown (shown)
            mapping-driver    closed  gate        in force no       operator  sme-mmio=no rmp-mmio=unknown (shown)
            boot-passthrough  closed  constraint  in force no       operator  reboot=no keep-snp=no
            driver-policy     open    -           in force no       operator
            live-without      open    -           in force yes      peerway
            elsewhere         open    -           in force unknown  operator
        "]],
    );
}

#[test]
fn after_the_update_with_bar1() {
    check(
        "kpro6-pve7",
        &expect![[r"
            peer-map          open    -           in force no       peerway   rmp-mmio=unknown (shown)
            identity-groups   closed  gate        in force no       peerway   snp-identity=no
            acs-direct        closed  gate        in force no       peerway   common-switch=no
            vfio-guest        closed  gate        in force no       operator  sme-mmio=no rmp-mmio=unknown (shown)
            mapping-driver    open    -           in force no       operator  rmp-mmio=unknown (shown)
            boot-passthrough  closed  constraint  in force no       operator  reboot=no keep-snp=no
            driver-policy     closed  gate        in force yes      operator  policy-applies=no
            live-without      open    -           in force yes      peerway
            elsewhere         open    -           in force unknown  operator
        "]],
    );
}

#[test]
fn after_the_update_with_mailbox() {
    check(
        "kpro6-pve7-mailbox",
        &expect![[r"
            peer-map          closed  gate        in force no       peerway   rmp-mmio=unknown (shown) p2p-mechanism=no
            identity-groups   closed  gate        in force no       peerway   snp-identity=no
            acs-direct        closed  gate        in force no       peerway   common-switch=no
            vfio-guest        closed  gate        in force no       operator  sme-mmio=no rmp-mmio=unknown (shown)
            mapping-driver    open    -           in force no       operator  rmp-mmio=unknown (shown)
            boot-passthrough  closed  constraint  in force no       operator  reboot=no keep-snp=no
            driver-policy     open    -           in force no       operator
            live-without      open    -           in force yes      peerway
            elsewhere         open    -           in force unknown  operator
        "]],
    );
}

#[test]
fn boards_that_fail_under_identity() {
    check(
        "fsp",
        &expect![[r"
            peer-map          closed  gate        in force no       peerway   p2p-mechanism=no
            identity-groups   open    -           in force no       peerway
            acs-direct        closed  gate        in force no       peerway   common-switch=no
            vfio-guest        open    -           in force no       operator
            mapping-driver    open    -           in force no       operator
            boot-passthrough  closed  constraint  in force no       operator  reboot=no
            driver-policy     open    -           in force no       operator
            live-without      open    -           in force yes      peerway
            elsewhere         open    -           in force unknown  operator
        "]],
    );
}
