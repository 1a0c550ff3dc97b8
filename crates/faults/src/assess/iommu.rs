//! IOMMU faults and events by the class of who sent them.

use peerway_core::snapshot::faults::{FaultClass, Faulting};

use super::{Assessed, Case, rank};

pub(super) fn check(case: &Case<'_>) -> Vec<Assessed> {
    let Some(facts) = case.facts() else { return Vec::new() };
    let mut found = Vec::new();
    // Other classes are ordered by how much of the log they are.
    let mut by_count: Vec<(u64, FaultClass)> =
        [FaultClass::GpuOther, FaultClass::OtherDevice, FaultClass::UnknownDevice]
            .map(|class| (facts.of_class(class).map(|one| one.count).sum(), class))
            .to_vec();
    by_count.sort_by_key(|(count, class)| (std::cmp::Reverse(*count), *class));
    let place = |class: FaultClass| {
        let at = by_count.iter().position(|(_, other)| *other == class).unwrap_or(0);
        rank::FAULTS + u16::try_from(at).unwrap_or(0)
    };
    for (class, rank) in [
        (FaultClass::PeerAccess, rank::PEER_FAULTS),
        (FaultClass::GpuOther, place(FaultClass::GpuOther)),
        (FaultClass::OtherDevice, place(FaultClass::OtherDevice)),
        (FaultClass::UnknownDevice, place(FaultClass::UnknownDevice)),
        (FaultClass::Smmu, rank::FAULTS + 3),
        (FaultClass::Rmp, rank::RMP),
        (FaultClass::Event, rank::IOMMU_EVENT),
    ] {
        let rows: Vec<&Faulting> = facts.of_class(class).collect();
        let Some(first) = rows.first() else { continue };
        let targets = rows.iter().flat_map(|one| &one.hits).map(|hit| hit.device.to_string());
        found.push(
            Assessed::new(class.assessment(), rank, first.why.clone())
                .about(rows.iter().map(|one| &one.name))
                .about(targets),
        );
    }
    if facts.stuck > 0 {
        found.push(Assessed::new(
            FaultClass::Event.assessment(),
            rank::IOMMU_EVENT,
            "an IOMMU does not complete its commands",
        ));
    }
    found
}
