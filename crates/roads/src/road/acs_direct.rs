//! `acs-direct`: redirect cleared on the switch ports between the tenant's devices, so that raw
//! addresses turn in the switch and never meet the IOMMU.

use peerway_core::route::Redirect;
use peerway_core::snapshot::kernel::Tristate;

use super::{Actor, Draft, goals_tenant};
use crate::gate::Passed;
use crate::gates::{kernel, pairs, switch, tenants};
use crate::id::RoadId;
use crate::knowledge::EvidenceLevel;
use crate::scene::Scene;

pub(super) fn road(scene: &Scene<'_>) -> Draft {
    let id = RoadId::AcsDirect;
    let mut gates = vec![
        pairs::goal(scene),
        pairs::broken_pairs(scene),
        pairs::in_guest(scene),
        tenants::contested(scene),
        tenants::protected(scene),
        switch::common_switch(scene),
    ];
    // Without a common bridge there is nothing to read, and nothing below it.
    if !switch::common_bridges(scene).is_empty() {
        gates.extend([switch::acs_readable(scene), switch::below(scene)]);
    }
    gates.extend([
        pairs::driver_offers(scene),
        pairs::raw_addresses(scene),
        pairs::reachable(scene),
        kernel::secure_boot(scene, false),
        kernel::known_failure(scene, id),
        tenants::holders(scene),
    ]);
    let mut notes = vec![
        "what hangs below the switch is no longer isolated from its neighbours, while the kernel's \
         groups still say that it is, until the bus is scanned anew"
            .to_owned(),
        "a reset or resume of a port brings the kernel's own bits back".to_owned(),
    ];
    if let Some(fact) = scene.knowledge().fact("acs-reapplied")
        && scene.fact("acs-reapplied") != Tristate::No
    {
        notes.push(fact.text.clone());
    }
    let direct =
        scene.pairs().iter().filter(|pair| pair.route.redirect() == Redirect::NoCommonBridge);
    let direct = direct.count();
    match direct {
        0 => {}
        1 => notes.push("1 pair has no common bridge: it stays as it is".to_owned()),
        _ => notes.push(format!("{direct} pairs have no common bridge: they stay as they are")),
    }
    Draft {
        in_force: in_force(scene),
        disturbs: goals_tenant(scene),
        level: EvidenceLevel::Source,
        interacts: &[RoadId::PeerMap, RoadId::IdentityGroups, RoadId::LiveWithout],
        notes,
        ..Draft::new(Actor::Peerway, gates)
    }
}

fn in_force(scene: &Scene<'_>) -> Passed {
    let redirects: Vec<Redirect> = scene.pairs().iter().map(|pair| pair.route.redirect()).collect();
    let has = |want: fn(&Redirect) -> bool| redirects.iter().any(want);
    if has(|one| matches!(one, Redirect::By(_))) {
        Passed::No
    } else if has(|one| matches!(one, Redirect::Unknown(_))) {
        Passed::Unknown
    } else if has(|one| *one == Redirect::None) {
        Passed::Yes
    } else {
        Passed::No
    }
}
