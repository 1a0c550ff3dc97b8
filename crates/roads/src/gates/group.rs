//! Gates on IOMMU groups: their type and their members.

use std::collections::BTreeSet;

use peerway_core::address::PciAddress;
use peerway_core::observed::Observed;

use super::some_of;
use crate::gate::{Gate, GateCode};
use crate::scene::{Member, Scene};

/// How much may share a group with the goal's devices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Company {
    /// Bridges, other functions of the same slots, and what else is the tenant's own: they gain
    /// access to the peers' memory only.
    Tenants,
    /// Bridges and other functions of the same slots: anything else would lose its isolation.
    DevicesOnly,
}

/// Groups translate: those of every requester that something is wrong with if `all`, else that of
/// at least one device.
pub(crate) fn translating(scene: &Scene<'_>, all: bool) -> Gate {
    let concerned: BTreeSet<PciAddress> = scene.open_pairs().map(|pair| pair.from).collect();
    let mut yes = Vec::new();
    let mut no = Vec::new();
    let mut unknown = Vec::new();
    for device in scene.devices() {
        // Where nothing is wrong every requester is asked.
        if all && !concerned.is_empty() && !concerned.contains(&device.address) {
            continue;
        }
        let domain = scene.snapshot().domain_of(device);
        let group = device.group.as_ref().map(|id| format!("iommu_groups/{id}/type"));
        let text = format!("{} ({group}) = {domain}", device.address);
        match domain {
            Observed::Known(domain) if domain.translates() => yes.push(text),
            Observed::Known(_) => no.push(text),
            Observed::Absent if device.group.is_absent() => no.push(text),
            Observed::Absent | Observed::Unreadable(_) => unknown.push(text),
        }
    }
    if !unknown.is_empty() {
        return Gate::unknown(
            GateCode::Translating,
            some_of(&unknown),
            "a readable /sys/kernel/iommu_groups/*/type (kernel 5.11 or later, root)",
        );
    }
    let enough = if all { no.is_empty() && !yes.is_empty() } else { !yes.is_empty() };
    if enough {
        Gate::pass(GateCode::Translating, some_of(&yes))
    } else {
        Gate::fail(
            GateCode::Translating,
            some_of(&no),
            "nothing: what does not translate needs no such change",
        )
    }
}

/// An IOMMU covers every device, so that VFIO can give each a domain of the guest's: the type of
/// the group does not matter to it.
pub(crate) fn covered(scene: &Scene<'_>) -> Gate {
    let with = |want: fn(&Observed<u32>) -> bool| -> Vec<String> {
        let devices = scene.devices().iter().filter(|device| want(&device.group));
        devices.map(|device| format!("{} = {}", device.address, device.group)).collect()
    };
    let none = with(Observed::is_absent);
    let unread = with(|group| group.unreadable().is_some());
    if !none.is_empty() {
        Gate::fail(
            GateCode::Translating,
            format!("iommu_group of {}", some_of(&none)),
            "an IOMMU that is on (firmware, kernel command line)",
        )
    } else if unread.is_empty() {
        let groups = with(|group| group.known().is_some());
        Gate::pass(GateCode::Translating, format!("iommu_group of {}", some_of(&groups)))
    } else {
        let lifts = "a readable iommu_group link";
        Gate::unknown(GateCode::Translating, format!("iommu_group of {}", some_of(&unread)), lifts)
    }
}

/// Everything in the goal's groups may share what the goal gets.
pub(crate) fn group_members(scene: &Scene<'_>, company: Company) -> Gate {
    let mut foreign = Vec::new();
    let mut unread = Vec::new();
    for device in scene.devices() {
        if scene.snapshot().group_of(device).is_none() {
            unread.push(format!("iommu_group of {} = {}", device.address, device.group));
        }
    }
    let mut read = Vec::new();
    for (id, (group, _)) in scene.groups() {
        let members: Vec<String> = group.devices.iter().map(ToString::to_string).collect();
        read.push(format!("iommu_groups/{id}/devices = {}", members.join(" ")));
        for member in &group.devices {
            match scene.member(*member) {
                Member::Bridge | Member::Goal | Member::Sibling | Member::Memory => {}
                Member::Own if company == Company::Tenants => {}
                Member::Own => foreign.push(format!(
                    "group {id}: {member} is the tenant's, but no device of the goal"
                )),
                Member::Foreign(why) => foreign.push(format!("group {id}: {why}")),
                Member::Unknown(why) => unread.push(format!("group {id}: {why}")),
            }
        }
    }
    if !foreign.is_empty() {
        return Gate::fail(
            GateCode::GroupMembers,
            some_of(&foreign),
            "a group of its own for each device (another slot, or firmware's ACS setting)",
        );
    }
    if !unread.is_empty() {
        let lifts = "readable iommu_group and driver links";
        return Gate::unknown(GateCode::GroupMembers, some_of(&unread), lifts);
    }
    if let Some(why) = super::tenants::unread_claims(scene) {
        return Gate::unknown(
            GateCode::GroupMembers,
            format!("{}; {why}", some_of(&read)),
            "readable configurations of guests and containers",
        );
    }
    Gate::pass(GateCode::GroupMembers, some_of(&read))
}

/// No device of the goal, nor a port above it, is external.
pub(crate) fn untrusted(scene: &Scene<'_>) -> Gate {
    let mut external = Vec::new();
    let mut unread = Vec::new();
    for device in scene.devices() {
        let above = device.ancestors.iter().filter_map(|one| scene.snapshot().device(*one));
        for one in above.chain([*device]) {
            match &one.removable {
                Observed::Known(word) if word == "removable" => {
                    external.push(format!("{}/removable = {word}", one.address));
                }
                // Absent is the kernel's answer for whatever is not behind an external port.
                Observed::Known(_) | Observed::Absent => {}
                Observed::Unreadable(why) => {
                    unread.push(format!("{}/removable = unknown ({why})", one.address));
                }
            }
        }
    }
    if !external.is_empty() {
        Gate::fail(
            GateCode::Untrusted,
            some_of(&external),
            "an internal slot: the kernel keeps external devices translated",
        )
    } else if unread.is_empty() {
        Gate::pass(GateCode::Untrusted, "removable = absent for the devices and their ports")
    } else {
        Gate::unknown(GateCode::Untrusted, some_of(&unread), "a readable attribute removable")
    }
}
