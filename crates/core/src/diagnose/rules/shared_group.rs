//! PW0503: a group is shared by devices of different tenants.

use std::collections::{BTreeMap, BTreeSet};

use super::support;
use crate::address::PciAddress;
use crate::code::SHARED_GROUP;
use crate::diagnose::finding::{Finding, Severity, device_file};
use crate::diagnose::{Context, Rule};
use crate::judge::Confidence;
use crate::snapshot::Snapshot;
use crate::snapshot::iommu::Group;

pub(super) const RULE: Rule = Rule {
    code: SHARED_GROUP,
    title: "devices of different tenants share an IOMMU group",
    page: "\
An IOMMU group is the smallest set of devices that the kernel can isolate from the rest. All of its
devices share one domain: what one may reach, all may reach, and the group's `type` changes for all
of them at once. Here a group with a GPU holds devices that belong to different tenants.

How it was seen: the members of the group in sysfs, and the owner of each. Bridges do not count, nor
do the other functions of the GPU's own board.

Why it matters: a change of the group's type, or entries for peer memory in its domain, reach the
other tenant's device too. Starting a guest with one of the devices takes the whole group: Proxmox
binds every device of it to `vfio-pci`. The kernel refuses to mix a guest's and a host driver's
device in one group, so that one of the two does not start.

Reasons: root ports or switch ports without access control (PW0407), functions of one device, a slot
behind a bridge to conventional PCI, boot words that merge groups.

What helps: devices of one group in one hand; another slot for one of them; ports with access
control.

What not to believe: groups made smaller by `pcie_acs_override` (PW0106). The sharing is then only
hidden.

Sources: `drivers/iommu/iommu.c`, `pci_device_group`, `iommu_group_store_type`;
`drivers/vfio/container.c`.",
    check,
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let snapshot = context.snapshot;
    let mut told = BTreeSet::new();
    let mut findings = Vec::new();
    let accelerated = snapshot.accelerated();
    let gpus: Vec<PciAddress> = accelerated.iter().map(|device| device.address).collect();
    for device in accelerated {
        let Some(group) = snapshot.group_of(device).filter(|group| told.insert(group.id)) else {
            continue;
        };
        findings.extend(shared(snapshot, group, &gpus));
    }
    findings
}

fn shared(snapshot: &Snapshot, group: &Group, gpus: &[PciAddress]) -> Option<Finding> {
    let mut owners: BTreeMap<String, Vec<PciAddress>> = BTreeMap::new();
    for address in &group.devices {
        let Some(device) = snapshot.device(*address).filter(|device| !device.is_bridge()) else {
            continue;
        };
        // The audio function of a GPU belongs to the GPU.
        let companion = !gpus.contains(address) && gpus.iter().any(|gpu| gpu.same_device(*address));
        if companion {
            continue;
        }
        let owner = snapshot
            .tenant_of(device)
            .map_or_else(|| "a guest not seen".to_owned(), |id| id.to_string());
        owners.entry(owner).or_default().push(*address);
    }
    if owners.len() < 2 {
        return None;
    }
    let mut finding = Finding::new(
        RULE.code,
        Severity::Warning,
        Confidence::Certain,
        support::title(&format!(
            "group {} is shared by {}",
            group.id,
            support::listed(owners.keys(), 3)
        )),
    )
    .about(format!("group {}", group.id))
    .about_all(owners.values().flatten());
    for (owner, devices) in &owners {
        for address in devices.iter().take(4) {
            finding = finding
                .seen(device_file(*address, "iommu_group"), format!("{} ({owner})", group.id));
        }
    }
    Some(finding.remedy("keep the devices of one group in one hand, or move one to another slot"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::testing::{A, B, Host, fires, gpu, silent};
    use crate::observed::Observed;

    fn together() -> Host {
        Host::amd().edit(|snapshot| {
            snapshot.groups[0].devices.push(B.parse().unwrap());
            snapshot.groups.truncate(1);
            for device in &mut snapshot.devices {
                if device.address.to_string() == B {
                    device.group = Observed::Known(11);
                }
            }
        })
    }

    #[test]
    fn a_guest_and_a_container_in_one_group() {
        let finding = fires(&RULE, &together().guest(&[B]).container(&[A]));
        assert_eq!(finding.title, "group 11 is shared by lxc:129, vm:132");
        assert_eq!(finding.subjects, ["group 11", A, B]);
    }

    #[test]
    fn one_owner_bridges_and_functions_of_one_board() {
        silent(&RULE, &together().container(&[A, B]));
        silent(&RULE, &together());
        let audio = Host::amd().container(&[A]).edit(|snapshot| {
            let mut audio = gpu("0000:01:00.1", &["0000:00:01.1"], 0, 0, 11);
            audio.class = Observed::Known(0x04_0300);
            audio.driver = Observed::Known("snd_hda_intel".to_owned());
            snapshot.groups[0].devices.push(audio.address);
            snapshot.devices.push(audio);
            snapshot.devices.sort_by_key(|device| device.address);
        });
        silent(&RULE, &audio);
    }
}
