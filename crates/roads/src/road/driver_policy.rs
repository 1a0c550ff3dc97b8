//! `driver-policy`: the driver's parameters for peer access, and NCCL's, spelled right.

use peerway_core::judge::addressing::registry_key;

use super::{Actor, Draft, Reversible, goals_tenant};
use crate::gain::Gain;
use crate::gate::Passed;
use crate::gates::{driver, pairs, tenants};
use crate::id::RoadId;
use crate::knowledge::EvidenceLevel;
use crate::operator;
use crate::scene::Scene;

pub(super) fn road(scene: &Scene<'_>) -> Draft {
    let gates = vec![
        pairs::goal(scene),
        pairs::in_guest(scene),
        tenants::one_tenant(scene),
        tenants::contested(scene),
        tenants::protected(scene),
        driver::policy_applies(scene),
        tenants::driver_shared(scene),
    ];
    let mut guide = operator::parameters::driver(scene);
    guide.push(operator::firmware::addresses(scene));
    Draft {
        in_force: in_force(scene),
        disturbs: goals_tenant(scene),
        reversible: Reversible::Conditional,
        level: EvidenceLevel::Source,
        interacts: &[RoadId::PeerMap, RoadId::MappingDriver],
        gain: Gain::not_estimated("nothing by itself: it opens other roads"),
        notes: vec![
            "no parameter of the driver makes a translating IOMMU pass a raw address".to_owned(),
            "with ForceP2P every capability answer (nvidia-smi topo -p2p, canAccessPeer) is \
             worthless as evidence"
                .to_owned(),
        ],
        guide,
        ..Draft::new(Actor::Operator, gates)
    }
}

fn in_force(scene: &Scene<'_>) -> Passed {
    let snapshot = scene.snapshot();
    if snapshot.nvidia.params.known().is_none() {
        return Passed::Unknown;
    }
    let set = ["ForceP2P", "RMForceP2P", "RMPcieP2PType", "RMForceP2PType"]
        .iter()
        .any(|key| registry_key(snapshot, key).is_some());
    if set { Passed::Yes } else { Passed::No }
}
