//! PW0408: firmware wants memory of a GPU mapped one to one.

use super::support;
use crate::code::UNITY_MAPPING;
use crate::diagnose::finding::{Finding, Severity, group_file};
use crate::diagnose::{Context, Rule};
use crate::judge::Confidence;
use crate::observed::Observed;

pub(super) const RULE: Rule = Rule {
    code: UNITY_MAPPING,
    title: "firmware reserves memory that this GPU's group must have mapped one to one",
    page: "\
Firmware listed a memory range for a device of this group (a unity range in AMD's IVRS table, a
reserved memory region in Intel's DMAR) that has to be in the device's page table at the very same
addresses, because firmware keeps using the device behind the system's back.

How it was seen: lines of the kind `direct` in the group's `reserved_regions`. Lines of the kind
`direct-relaxable` are ranges of USB and graphics devices that the kernel gives up when it has to;
`msi` and `reserved` lines are on every host. None of those three leads to this finding.

Why it matters: VFIO refuses such a device (`Firmware has requested this device have a 1:1 IOMMU
mapping, rejecting …`), so that it cannot go to a guest. The range is part of the device's address
space, and a peer map must not lie over it. For peer access on the host itself it changes nothing.

On a GPU it is unusual. Some servers reserve a range for the management controller on every device,
the GPUs included.

What helps: a firmware option of the maker that leaves the range out for slots with GPUs; look for
shared memory or management features of that slot. Proxmox kernels have a word for Intel hosts that
relaxes the rule; it lets a guest's device write into memory that firmware uses.

What not to believe: that the one-to-one entries make peer addresses pass. They cover firmware's
range only.

Sources: `drivers/iommu/iommu.c`, `iommu_get_group_resv_regions`;
`Documentation/ABI/testing/sysfs-kernel-iommu_groups`; `drivers/iommu/amd/init.c`,
`init_unity_map_range`.",
    check,
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let snapshot = context.snapshot;
    let mut findings = Vec::new();
    let mut told = Vec::new();
    for device in snapshot.accelerated() {
        let Some(group) = snapshot.group_of(device).filter(|group| !told.contains(&group.id))
        else {
            continue;
        };
        let Observed::Known(regions) = &group.reserved else { continue };
        let direct: Vec<_> = regions.iter().filter(|region| region.kind == "direct").collect();
        if direct.is_empty() {
            continue;
        }
        told.push(group.id);
        let finding = Finding::new(
            RULE.code,
            Severity::Warning,
            Confidence::Certain,
            format!(
                "firmware wants {} of group {} mapped one to one",
                support::counted(direct.len(), "range", "ranges"),
                group.id
            ),
        )
        .about(format!("group {}", group.id))
        .about(device.address);
        findings.push(
            direct
                .iter()
                .take(8)
                .fold(finding, |finding, region| {
                    finding.seen(
                        group_file(group.id, "reserved_regions"),
                        format!("{} {} {}", region.start, region.end, region.kind),
                    )
                })
                .remedy("VFIO refuses this group: keep it with the host, or ask the board's maker"),
        );
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::BusAddress;
    use crate::diagnose::rules::testing::{A, Host, fires, silent, value};
    use crate::snapshot::iommu::Reserved;

    fn with(kind: &str) -> Host {
        Host::amd().edit(|snapshot| {
            snapshot.groups[0].reserved = Observed::Known(vec![Reserved {
                start: BusAddress(0x7b80_0000),
                end: BusAddress(0x7bff_ffff),
                kind: kind.to_owned(),
            }]);
        })
    }

    #[test]
    fn a_direct_range() {
        let finding = fires(&RULE, &with("direct"));
        assert_eq!(finding.subjects, ["group 11", A]);
        assert_eq!(value(&finding, "reserved_regions"), "0x7b800000 0x7bffffff direct");
    }

    #[test]
    fn ranges_that_are_on_every_host() {
        for kind in ["direct-relaxable", "msi", "reserved"] {
            silent(&RULE, &with(kind));
        }
    }
}
