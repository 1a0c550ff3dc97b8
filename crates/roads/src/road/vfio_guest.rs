//! `vfio-guest`: the tenant's devices in one virtual machine; VFIO maps each device's memory into
//! the guest's domain, so peer addresses are valid there.

use super::{Actor, Draft, Reversible, goals_tenant};
use crate::gate::Passed;
use crate::gates::group::Company;
use crate::gates::{encryption, group, kernel, pairs, tenants};
use crate::id::RoadId;
use crate::knowledge::EvidenceLevel;
use crate::operator;
use crate::scene::Scene;

pub(super) fn road(scene: &Scene<'_>) -> Draft {
    let id = RoadId::VfioGuest;
    let gates = vec![
        pairs::goal(scene),
        pairs::broken_pairs(scene),
        pairs::in_guest(scene),
        tenants::one_tenant(scene),
        tenants::contested(scene),
        tenants::protected(scene),
        encryption::confidential(scene),
        group::covered(scene),
        encryption::sme_vfio(scene),
        encryption::rmp_mmio(scene),
        pairs::reachable(scene),
        pairs::routing(scene),
        group::group_members(scene, Company::DevicesOnly),
        kernel::real_groups(scene),
        kernel::known_failure(scene, id),
    ];
    let guest = scene.goal_is_guest() && !scene.devices().is_empty();
    Draft {
        in_force: if guest { Passed::Yes } else { Passed::No },
        disturbs: goals_tenant(scene),
        reversible: Reversible::Conditional,
        level: EvidenceLevel::HardwareElsewhere,
        interacts: &[RoadId::PeerMap, RoadId::IdentityGroups],
        notes: vec![
            "the workload moves from the host or its container into the guest".to_owned(),
            "inside the guest, the peer clique only tells the driver that peer access is allowed: \
             a report of wrong data with it (NVIDIA/nccl issue 2335) says to measure first"
                .to_owned(),
        ],
        guide: operator::guest::configuration(scene),
        ..Draft::new(Actor::Operator, gates)
    }
}
