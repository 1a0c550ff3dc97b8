//! Gates on tenants: whose the devices are, who holds them, who would be disturbed.

use std::collections::BTreeSet;

use peerway_core::observed::Observed;
use peerway_core::snapshot::OriginKind;
use peerway_core::snapshot::tenant::{Holder, TenantId};

use super::some_of;
use crate::constraint;
use crate::gate::{Gate, GateCode};
use crate::scene::Scene;

/// Where configurations of guests and containers lie: what could not be read there may claim
/// anything.
const CONFIGURATIONS: [&str; 7] = [
    "/etc/pve",
    "/etc/libvirt",
    "/run/libvirt",
    "/var/lib/libvirt",
    "/etc/lxc",
    "/var/lib/lxc",
    "/run/qemu-server",
];

/// The daemon that keeps GPUs open for their state; switched off per device by a step of the plan.
const PERSISTENCE_DAEMON: &str = "nvidia-persiste";

/// Why claims may be missing, if any may.
pub(crate) fn unread_claims(scene: &Scene<'_>) -> Option<String> {
    let gap = scene
        .snapshot()
        .gaps
        .iter()
        .find(|gap| CONFIGURATIONS.iter().any(|directory| gap.source.starts_with(directory)))?;
    Some(format!("{} could not be read ({}), and it may claim a device", gap.source, gap.why))
}

/// All devices of the goal are one tenant's.
pub(crate) fn one_tenant(scene: &Scene<'_>) -> Gate {
    let undriven = scene.undriven();
    let owners: BTreeSet<String> = scene
        .devices()
        .iter()
        .map(|device| match scene.snapshot().tenant_of(device) {
            Some(tenant) => tenant.to_string(),
            None => "nobody seen".to_owned(),
        })
        .collect();
    let read = format!(
        "tenants of the devices = {}",
        owners.iter().map(String::as_str).collect::<Vec<_>>().join(", ")
    );
    match scene.tenant() {
        // Without its driver nobody can tell a guest's device from the host's.
        Some(_) if owners.len() == 1 && !undriven.is_empty() => Gate::unknown(
            GateCode::OneTenant,
            format!("{read}; {}", some_of(&undriven)),
            "readable driver links",
        ),
        Some(_) if owners.len() == 1 => Gate::pass(GateCode::OneTenant, read),
        _ => Gate::fail(
            GateCode::OneTenant,
            read,
            "devices of one tenant: peer access across tenants would end their isolation",
        ),
    }
}

/// Nobody else claims a device of the goal.
pub(crate) fn contested(scene: &Scene<'_>) -> Gate {
    let mut others = Vec::new();
    let mut read = Vec::new();
    for device in scene.devices() {
        for claim in scene.snapshot().claims_on(device.address) {
            let text = format!("{}: {} ({})", device.address, claim.tenant, claim.source);
            if Some(&claim.tenant) == scene.tenant() {
                read.push(text);
            } else {
                others.push(text);
            }
        }
    }
    if !others.is_empty() {
        return Gate::fail(
            GateCode::Contested,
            some_of(&others),
            "taking the device out of the other configuration, or ending that process",
        );
    }
    match unread_claims(scene) {
        Some(why) => Gate::unknown(
            GateCode::Contested,
            why,
            "readable configurations of guests and containers",
        ),
        None if read.is_empty() => Gate::pass(GateCode::Contested, "nobody claims the devices"),
        None => Gate::pass(GateCode::Contested, some_of(&read)),
    }
}

/// Every holder of the goal's devices was seen, and is the goal's own, to be stopped first.
pub(crate) fn holders(scene: &Scene<'_>) -> Gate {
    const LIFTS: &str = "running as root, so that every process can be looked into";
    let snapshot = scene.snapshot();
    if snapshot.holders.known().is_none() {
        return Gate::unknown(
            GateCode::Holders,
            format!("/proc/PID/fd = {}", text_of(&snapshot.holders)),
            LIFTS,
        );
    }
    if let Some(gap) = snapshot
        .gaps
        .iter()
        .find(|gap| gap.source.starts_with("/proc/") && is_holder_source(&gap.source))
    {
        return Gate::unknown(
            GateCode::Holders,
            format!("{} = unknown ({})", gap.source, gap.why),
            LIFTS,
        );
    }
    if snapshot.origin.kind == OriginKind::Live && !snapshot.origin.privileged {
        return Gate::unknown(GateCode::Holders, "this was not read as root", LIFTS);
    }
    if let Some(holder) = unplaced(scene) {
        return Gate::unknown(
            GateCode::Holders,
            format!("{} holds a GPU, and nobody can tell which", process(holder)),
            "a readable /proc/driver/nvidia/gpus, which tells the node of each GPU",
        );
    }
    let mut own = Vec::new();
    let mut others = Vec::new();
    for holder in scene.holders() {
        if Some(&holder.tenant) == scene.tenant() || is_persistence_daemon(holder) {
            own.push(process(holder));
        } else {
            others.push(format!("{} of {}", process(holder), holder.tenant));
        }
    }
    if !others.is_empty() {
        return Gate::fail(
            GateCode::Holders,
            format!("held by {}", some_of(&others)),
            "ending those processes: they are not the goal's",
        );
    }
    let read = if own.is_empty() {
        "no process holds the devices".to_owned()
    } else {
        format!("held by {}: stopped before anything changes", some_of(&own))
    };
    Gate::pass(GateCode::Holders, read)
}

