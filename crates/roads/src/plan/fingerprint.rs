//! Every value that a plan rests on, by its source: what preflight compares.
//!
//! Left out on purpose: what changes while the plan is being prepared and does not bear on it (the
//! goal's own processes and claims, running states, link speeds).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;

use peerway_core::address::PciAddress;
use peerway_core::observed::Observed;
use peerway_core::snapshot::Snapshot;
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

/// Source and value of a group's type.
pub(super) fn group_type_key(group: u32, word: &str) -> (String, String) {
    (format!("/sys/kernel/iommu_groups/{group}/type"), word.to_owned())
}

/// Source and value of a port's ACS words.
pub(super) fn acs_key(port: PciAddress, acs: Acs) -> (String, String) {
    (
        format!("/sys/bus/pci/devices/{port}/config: ACS"),
        format!("capability {:#06x} control {:#06x}", acs.capability, acs.control),
    )
}

/// Everything that a plan for these devices rests on.
pub(super) fn values(
    snapshot: &Snapshot,
    goal: &Goal,
    ports: &BTreeSet<PciAddress>,
) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    host(snapshot, &mut all);
    let mut functions: BTreeSet<PciAddress> = goal.devices.iter().copied().collect();
    for address in &goal.devices {
        let Some(device) = snapshot.device(*address) else { continue };
        if let Some((memory, _)) = snapshot.peer_memory(device) {
            functions.insert(memory.address);
        }
        if let Some(group) = snapshot.group_of(device) {
            functions.extend(&group.devices);
            group_values(snapshot, group.id, &mut all);
        }
    }
    for address in functions {
        match snapshot.device(address) {
            Some(device) => {
                function_values(snapshot, device, goal.devices.contains(&address), &mut all);
                claims(snapshot, address, goal.tenant.as_ref(), &mut all);
            }
            None => put(&mut all, format!("/sys/bus/pci/devices/{address}"), "not listed"),
        }
    }
    for port in ports {
        port_values(snapshot, *port, &mut all);
    }
    others(snapshot, goal.tenant.as_ref(), &mut all);
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

fn group_values(snapshot: &Snapshot, id: u32, all: &mut BTreeMap<String, String>) {
    let Some(group) = snapshot.group(id) else { return };
    let base = format!("/sys/kernel/iommu_groups/{id}");
    put(all, format!("{base}/type"), &group.domain);
    let members: Vec<String> = group.devices.iter().map(ToString::to_string).collect();
    put(all, format!("{base}/devices"), members.join(" "));
    let reserved = group.reserved.as_ref().map(|ranges| {
        let texts: Vec<String> = ranges
            .iter()
            .map(|range| format!("{}-{} {}", range.start, range.end, range.kind))
            .collect();
        texts.join("; ")
    });
    put(all, format!("{base}/reserved_regions"), reserved);
}

/// What bears on the plan of any function of the groups, and more of the goal's own.
fn function_values(
    snapshot: &Snapshot,
    device: &PciDevice,
    is_goal: bool,
    all: &mut BTreeMap<String, String>,
) {
    let base = format!("/sys/bus/pci/devices/{}", device.address);
    put(all, format!("{base}/driver"), &device.driver);
    put(all, format!("{base}/iommu_group"), &device.group);
    put(all, format!("{base}/vendor and device"), &device.ids);
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
    put(all, format!("{base}/resource"), bars);
    if !is_goal {
        return;
    }
    put(all, format!("{base}/driver_override"), &device.driver_override);
    put(all, format!("{base}/dma_mask_bits"), &device.dma_mask_bits);
    put(all, format!("{base}/removable"), &device.removable);
    let memory = device.config.as_ref().map(|config| config.memory_enabled && !config.dead);
    put(all, format!("{base}/config: memory decoding"), memory);
    if let Some(gpu) = snapshot
        .nvidia
        .gpus
        .known()
        .and_then(|gpus| gpus.iter().find(|gpu| gpu.address == device.address))
    {
        let source = format!("/proc/driver/nvidia/gpus/{}/information: Minor", device.address);
        put(all, source, &gpu.minor);
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
