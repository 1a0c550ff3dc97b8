//! Everything known about one host at one moment: the spine of the program.
//!
//! Collectors fill it, rules read it, nothing changes it afterwards. A snapshot is complete even
//! where the host is not: what could not be read is a value ([`Observed`]) and is listed in
//! [`Snapshot::gaps`].

pub mod driver;
pub mod faults;
pub mod firmware;
pub mod iommu;
pub mod kernel;
pub mod link;
pub mod measured;
pub mod pci;
pub mod peer_map;
pub mod query;
pub mod tenant;

use serde::{Deserialize, Serialize};

use crate::observed::Observed;
use driver::NvidiaDriver;
use faults::FaultFacts;
use firmware::Firmware;
use iommu::{Group, Iommu};
use kernel::{Cpu, Kernel, MemoryEncryption};
use link::NvLink;
use measured::Measured;
use pci::PciDevice;
use peer_map::PeerMap;
use tenant::{Claim, Holder, Tenant};

/// Number of the snapshot's own format; raised when a field changes its meaning.
pub const SNAPSHOT_SCHEMA: u32 = 1;

/// Everything known about a host at one moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// [`SNAPSHOT_SCHEMA`] of the writer.
    pub schema: u32,
    /// Where it comes from.
    pub origin: Origin,
    /// Kernel release, command line and probes.
    pub kernel: Kernel,
    /// Processor.
    pub cpu: Cpu,
    /// SME and SNP, each with how it was established.
    pub memory_encryption: MemoryEncryption,
    /// IOMMU units and what they report.
    pub iommu: Iommu,
    /// PCI functions, ordered by address.
    pub devices: Vec<PciDevice>,
    /// IOMMU groups, ordered by number.
    pub groups: Vec<Group>,
    /// NVIDIA kernel driver, as far as it shows without opening a GPU.
    pub nvidia: NvidiaDriver,
    /// NVLink connections; rarely visible without opening a GPU.
    pub nvlinks: Observed<Vec<NvLink>>,
    /// DMI data and ACPI tables.
    pub firmware: Firmware,
    /// Who holds devices.
    pub tenants: Vec<Tenant>,
    /// Who says that a device is theirs, holding it or not.
    pub claims: Vec<Claim>,
    /// Processes with an open device node; unreadable where nobody could look.
    pub holders: Observed<Vec<Holder>>,
    /// Devices that the operator declared to be accelerators.
    pub accelerators: Vec<pci::Accelerator>,
    /// What the kernel log says has happened.
    #[serde(default)]
    pub faults: Observed<FaultFacts>,
    /// Entries of the peer-map module; absent where it is not loaded.
    #[serde(default)]
    pub peer_map: Observed<PeerMap>,
    /// The last measurement that was kept here.
    #[serde(default)]
    pub measured: Observed<Measured>,
    /// What could not be read.
    pub gaps: Vec<Gap>,
}

/// Where a snapshot comes from.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Origin {
    /// What `--host` named: `live`, a path, or `sim:NAME`.
    pub host: String,
    /// Live, recorded or simulated.
    pub kind: OriginKind,
    /// `/proc/sys/kernel/hostname`.
    pub hostname: Observed<String>,
    /// `/proc/sys/kernel/random/boot_id`.
    pub boot_id: Observed<String>,
    /// Whether the reader was root of the initial user namespace.
    pub privileged: bool,
}

/// The kind of host that was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OriginKind {
    /// This machine, now.
    #[default]
    Live,
    /// A directory or a `.host` file.
    Recorded,
    /// One of the built-in hosts.
    Simulated,
}

/// One thing that could not be read, and why.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Gap {
    /// File, directory or capability.
    pub source: String,
    /// Why, in words for the operator.
    pub why: String,
}
