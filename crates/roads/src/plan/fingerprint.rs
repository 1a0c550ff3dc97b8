//! Every value that a plan rests on, by its source: what preflight compares.
//!
//! Left out on purpose: what changes while the plan is being prepared and does not bear on it (the
//! goal's own processes and claims, running states, link speeds).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use peerway_core::address::PciAddress;
use peerway_core::observed::Observed;
use peerway_core::snapshot::Snapshot;
use peerway_core::snapshot::iommu::Group;
use peerway_core::snapshot::kernel::Tristate;
use peerway_core::snapshot::pci::{Acs, PciDevice};
use peerway_core::snapshot::tenant::TenantId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::goal::Goal;

/// A value that is not what the plan rests on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Difference {
    /// Its source.
    pub source: String,
    /// What the plan has; absent where it has nothing.
    pub planned: Option<String>,
    /// What is there now; absent where there is nothing.
    pub now: Option<String>,
}

/// Where two fingerprints differ.
pub(super) fn differences(
    planned: &BTreeMap<String, String>,
    now: &BTreeMap<String, String>,
) -> Vec<Difference> {
    let sources: BTreeSet<&String> = planned.keys().chain(now.keys()).collect();
    sources
        .into_iter()
        .filter(|source| planned.get(*source) != now.get(*source))
        .map(|source| Difference {
            source: source.clone(),
            planned: planned.get(source).cloned(),
            now: now.get(source).cloned(),
        })
        .collect()
}

/// Where a device's group is found: by the device, since the numbers of groups change when devices
/// are removed and found again.
pub(super) fn group_source(device: PciAddress, file: &str) -> String {
    format!("/sys/bus/pci/devices/{device}/iommu_group/{file}")
}

/// Where a GPU's node number is found.
pub(super) fn minor_source(device: PciAddress) -> String {
    format!("/proc/driver/nvidia/gpus/{device}/information: Minor")
}

/// Source and value of a port's ACS words.
pub(super) fn acs_key(port: PciAddress, acs: Acs) -> (String, String) {
    (
        format!("/sys/bus/pci/devices/{port}/config: ACS"),
        format!("capability {:#06x} control {:#06x}", acs.capability, acs.control),
    )
}

/// Everything that a plan for these devices rests on; `before_driver`: without what only a driver
/// says, or sets by binding, and without whose things are, which no file says so early.
pub(super) fn values(
    snapshot: &Snapshot,
    goal: &Goal,
    ports: &BTreeSet<PciAddress>,
    before_driver: bool,
) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    host(snapshot, &mut all);
    if !before_driver {
        driver(snapshot, &mut all);
    }
    let mut functions: BTreeSet<PciAddress> = goal.devices.iter().copied().collect();
    for address in &goal.devices {
        let Some(device) = snapshot.device(*address) else { continue };
        if let Some((memory, _)) = snapshot.peer_memory(device) {
            functions.insert(memory.address);
        }
        if let Some(group) = snapshot.group_of(device) {
            functions.extend(&group.devices);
            group_values(*address, group, &mut all);
        }
    }
    for address in functions {
        match snapshot.device(address) {
            Some(device) => {
                function_values(device, &mut all);
                if before_driver {
                    continue;
                }
                put(&mut all, function_source(address, "driver"), &device.driver);
                if goal.devices.contains(&address) {
                    bound_values(snapshot, device, &mut all);
                }
                claims(snapshot, address, goal.tenant.as_ref(), &mut all);
            }
            None => put(&mut all, format!("/sys/bus/pci/devices/{address}"), "not listed"),
        }
    }
    for port in ports {
        port_values(snapshot, *port, &mut all);
    }
    if !before_driver {
        others(snapshot, goal.tenant.as_ref(), &mut all);
    }
    all
}

fn put(all: &mut BTreeMap<String, String>, source: impl Into<String>, value: impl Display) {
    all.insert(source.into(), value.to_string());
}

fn host(snapshot: &Snapshot, all: &mut BTreeMap<String, String>) {
    put(all, "/proc/sys/kernel/random/boot_id", &snapshot.origin.boot_id);
    put(all, "/proc/sys/kernel/osrelease", &snapshot.kernel.release);
    put(all, "/proc/cmdline", &snapshot.kernel.command_line);
    put(all, "/sys/kernel/security/lockdown", &snapshot.kernel.lockdown);
    put(all, "SME", snapshot.memory_encryption.sme.state);
    put(all, "SNP", snapshot.memory_encryption.snp.state);
    let vendor = snapshot.iommu_vendor().map_or("unknown".to_owned(), |one| one.to_string());
    put(all, "IOMMU", vendor);
}

