//! The closed list of acts that a plan may hold. An executor performs them blindly: every choice is
//! in the plan.

mod inverse;
#[cfg(test)]
mod tests;

use peerway_core::address::{BusAddress, PciAddress};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::service::Service;

/// Name of the kernel module that holds peer maps.
pub const PEER_MAP_MODULE: &str = "peerway_map";

/// Name of the package that DKMS builds it from.
pub const PEER_MAP_PACKAGE: &str = "peerway-map";

/// File with the environment that jobs take; Peerway's own.
pub const ENVIRONMENT_FILE: &str = "/run/peerway/p2p.env";

/// One act.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "act", rename_all = "snake_case", deny_unknown_fields)]
pub enum Op {
    /// Writes the environment file, whole, by replacing it. The executor makes the directory.
    WriteEnvironment {
        /// Whether peer access is allowed by it.
        kind: Environment,
        /// The whole content.
        content: String,
    },
    /// Removes the environment file, which was not there before.
    RemoveEnvironment,
    /// Stops something by name and waits until it is stopped.
    Stop {
        /// What.
        service: Service,
    },
    /// Starts something by name.
    Start {
        /// What.
        service: Service,
    },
    /// Starts what an earlier step of the same plan stopped; nothing if it did not run then.
    Restart {
        /// What.
        service: Service,
    },
    /// Sets the mode of a device node, so that nobody opens it. The mode that was found is
    /// journaled, and an open that must fail is the test.
    Fence {
        /// The node.
        node: String,
        /// Mode bits to set; 0 lets nobody in.
        mode: u32,
    },
    /// Gives a device node back the mode that the journal has from its fence.
    Unfence {
        /// The node.
        node: String,
    },
    /// Switches persistence of one device, so that the driver does not keep it open.
    Persistence {
        /// The device.
        device: PciAddress,
        /// On or off.
        on: bool,
    },
    /// Gives a device's persistence back the state that the journal has from before it was
    /// switched.
    RestorePersistence {
        /// The device.
        device: PciAddress,
    },
    /// Writes a driver's name to `driver_override`.
    SetOverride {
        /// The device.
        device: PciAddress,
        /// The only driver that may bind.
        driver: String,
    },
    /// Clears `driver_override`.
    ClearOverride {
        /// The device.
        device: PciAddress,
    },
    /// Unbinds a driver. May block for ever: only without holders, in a child, with a watchdog.
    Unbind {
        /// The device.
        device: PciAddress,
        /// The driver that is bound.
        driver: String,
    },
    /// Has the kernel look for a driver (`drivers_probe`); done when this one is bound.
    Probe {
        /// The device.
        device: PciAddress,
        /// The driver that is to be bound after it.
        driver: String,
    },
    /// Resets one function that no driver has (`reset` in its directory). Part of a way back only.
    Reset {
        /// The device.
        device: PciAddress,
    },
    /// Writes the type of a group, found anew through a member, and reads it back.
    WriteGroupType {
        /// The group's number when the plan was made.
        group: u32,
        /// A member: numbers change, members tell.
        member: PciAddress,
        /// The type that is there.
        from: String,
        /// The type to write.
        to: String,
    },
    /// Clears or sets bits of a port's ACS control word; the other bits stay.
    WriteAcs {
        /// The port.
        port: PciAddress,
        /// Which bits are written.
        mask: u16,
        /// What they become.
        bits: u16,
    },
    /// Loads a kernel module by name.
    LoadModule {
        /// The name.
        module: String,
    },
    /// Unloads a kernel module by name.
    UnloadModule {
        /// The name.
        module: String,
    },
    /// Puts a file in place that outlasts the boot: one of Peerway's own ([`crate::lasting`]).
    Install {
        /// Where.
        path: String,
        /// Mode bits.
        mode: u32,
        /// The whole content.
        content: String,
    },
    /// Removes such a file.
    Uninstall {
        /// Where.
        path: String,
    },
    /// Makes one entry of the peer map.
    Map(MapEntry),
    /// Takes one entry of the peer map away.
    Unmap(MapEntry),
    /// Waits for something, reading only.
    Wait {
        /// For what.
        until: Until,
        /// The most seconds to wait; then the step has failed.
        seconds: u32,
    },
    /// Does nothing: what was found was so already.
    Nothing,
}

