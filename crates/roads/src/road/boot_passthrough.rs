//! `boot-passthrough`: the whole host booted with default domains of type identity.

use peerway_core::command_line::{self, Effect};

use super::{Actor, Draft, Reversible, everybody};
use crate::gate::Passed;
use crate::gates::{encryption, kernel, pairs, tenants};
use crate::id::RoadId;
use crate::knowledge::EvidenceLevel;
use crate::operator;
use crate::scene::Scene;

pub(super) fn road(scene: &Scene<'_>) -> Draft {
    let id = RoadId::BootPassthrough;
    let gates = vec![
        pairs::goal(scene),
        pairs::broken_pairs(scene),
        pairs::in_guest(scene),
        tenants::protected(scene),
        tenants::reboot(scene),
        encryption::keep_snp(scene),
        kernel::pass_through_mode(scene),
        pairs::driver_offers(scene),
        pairs::reachable(scene),
        pairs::routing(scene),
        kernel::known_failure(scene, id),
    ];
    let mut notes = vec![
        "every device of the host loses its isolation from the host's memory, not only the GPUs; \
         devices given to guests keep the guest's domain while it runs"
            .to_owned(),
        "with it the kernel drops SNP, unless the IOMMU has EFR2 bit 13 and the kernel is 7.3 or \
         later"
            .to_owned(),
    ];
    notes.extend(encryption::bounced(scene));
    Draft {
        in_force: in_force(scene),
        reboot: true,
        disturbs: everybody(scene),
        reversible: Reversible::Conditional,
        level: EvidenceLevel::HardwareElsewhere,
        interacts: &[RoadId::PeerMap, RoadId::IdentityGroups, RoadId::VfioGuest],
        notes,
        guide: operator::boot::passthrough(),
        ..Draft::new(Actor::Operator, gates)
    }
}

fn in_force(scene: &Scene<'_>) -> Passed {
    let Some(line) = scene.snapshot().kernel.command_line.known() else { return Passed::Unknown };
    // The last word counts.
    let last = command_line::parse(line).into_iter().rev().find(|word| {
        word.meaning.has(Effect::PassThrough)
            || (word.meaning.has(Effect::Translates) && word.key == "iommu")
    });
    match last {
        Some(word) if word.meaning.has(Effect::PassThrough) => Passed::Yes,
        Some(_) | None => Passed::No,
    }
}
