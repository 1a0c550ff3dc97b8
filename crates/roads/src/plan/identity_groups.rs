//! The plan of `identity-groups`: the control arm on one device, then the type of its group, then
//! the others, one after another, so that every GPU gets its node number back.

use peerway_core::observed::Observed;
use peerway_core::snapshot::iommu::Group;
use peerway_core::snapshot::pci::PciDevice;

use super::Phase;
use super::build::{self, Draft, Expect, HEALTHY_SECONDS, SETTLED_SECONDS};
use super::fingerprint::group_source;
use crate::gate::{Gate, GateCode, Passed};
use crate::id::RoadId;
use crate::op::{Found, Op, Until};
use crate::scene::Scene;

/// One group with what has to be unbound in it.
struct Work<'a> {
    group: &'a Group,
    from: String,
    /// A goal device: the group is found again through it.
    member: &'a PciDevice,
    /// Functions with a driver, ordered by address.
    functions: Vec<(&'a PciDevice, String)>,
}

pub(super) fn steps(scene: &Scene<'_>, draft: &mut Draft) -> Result<(), Gate> {
    let work = work(scene)?;
    draft.prepare(scene);
    if let Some(first) = work.first() {
        draft.canary = Some(first.member.address);
        rebind(scene, draft, Phase::Control, first, false);
    }
    for (index, one) in work.iter().enumerate() {
        let phase = if index == 0 { Phase::Canary } else { Phase::Rest };
        rebind(scene, draft, phase, one, true);
        let members = scene.devices().iter().filter(|device| {
            scene.snapshot().group_of(device).is_some_and(|group| group.id == one.group.id)
        });
        let sources = members.map(|device| group_source(device.address, "type"));
        draft.after.extend(sources.map(|source| (source, "identity".to_owned())));
    }
    draft.confirm(scene, RoadId::IdentityGroups);
    assumptions(scene, draft);
    Ok(())
}

/// Groups that translate, in the order of their GPUs' node numbers.
fn work<'a>(scene: &Scene<'a>) -> Result<Vec<Work<'a>>, Gate> {
    let mut all = Vec::new();
    for (group, requesters) in scene.groups().into_values() {
        let Observed::Known(domain) = &group.domain else {
            let read = format!("type of group {} = {}", group.id, group.domain);
            return Err(Gate::unknown(GateCode::Translating, read, "a new scan as root"));
        };
        let Some(member) = requesters.first().copied().filter(|_| domain.translates()) else {
            continue;
        };
        let mut functions = Vec::new();
        for address in &group.devices {
            let Some(device) = scene.snapshot().device(*address) else {
                let read = format!("{address} is not listed");
                return Err(Gate::unknown(GateCode::BoundDriver, read, "a new scan"));
            };
            match &device.driver {
                _ if device.is_bridge() => {}
                Observed::Known(driver) => functions.push((device, driver.clone())),
                Observed::Absent => {}
                Observed::Unreadable(why) => {
                    let read = format!("driver of {address} = unknown ({why})");
                    return Err(Gate::unknown(GateCode::BoundDriver, read, "a new scan as root"));
                }
            }
        }
        all.push(Work { group, from: domain.word().to_owned(), member, functions });
    }
    all.sort_by_key(|one| (build::minor(scene, one.member.address), one.member.address));
    Ok(all)
}

/// Unbinds every function of a group, changes its type if asked to, and binds them again.
fn rebind(scene: &Scene<'_>, draft: &mut Draft, phase: Phase, work: &Work<'_>, change: bool) {
    // Only where the override was read as unset: another one is somebody's, and stays.
    let free: Vec<_> = work
        .functions
        .iter()
        .filter(|(device, _)| device.driver_override.is_absent())
        .map(|(device, driver)| (device.address, driver.clone()))
        .collect();
    for (device, driver) in &free {
        let act = Op::SetOverride { device: *device, driver: driver.clone() };
        draft.push(phase, act, Expect::Read(Found::Nothing));
    }
    for (device, driver) in work.functions.iter().rev() {
        let act = Op::Unbind { device: device.address, driver: driver.clone() };
        draft.push(phase, act, Expect::value(driver.clone()));
    }
    if change {
        let act = Op::WriteGroupType {
            group: work.group.id,
            member: work.member.address,
            from: work.from.clone(),
            to: "identity".to_owned(),
        };
        draft.push(phase, act, Expect::value(work.from.clone()));
        let until = Until::GroupType { member: work.member.address, is: "identity".to_owned() };
        draft.wait(phase, until, SETTLED_SECONDS);
    }
    for (device, driver) in &work.functions {
        let act = Op::Probe { device: device.address, driver: driver.clone() };
        draft.push(phase, act, Expect::Read(Found::Nothing));
        let until = Until::Healthy { device: device.address, driver: driver.clone() };
        draft.wait(phase, until, HEALTHY_SECONDS);
        if let Some(minor) = build::minor(scene, device.address) {
            draft.wait(phase, Until::Minor { device: device.address, minor }, SETTLED_SECONDS);
        }
    }
    for (device, driver) in &free {
        let act = Op::ClearOverride { device: *device };
        draft.push(phase, act, Expect::value(driver.clone()));
    }
}

fn assumptions(scene: &Scene<'_>, draft: &mut Draft) {
    draft.assume(
        "the type file of each group accepts the write of identity",
        "plan: gate kernel-era; apply: the canary's write, read back",
        Passed::Unknown,
    );
    draft.assume_others(scene);
    draft.assume(
        "a GPU survives unbind and rebind",
        "apply: the control arm, which unbinds and binds one device without any change",
        Passed::Unknown,
    );
    draft.assume(
        "a GPU boots under an identity domain (its security processor fetches firmware by DMA)",
        "apply: the canary's health, before any other device is touched",
        Passed::Unknown,
    );
    draft.assume(
        "each GPU gets its node number back",
        "plan: gate minors; apply: the step that waits for the number",
        Passed::Yes,
    );
}