/// An entry of the peer map: the requester's domain translates the region's bus addresses to
/// themselves.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MapEntry {
    /// In whose domain.
    pub requester: PciAddress,
    /// Whose memory.
    pub target: PciAddress,
    /// Resource index of the region.
    pub bar: u8,
    /// Where the region has to start; the module takes the kernel's own, and refuses another.
    pub start: BusAddress,
    /// First byte within the region.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// The other devices of the requester's group, which share its domain: the module refuses a
    /// group whose members are not all named.
    pub members: Vec<PciAddress>,
}

/// Which environment a file holds.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Environment {
    /// Peer access off.
    Safe,
    /// Peer access proved.
    Lifted,
}

/// What a step waits for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "what", rename_all = "snake_case", deny_unknown_fields)]
pub enum Until {
    /// No process holds one of these devices, by two scans with a wait between.
    NoHolders {
        /// The devices.
        devices: Vec<PciAddress>,
    },
    /// A driver is bound, the device answers, and the kernel log since the mark names no failure
    /// of it.
    Healthy {
        /// The device.
        device: PciAddress,
        /// Its driver.
        driver: String,
    },
    /// The device's node has this number (NVIDIA's `Device Minor`).
    Minor {
        /// The device.
        device: PciAddress,
        /// The number.
        minor: u32,
    },
    /// The group of a member has this type.
    GroupType {
        /// A member.
        member: PciAddress,
        /// The type.
        is: String,
    },
}

/// Why an act cannot be taken back.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{act} cannot be taken back: {why}")]
pub struct Irreversible {
    act: &'static str,
    why: String,
}

/// What was found in place before an act, as the journal has it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "found", content = "value")]
pub enum Found {
    /// There was nothing: no file, no driver, no override, no entry, not running, not loaded.
    Nothing,
    /// This was there: a driver's name, a type, a file's content, a mode or control word in
    /// decimal, `on` or `off`, `running`, `loaded`, `mapped`.
    Value(String),
}

impl Found {
    fn value(&self) -> Option<&str> {
        match self {
            Self::Nothing => None,
            Self::Value(text) => Some(text),
        }
    }
}

