//! `peer-map`: one-to-one entries for the tenant's own peer memory in each requester's translating
//! domain, live, without unbinding and without an identity domain.

use peerway_core::snapshot::iommu::IommuVendor;

use super::{Actor, Draft, goals_tenant};
use crate::gate::Passed;
use crate::gates::group::Company;
use crate::gates::{addresses, driver, encryption, group, kernel, pairs, tenants};
use crate::id::RoadId;
use crate::knowledge::EvidenceLevel;
use crate::operator;
use crate::scene::Scene;

pub(super) fn road(scene: &Scene<'_>) -> Draft {
    let id = RoadId::PeerMap;
    let gates = vec![
        pairs::goal(scene),
        pairs::broken_pairs(scene),
        pairs::in_guest(scene),
        tenants::one_tenant(scene),
        tenants::contested(scene),
        tenants::protected(scene),
        driver::bound(scene),
        group::translating(scene, true),
        pairs::driver_offers(scene),
        pairs::raw_addresses(scene),
        pairs::reachable(scene),
        pairs::routing(scene),
        encryption::sme_mmio(scene),
        encryption::rmp_mmio(scene),
        driver::p2p_mechanism(scene),
        addresses::addresses_free(scene),
        group::group_members(scene, Company::Tenants),
        kernel::module(scene),
        kernel::secure_boot(scene, true),
        kernel::known_failure(scene, id),
        tenants::holders(scene),
    ];
    let mut notes = vec![
        "it opens exactly the peers' memory to each GPU; the groups stay translated and isolated \
         from everybody else"
            .to_owned(),
        "a map is lost when a GPU's driver is unbound or the module is removed; the safe \
         environment is written first, and no map is taken away while a process holds a GPU"
            .to_owned(),
    ];
    let ats: Vec<String> = scene
        .devices()
        .iter()
        .filter(|device| {
            let config = device.config.known();
            config.and_then(|config| config.ats.known()).is_some_and(|ats| ats.enabled)
        })
        .map(|device| device.address.to_string())
        .collect();
    if !ats.is_empty() {
        notes.push(format!("ATS is enabled on {}: a map with ATS is untested", ats.join(" ")));
    }
    let mut guide = operator::module::install();
    if gates
        .iter()
        .any(|gate| gate.code == crate::gate::GateCode::SmeMmio && gate.passed != Passed::Yes)
    {
        guide.push(operator::firmware::without_sme(scene));
    }
    Draft {
        in_force: in_force(scene),
        disturbs: goals_tenant(scene),
        level: match scene.snapshot().iommu_vendor() {
            Some(IommuVendor::Intel) => EvidenceLevel::Lab,
            Some(IommuVendor::Amd) => EvidenceLevel::Emulated,
            Some(IommuVendor::Arm | IommuVendor::Other) | None => EvidenceLevel::Inferred,
        },
        interacts: &[
            RoadId::IdentityGroups,
            RoadId::MappingDriver,
            RoadId::DriverPolicy,
            RoadId::LiveWithout,
            RoadId::Elsewhere,
        ],
        notes,
        guide,
        ..Draft::new(Actor::Peerway, gates)
    }
}

/// Whether the map serves every pair of the goal.
fn in_force(scene: &Scene<'_>) -> Passed {
    let devices = scene.devices();
    let pairs = devices.iter().flat_map(|from| {
        devices.iter().filter(|to| to.address != from.address).map(|to| (*from, *to))
    });
    scene.snapshot().map_serves(pairs).into()
}
