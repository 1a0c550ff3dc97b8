//! `identity-groups`: the tenant's groups switched to identity domains, with unbind and rebind.

use peerway_core::observed::Observed;
use peerway_core::snapshot::iommu::DomainType;
use peerway_core::snapshot::kernel::Tristate;

use super::{Actor, Draft, Reversible, goals_tenant};
use crate::gate::Passed;
use crate::gates::group::Company;
use crate::gates::{driver, encryption, group, kernel, pairs, tenants};
use crate::id::RoadId;
use crate::knowledge::EvidenceLevel;
use crate::scene::Scene;

pub(super) fn road(scene: &Scene<'_>) -> Draft {
    let id = RoadId::IdentityGroups;
    let gates = vec![
        pairs::goal(scene),
        pairs::broken_pairs(scene),
        pairs::in_guest(scene),
        tenants::one_tenant(scene),
        tenants::contested(scene),
        tenants::protected(scene),
        driver::bound(scene),
        group::translating(scene, false),
        pairs::driver_offers(scene),
        pairs::reachable(scene),
        pairs::routing(scene),
        kernel::kernel_era(scene),
        encryption::snp_identity(scene),
        kernel::pass_through_mode(scene),
        group::group_members(scene, Company::DevicesOnly),
        kernel::real_groups(scene),
        group::untrusted(scene),
        kernel::known_failure(scene, id),
        driver::unbind_hazard(scene),
        driver::minors(scene),
        tenants::holders(scene),
    ];
    let mut notes = vec![
        "an identity domain opens all of the host's memory to the GPU, and so to its firmware and \
         driver"
            .to_owned(),
        "the setting is the group's: it is lost at a reboot and when the device is removed"
            .to_owned(),
    ];
    notes.extend(encryption::bounced(scene));
    let hazard = driver::hazard(scene);
    Draft {
        in_force: in_force(scene),
        disturbs: goals_tenant(scene),
        reversible: if hazard == Tristate::No { Reversible::Yes } else { Reversible::Conditional },
        level: EvidenceLevel::Lab,
        interacts: &[
            RoadId::PeerMap,
            RoadId::BootPassthrough,
            RoadId::LiveWithout,
            RoadId::Elsewhere,
        ],
        notes,
        ..Draft::new(Actor::Peerway, gates)
    }
}

fn in_force(scene: &Scene<'_>) -> Passed {
    let domains: Vec<_> =
        scene.devices().iter().map(|device| scene.snapshot().domain_of(device)).collect();
    let identity = Observed::Known(DomainType::Identity);
    if domains.is_empty() || domains.iter().any(|one| one.unreadable().is_some()) {
        Passed::Unknown
    } else if domains.iter().all(|one| *one == identity) {
        Passed::Yes
    } else {
        Passed::No
    }
}