impl Op {
    /// Its word, as in `steps[].op`.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::WriteEnvironment { kind: Environment::Safe, .. } => "write_safe_environment",
            Self::WriteEnvironment { kind: Environment::Lifted, .. } => "lift_safe_environment",
            Self::RemoveEnvironment => "remove_environment",
            Self::Stop { .. } => "stop",
            Self::Start { .. } => "start",
            Self::Restart { .. } => "restart",
            Self::Fence { .. } => "fence",
            Self::Unfence { .. } => "unfence",
            Self::Persistence { on: true, .. } => "persistence_on",
            Self::Persistence { on: false, .. } => "persistence_off",
            Self::RestorePersistence { .. } => "restore_persistence",
            Self::SetOverride { .. } => "set_driver_override",
            Self::ClearOverride { .. } => "clear_driver_override",
            Self::Unbind { .. } => "unbind",
            Self::Probe { .. } => "drivers_probe",
            Self::Reset { .. } => "reset",
            Self::WriteGroupType { .. } => "write_group_type",
            Self::WriteAcs { .. } => "write_acs",
            Self::LoadModule { .. } => "load_module",
            Self::UnloadModule { .. } => "unload_module",
            Self::Install { .. } => "install_file",
            Self::Uninstall { .. } => "remove_file",
            Self::Map(_) => "map_entry",
            Self::Unmap(_) => "unmap_entry",
            Self::Wait { .. } => "wait",
            Self::Nothing => "nothing",
        }
    }

    /// The file that it writes, where it writes one.
    pub fn path(&self) -> Option<String> {
        let device = |at: &PciAddress, name: &str| format!("/sys/bus/pci/devices/{at}/{name}");
        match self {
            Self::WriteEnvironment { .. } | Self::RemoveEnvironment => {
                Some(ENVIRONMENT_FILE.to_owned())
            }
            Self::Fence { node, .. } | Self::Unfence { node } => Some(node.clone()),
            Self::Install { path, .. } | Self::Uninstall { path } => Some(path.clone()),
            Self::SetOverride { device: at, .. } | Self::ClearOverride { device: at } => {
                Some(device(at, "driver_override"))
            }
            Self::Unbind { driver, .. } => Some(format!("/sys/bus/pci/drivers/{driver}/unbind")),
            Self::Probe { .. } => Some("/sys/bus/pci/drivers_probe".to_owned()),
            Self::Reset { device: at } => Some(device(at, "reset")),
            Self::WriteGroupType { group, .. } => {
                Some(format!("/sys/kernel/iommu_groups/{group}/type"))
            }
            Self::WriteAcs { port, .. } => Some(device(port, "config")),
            Self::Stop { .. }
            | Self::Start { .. }
            | Self::Restart { .. }
            | Self::Persistence { .. }
            | Self::RestorePersistence { .. }
            | Self::LoadModule { .. }
            | Self::UnloadModule { .. }
            | Self::Map(_)
            | Self::Unmap(_)
            | Self::Wait { .. }
            | Self::Nothing => None,
        }
    }

    /// What is there after it, in one line.
    pub fn set(&self) -> String {
        match self {
            Self::WriteEnvironment { kind: Environment::Safe, .. } => "peer access off".to_owned(),
            Self::WriteEnvironment { kind: Environment::Lifted, content } => {
                content.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join(" ")
            }
            Self::RemoveEnvironment | Self::Uninstall { .. } => "no file".to_owned(),
            Self::Install { content, mode, .. } => {
                format!("{} lines, mode {mode:04o}", content.lines().count())
            }
            Self::Stop { service } => format!("{service} stopped"),
            Self::Start { service } => format!("{service} running"),
            Self::Restart { service } => format!("{service} running, if it ran before"),
            Self::Fence { mode, .. } => format!("mode {mode:04o}"),
            Self::Unfence { .. } => "the mode found before the fence".to_owned(),
            Self::Persistence { device, on } => {
                format!("persistence of {device} {}", if *on { "on" } else { "off" })
            }
            Self::RestorePersistence { device } => format!("persistence of {device} as before"),
            Self::SetOverride { driver, .. } => driver.clone(),
            Self::ClearOverride { .. } => "none".to_owned(),
            Self::Unbind { device, .. } | Self::Probe { device, .. } | Self::Reset { device } => {
                device.to_string()
            }
            Self::WriteGroupType { to, .. } => to.clone(),
            Self::WriteAcs { mask, bits, .. } => format!("bits {mask:#06x} = {bits:#06x}"),
            Self::LoadModule { module } => format!("{module} loaded"),
            Self::UnloadModule { module } => format!("{module} unloaded"),
            Self::Map(entry) => format!("{entry}"),
            Self::Unmap(entry) => format!("no {entry}"),
            Self::Wait { until, seconds } => format!("{until}, within {seconds} s"),
            Self::Nothing => "as it is".to_owned(),
        }
    }

    /// PCI functions that it changes.
    pub fn touches(&self) -> Vec<PciAddress> {
        match self {
            Self::Persistence { device, .. }
            | Self::RestorePersistence { device }
            | Self::SetOverride { device, .. }
            | Self::ClearOverride { device }
            | Self::Unbind { device, .. }
            | Self::Probe { device, .. }
            | Self::Reset { device } => vec![*device],
            Self::WriteGroupType { member, .. } => vec![*member],
            Self::WriteAcs { port, .. } => vec![*port],
            Self::Map(entry) | Self::Unmap(entry) => vec![entry.requester, entry.target],
            Self::WriteEnvironment { .. }
            | Self::RemoveEnvironment
            | Self::Stop { .. }
            | Self::Start { .. }
            | Self::Restart { .. }
            | Self::Fence { .. }
            | Self::Unfence { .. }
            | Self::LoadModule { .. }
            | Self::UnloadModule { .. }
            | Self::Install { .. }
            | Self::Uninstall { .. }
            | Self::Wait { .. }
            | Self::Nothing => Vec::new(),
        }
    }

    /// Whether what it sets is there after a boot; nothing else is.
    pub const fn outlasts_boot(&self) -> bool {
        matches!(self, Self::Install { .. } | Self::Uninstall { .. })
    }
}

impl std::fmt::Display for MapEntry {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            out,
            "entry in the domain of {} for region {} of {} at {}, offset {:#x}, {:#x} bytes",
            self.requester, self.bar, self.target, self.start, self.offset, self.length
        )
    }
}

impl std::fmt::Display for Until {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoHolders { devices } => {
                write!(out, "no process holds any of {} devices, seen twice", devices.len())
            }
            Self::Healthy { device, driver } => {
                write!(out, "{device} is bound to {driver} and healthy")
            }
            Self::Minor { device, minor } => write!(out, "{device} has node number {minor}"),
            Self::GroupType { member, is } => write!(out, "the group of {member} reads {is}"),
        }
    }
}