/// What the driver says of itself.
fn driver(snapshot: &Snapshot, all: &mut BTreeMap<String, String>) {
    let version = snapshot.nvidia.version.as_ref().map(|version| version.line.clone());
    put(all, "/proc/driver/nvidia/version", version);
    for name in ["RegistryDwords", "RegistryDwordsPerDevice", "DmaRemapPeerMmio"] {
        let value = snapshot.nvidia.params.as_ref().and_then(|params| match params.get(name) {
            Some(value) => Observed::Known(value.clone()),
            None => Observed::Absent,
        });
        put(all, format!("/proc/driver/nvidia/params: {name}"), value);
    }
}

fn group_values(device: PciAddress, group: &Group, all: &mut BTreeMap<String, String>) {
    put(all, group_source(device, "type"), &group.domain);
    let members: Vec<String> = group.devices.iter().map(ToString::to_string).collect();
    put(all, group_source(device, "devices"), members.join(" "));
    let reserved = group.reserved.as_ref().map(|ranges| {
        let texts: Vec<String> = ranges
            .iter()
            .map(|range| format!("{}-{} {}", range.start, range.end, range.kind))
            .collect();
        texts.join("; ")
    });
    put(all, group_source(device, "reserved_regions"), reserved);
}

fn function_source(device: PciAddress, file: &str) -> String {
    format!("/sys/bus/pci/devices/{device}/{file}")
}

/// What bears on the plan of any function of the groups.
fn function_values(device: &PciDevice, all: &mut BTreeMap<String, String>) {
    let source = |file: &str| function_source(device.address, file);
    put(all, source("iommu_group"), device.group.as_ref().map(|_| "there"));
    put(all, source("vendor and device"), &device.ids);
    let bars = device.bars.as_ref().map(|bars| {
        let texts: Vec<String> = bars
            .iter()
            .map(|bar| {
                let state = if bar.assigned { "" } else { " unassigned" };
                format!("{}: {} + {:#x}{state}", bar.index, bar.start, bar.size)
            })
            .collect();
        texts.join("; ")
    });
    put(all, source("resource"), bars);
    put(all, source("removable"), &device.removable);
}

/// More of the goal's own devices, once their driver is bound.
fn bound_values(snapshot: &Snapshot, device: &PciDevice, all: &mut BTreeMap<String, String>) {
    let source = |file: &str| function_source(device.address, file);
    put(all, source("driver_override"), &device.driver_override);
    put(all, source("dma_mask_bits"), &device.dma_mask_bits);
    let memory = device.config.as_ref().map(|config| config.memory_enabled && !config.dead);
    put(all, source("config: memory decoding"), memory);
    if let Some(gpu) = snapshot
        .nvidia
        .gpus
        .known()
        .and_then(|gpus| gpus.iter().find(|gpu| gpu.address == device.address))
    {
        put(all, minor_source(device.address), &gpu.minor);
    }
}

/// Claims of others; the goal's own come and go as its processes are stopped.
fn claims(
    snapshot: &Snapshot,
    device: PciAddress,
    own: Option<&TenantId>,
    all: &mut BTreeMap<String, String>,
) {
    let others: BTreeSet<&str> = snapshot
        .claims_on(device)
        .map(|claim| &claim.tenant)
        .filter(|tenant| Some(*tenant) != own)
        .map(|tenant| tenant.0.as_str())
        .collect();
    let others = others.into_iter().collect::<Vec<_>>().join(" ");
    put(
        all,
        format!("claims of others on {device}"),
        if others.is_empty() { "none" } else { &others },
    );
}

fn port_values(snapshot: &Snapshot, port: PciAddress, all: &mut BTreeMap<String, String>) {
    let acs = snapshot.device(port).map(|device| {
        device.config.as_ref().and_then(|config| config.acs.as_ref().map(|acs| *acs))
    });
    match acs {
        Some(Observed::Known(acs)) => {
            let (key, value) = acs_key(port, acs);
            put(all, key, value);
        }
        other => {
            let text = other.map_or("not listed".to_owned(), |acs| acs.map(|_| "").to_string());
            put(all, format!("/sys/bus/pci/devices/{port}/config: ACS"), text);
        }
    }
    let below: Vec<String> = snapshot
        .devices
        .iter()
        .filter(|device| device.ancestors.contains(&port))
        .map(|device| device.address.to_string())
        .collect();
    put(all, format!("below {port}"), below.join(" "));
}

/// Who else is here, and whose memory is encrypted.
fn others(snapshot: &Snapshot, own: Option<&TenantId>, all: &mut BTreeMap<String, String>) {
    for tenant in snapshot.tenants.iter().filter(|tenant| Some(&tenant.id) != own) {
        let confidential = match tenant.confidential {
            Tristate::Yes => "confidential",
            Tristate::No => "not confidential",
            Tristate::Unknown => "perhaps confidential",
        };
        put(all, format!("tenant {}", tenant.id), format!("{} {confidential}", tenant.kind));
    }
}