fn is_holder_source(source: &str) -> bool {
    source.ends_with("/fd") || source.ends_with("/maps") || source.contains("/fd ")
}

fn text_of(holders: &Observed<Vec<Holder>>) -> String {
    holders.as_ref().map(Vec::len).to_string()
}

fn process(holder: &Holder) -> String {
    format!("process {} ({})", holder.pid, holder.command)
}

pub(crate) fn is_persistence_daemon(holder: &Holder) -> bool {
    holder.tenant == TenantId::host() && holder.command.starts_with(PERSISTENCE_DAEMON)
}

/// A holder of a numbered GPU node whose device could not be told.
fn unplaced<'a>(scene: &Scene<'a>) -> Option<&'a Holder> {
    let numbered = |node: &String| {
        node.rsplit('/').next().and_then(|name| name.strip_prefix("nvidia")).is_some_and(|digits| {
            !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit())
        })
    };
    scene
        .snapshot()
        .holders
        .known()?
        .iter()
        .find(|holder| holder.devices.is_empty() && holder.nodes.iter().any(numbered))
}

/// No device of the goal is protected.
pub(crate) fn protected(scene: &Scene<'_>) -> Gate {
    let named: Vec<String> = scene.protected().iter().map(ToString::to_string).collect();
    let own = scene.tenant().filter(|tenant| scene.protected().contains(*tenant));
    match own {
        Some(tenant) => Gate::fail(
            GateCode::Protected,
            format!("{tenant} is protected, and the devices are its own"),
            "leaving it out of --protect",
        ),
        None if named.is_empty() => Gate::pass(GateCode::Protected, "there is no other tenant"),
        None => Gate::pass(
            GateCode::Protected,
            format!("protected: {}; none of the devices is theirs", named.join(", ")),
        ),
    }
    .constraint()
}

/// A reboot is allowed.
pub(crate) fn reboot(scene: &Scene<'_>) -> Gate {
    match constraint::no_reboot(scene) {
        Some((_, why)) => Gate::fail(
            GateCode::Reboot,
            why,
            "a maintenance window agreed with every tenant (--allow-reboot)",
        ),
        None => Gate::pass(GateCode::Reboot, "no other tenant runs here, or a reboot is allowed"),
    }
    .constraint()
}

/// Every device of the goal's driver is the goal's own, so that reloading it hits nobody else.
pub(crate) fn driver_shared(scene: &Scene<'_>) -> Gate {
    let drivers: BTreeSet<&str> =
        scene.devices().iter().filter_map(|device| device.driver_name()).collect();
    if drivers.is_empty() {
        return Gate::unknown(
            GateCode::DriverShared,
            "no driver of the goal's devices could be read",
            "a bound driver",
        );
    }
    let goal: BTreeSet<_> = scene.devices().iter().map(|device| device.address).collect();
    let others: Vec<String> = scene
        .snapshot()
        .devices
        .iter()
        .filter(|device| device.driver_name().is_some_and(|name| drivers.contains(name)))
        .filter(|device| !goal.contains(&device.address))
        .map(|device| {
            let tenant = scene.snapshot().tenant_of(device);
            let tenant = tenant.map_or("nobody seen".to_owned(), |tenant| tenant.to_string());
            format!("{} of {tenant}", device.address)
        })
        .collect();
    let names = drivers.into_iter().collect::<Vec<_>>().join(", ");
    let mut unread = scene.undriven();
    unread.extend(
        scene
            .snapshot()
            .devices
            .iter()
            .filter(|device| !device.is_bridge() && !goal.contains(&device.address))
            .filter(|device| device.driver.unreadable().is_some())
            .map(|device| format!("driver of {} = {}", device.address, device.driver)),
    );
    if others.is_empty() && !unread.is_empty() {
        return Gate::unknown(GateCode::DriverShared, some_of(&unread), "readable driver links");
    }
    if others.is_empty() {
        Gate::pass(
            GateCode::DriverShared,
            format!("/sys/bus/pci/drivers/{names} = the goal's devices only"),
        )
    } else {
        Gate::fail(
            GateCode::DriverShared,
            format!("{names} also drives {}", some_of(&others)),
            "the agreement of those tenants: reloading the driver stops their GPUs too",
        )
    }
}
