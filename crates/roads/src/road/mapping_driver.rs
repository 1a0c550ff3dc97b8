//! `mapping-driver`: the driver has the kernel map peer memory, by a kernel that the stock driver
//! asks (5.9 to 6.11) or by the open driver rebuilt so that it always asks.

use peerway_core::judge::addressing;

use super::{Actor, Draft, Reversible, goals_tenant};
use crate::gate::{Gate, GateCode, Passed};
use crate::gates::pairs::Addresses;
use crate::gates::{driver, encryption, group, kernel, pairs, tenants};
use crate::id::RoadId;
use crate::knowledge::EvidenceLevel;
use crate::operator;
use crate::scene::Scene;

pub(super) fn road(scene: &Scene<'_>) -> Draft {
    let id = RoadId::MappingDriver;
    let addresses = pairs::addresses(scene);
    let in_force = match &addresses {
        Addresses::Mapped(_) => Passed::Yes,
        Addresses::Raw(_) => Passed::No,
        Addresses::Unknown(_) => Passed::Unknown,
    };
    let gates = vec![
        pairs::goal(scene),
        pairs::broken_pairs(scene),
        pairs::in_guest(scene),
        tenants::one_tenant(scene),
        tenants::contested(scene),
        tenants::protected(scene),
        driver::open_driver(scene),
        group::translating(scene, true),
        pairs::driver_offers(scene),
        uses_raw(addresses),
        pairs::reachable(scene),
        pairs::routing(scene),
        encryption::sme_mmio(scene),
        encryption::rmp_mmio(scene),
        tenants::driver_shared(scene),
        kernel::known_failure(scene, id),
    ];
    let mut notes = vec![
        "nobody has verified it on hardware: the driver's own code asks the kernel to map, and the \
         lab has seen that call work"
            .to_owned(),
        "the vendor supports no PCIe peer access under a translating IOMMU".to_owned(),
    ];
    if addressing::told_not_to_map(scene.snapshot()) {
        notes.insert(
            0,
            "needs DmaRemapPeerMmio: 1, and it is 0 here: see driver-policy, which alone is enough \
             on kernels 5.9 to 6.11"
                .to_owned(),
        );
    }
    Draft {
        in_force,
        disturbs: goals_tenant(scene),
        reversible: Reversible::Conditional,
        level: EvidenceLevel::Source,
        interacts: &[RoadId::PeerMap, RoadId::DriverPolicy, RoadId::Elsewhere],
        notes,
        guide: operator::rebuild::driver(scene),
        ..Draft::new(Actor::Operator, gates)
    }
}

/// The same question as `raw-addresses`, with what it means for this road.
fn uses_raw(addresses: Addresses) -> Gate {
    match addresses {
        Addresses::Raw(read) => Gate::pass(GateCode::RawAddresses, read),
        Addresses::Mapped(read) => Gate::fail(
            GateCode::RawAddresses,
            format!("{read}: in force already"),
            "nothing: the driver maps its peers",
        ),
        Addresses::Unknown(read) => {
            Gate::unknown(GateCode::RawAddresses, read, "peerway diagnose; peerway test")
        }
    }
}
