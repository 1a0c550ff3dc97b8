//! What no file of a host shows.

use std::collections::{BTreeMap, BTreeSet};

use peerway_core::address::PciAddress;
use peerway_roads::op::MapEntry;
use serde::{Deserialize, Serialize};

/// State of a simulated host beside its tree.
#[expect(clippy::struct_excessive_bools, reason = "facts that are independent of each other")]
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct State {
    /// Seconds since boot.
    pub now: u64,
    /// Modes of device nodes that are not 0666.
    pub modes: BTreeMap<String, u32>,
    /// Devices that the driver keeps open.
    pub persistent: BTreeSet<PciAddress>,
    /// Stopped services with their processes: paths of files, and what they held.
    pub services: BTreeMap<String, Vec<Kept>>,
    /// Entries of the peer map.
    pub entries: BTreeSet<MapEntry>,
    /// What the driver says of a device, kept while it is unbound: name of a file and content.
    pub information: BTreeMap<PciAddress, Vec<(String, String)>>,
    /// The driver that a device finds by its identifiers: the one it had last.
    pub home: BTreeMap<PciAddress, String>,
    /// Unbindings that wait in the kernel, with the driver.
    pub stuck: BTreeMap<PciAddress, String>,
    /// Boards fail at the FSP boot command when the driver binds under identity.
    pub fails_under_identity: bool,
    /// Drivers that take no device under identity, as the kernel says it when a probe fails.
    #[serde(default)]
    pub refuses_identity: BTreeSet<String>,
    /// Boards fail when they are bound again at all.
    pub fails_when_rebound: bool,
    /// Boards that failed once fail until they are reset: what booted them is still there (WPR2, in the
    /// words of the driver). Reported by operators (NVIDIA/open-gpu-kernel-modules, issue 1353), not measured;
    /// that it shows at the binding, and not at the first open, is assumed.
    #[serde(default)]
    pub fails_until_reset: bool,
    /// Boards of which that is so now.
    #[serde(default)]
    pub latched: BTreeSet<PciAddress>,
    /// Writes of a type that meet a reset of a device (7.2 and later).
    pub resets_in_progress: u32,
    /// No queue for deferred flushes can be had: a group told `DMA-FQ` reads `DMA`.
    #[serde(default)]
    pub no_flush_queue: bool,
    /// The kernel module of the peer map is not installed.
    pub no_module: bool,
}

/// One file of a stopped process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Kept {
    /// Where.
    pub path: String,
    /// A link's target; absent for a file.
    pub link: Option<String>,
    /// A file's content.
    pub text: String,
}
