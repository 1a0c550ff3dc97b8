//! Configuration of guests, listings of groups.

use peerway_core::diagnose::assessment::Assessment;

use super::{Assessed, Case, rank};

pub(super) fn check(case: &Case<'_>) -> Vec<Assessed> {
    let mut found = Vec::new();
    let configured = &case.material.configured;
    if !configured.is_empty() {
        let why = "configurations give devices to guests: whoever they name must not be disturbed";
        found.push(
            Assessed::new(Assessment::TenantConfig, rank::TENANTS, why)
                .about(configured.iter().filter_map(|one| one.device)),
        );
    }
    if !case.material.groups.is_empty() {
        let why = "a listing of IOMMU groups: which devices share one, and nothing about faults";
        let gpus: Vec<u32> = case
            .snapshot
            .groups
            .iter()
            .filter(|group| {
                group.devices.iter().any(|device| {
                    case.snapshot
                        .device(*device)
                        .is_some_and(peerway_core::snapshot::pci::PciDevice::is_gpu)
                })
            })
            .map(|group| group.id)
            .collect();
        let members = case
            .snapshot
            .groups
            .iter()
            .filter(|group| gpus.contains(&group.id))
            .flat_map(|group| &group.devices);
        found.push(Assessed::new(Assessment::IommuGroups, rank::GROUPS, why).about(members));
    }
    found
}
