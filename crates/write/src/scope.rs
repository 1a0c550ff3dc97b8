//! What a plan may touch, asked once more of the host itself: a plan file is somebody's word, and its
//! digest says that it is whole, not that it is right.

use std::collections::BTreeSet;

use peerway_core::address::PciAddress;
use peerway_core::snapshot::Snapshot;
use peerway_core::snapshot::iommu::Group;
use peerway_roads::service::Manager;
use peerway_roads::{Op, Plan, lasting};
use thiserror::Error;

/// A step that would touch what is not the goal's.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("step {step} of the plan would touch {what}, {why}; nothing was done")]
pub struct Outside {
    /// Number of the step.
    pub step: u32,
    /// What.
    pub what: String,
    /// Whose it is, or why nobody knows.
    pub why: String,
}

/// Every function that a plan does something with: the goal's devices, and what shares their groups
/// or is their memory. Who holds one of these is in the way.
pub(crate) fn reach(plan: &Plan) -> Vec<PciAddress> {
    let touched = plan.steps.iter().flat_map(|step| step.act.touches());
    let all: BTreeSet<PciAddress> = plan.goal.devices.iter().copied().chain(touched).collect();
    all.into_iter().collect()
}

/// Refuses a plan of which any step, or its inverse, reaches beyond the goal: to a function outside
/// of the goal's groups, to one that VFIO or another tenant has, to a group with such a member. The
/// kernel protects less: from 6.4 on it changes the type of an idle VFIO group for anybody who asks.
pub fn check(plan: &Plan, snapshot: &Snapshot) -> Result<(), Outside> {
    let goal: BTreeSet<PciAddress> = plan.goal.devices.iter().copied().collect();
    let mut allowed = goal.clone();
    for address in &goal {
        let Some(device) = snapshot.device(*address) else { continue };
        allowed.extend(snapshot.group_of(device).into_iter().flat_map(|group| &group.devices));
        allowed.extend(snapshot.peer_memory(device).map(|(function, _)| function.address));
    }
    let protected: BTreeSet<PciAddress> =
        plan.protects.iter().flat_map(|one| one.devices.iter().copied()).collect();
    let whose = |address: PciAddress| {
        if protected.contains(&address) {
            return Some("which is protected".to_owned());
        }
        if !allowed.contains(&address) {
            return Some("which is none of the goal's".to_owned());
        }
        foreign(plan, snapshot, address)
    };
    for step in &plan.steps {
        let outside = |what: String, why: String| Err(Outside { step: step.number, what, why });
        for act in [Some(&step.act), step.inverse.as_ref()].into_iter().flatten() {
            // A port is nobody's device; whose the devices below it are says the plan's fingerprint.
            if let Op::WriteAcs { port, .. } = act {
                if let Some(why) = no_port_of(&goal, snapshot, *port) {
                    return outside(port.to_string(), why);
                }
                continue;
            }
            if let Some((node, why)) = no_node_of(&goal, snapshot, act) {
                return outside(node, why);
            }
            if let Op::Install { path, .. } | Op::Uninstall { path } = act
                && !lasting::is_ours(path)
            {
                return outside(path.clone(), "which is no file of Peerway's own".to_owned());
            }
            if let Some((service, why)) = no_service_of(plan, act) {
                return outside(service, why);
            }
            for address in act.touches() {
                if let Some(why) = whose(address) {
                    return outside(address.to_string(), why);
                }
            }
            // By the member: the number of its group may be another one by now.
            if let Op::WriteGroupType { member, .. } = act {
                let Some(here) = group_with(snapshot, *member) else {
                    return outside(format!("the group of {member}"), "which has none".to_owned());
                };
                for address in &here.devices {
                    if let Some(why) = whose(*address) {
                        return outside(format!("the group of {member} with {address}"), why);
                    }
                }
            }
        }
    }
    Ok(())
}

/// Why the node of a fence is none of the goal's: only a node of NVIDIA's driver can be told by
/// the number that the driver says, and a fence lets nobody in.
fn no_node_of(
    goal: &BTreeSet<PciAddress>,
    snapshot: &Snapshot,
    act: &Op,
) -> Option<(String, String)> {
    let (node, mode) = match act {
        Op::Fence { node, mode } => (node, *mode),
        Op::Unfence { node } => (node, 0),
        _ => return None,
    };
    if mode != 0 {
        return Some((node.clone(), "which it would open".to_owned()));
    }
    let gpus = snapshot.nvidia.gpus.known().map(Vec::as_slice).unwrap_or_default();
    let own = gpus
        .iter()
        .filter(|gpu| goal.contains(&gpu.address))
        .any(|gpu| gpu.minor.known().is_some_and(|minor| *node == format!("/dev/nvidia{minor}")));
    (!own).then(|| (node.clone(), "which is no node of the goal's devices".to_owned()))
}

/// Why what a step stops or starts is not the goal's to stop.
fn no_service_of(plan: &Plan, act: &Op) -> Option<(String, String)> {
    let (Op::Stop { service } | Op::Start { service } | Op::Restart { service }) = act else {
        return None;
    };
    if service.is_shared() {
        return Some((service.to_string(), "which others run in too".to_owned()));
    }
    let tenant = service.tenant()?;
    // Runtimes of application containers go by names that no control group shows.
    let by_name = matches!(service.manager, Manager::Docker | Manager::Podman);
    let own = if by_name {
        !plan.protects.iter().any(|one| one.tenant == tenant)
    } else {
        plan.goal.tenant.as_ref() == Some(&tenant)
    };
    (!own).then(|| (service.to_string(), format!("which is {tenant}")))
}

fn group_with(snapshot: &Snapshot, member: PciAddress) -> Option<&Group> {
    snapshot.groups.iter().find(|group| group.devices.contains(&member))
}

/// Why a function of the goal's groups is somebody else's all the same.
fn foreign(plan: &Plan, snapshot: &Snapshot, address: PciAddress) -> Option<String> {
    let Some(device) = snapshot.device(address) else {
        return Some("which is not listed".to_owned());
    };
    if device.is_bridge() {
        return None;
    }
    if device.is_vfio() {
        return Some(format!("which is bound to {}", device.driver));
    }
    if let Some(why) = device.driver.unreadable() {
        return Some(format!("whose driver could not be read ({why})"));
    }
    let others = snapshot.claims_on(address).map(|claim| &claim.tenant);
    let other = others.into_iter().find(|tenant| Some(*tenant) != plan.goal.tenant.as_ref());
    other.map(|tenant| format!("which {tenant} claims"))
}

/// Why a port is not one above the goal's devices, or one below which others are.
fn no_port_of(
    goal: &BTreeSet<PciAddress>,
    snapshot: &Snapshot,
    port: PciAddress,
) -> Option<String> {
    let below: Vec<_> =
        snapshot.devices.iter().filter(|device| device.ancestors.contains(&port)).collect();
    if !below.iter().any(|device| goal.contains(&device.address)) {
        return Some("below which there is no device of the goal".to_owned());
    }
    below
        .iter()
        .find(|device| device.is_vfio())
        .map(|device| format!("below which {} is bound to {}", device.address, device.driver))
}
