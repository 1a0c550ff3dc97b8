//! What people attach to bug reports: recognised by content, never by a file's name.

use std::collections::{BTreeMap, BTreeSet};

use peerway_core::address::PciAddress;
use peerway_core::snapshot::iommu::DomainType;
use peerway_core::snapshot::pci::Bar;
use schemars::JsonSchema;
use serde::Serialize;

use crate::collect::Collected;

pub mod command_line;
pub mod config;
pub mod distance;
pub mod groups;
pub mod guest_log;
pub mod json;
pub mod log_shape;
pub mod lspci;
pub mod matrix;
pub mod nccl;
pub mod nvidia_smi;
pub mod parameters;
pub mod peer_test;
pub mod topology;

/// Most of a file that is no kernel log that is looked at; listings and tables are far shorter.
pub const MOST_TEXT: usize = 4 << 20;

/// What a file turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum SourceKind {
    /// A kernel log.
    KernelLog,
    /// A kernel command line.
    CommandLine,
    /// Memory regions of devices, and other facts as JSON.
    Regions,
    /// Output of a peer-to-peer test program.
    PeerTest,
    /// Bandwidths, or capabilities, by pair.
    Matrix,
    /// `nvidia-smi topo -p2p`.
    Topology,
    /// An NCCL or RCCL log.
    Nccl,
    /// A listing of IOMMU groups.
    Groups,
    /// `lspci`.
    Lspci,
    /// `nvidia-smi`.
    NvidiaSmi,
    /// What a user-space copy of the kernel's peer-to-peer code says.
    Distance,
    /// Configuration of virtual machines or containers.
    Config,
    /// What QEMU or its manager says about passed-through devices.
    GuestLog,
    /// Parameters of a kernel module.
    Parameters,
    /// Nothing that this program reads.
    Unknown,
}

/// One file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Source {
    /// Its name.
    pub name: String,
    /// What it is.
    pub kind: SourceKind,
}

/// Everything that a set of files says.
#[derive(Clone, Debug, Default)]
pub struct Material {
    /// The files.
    pub sources: Vec<Source>,
    /// All kernel logs together.
    pub log: Option<Collected>,
    /// Command lines of files that hold nothing else.
    pub command_lines: Vec<String>,
    /// Devices that listings name.
    pub devices: BTreeMap<PciAddress, ListedDevice>,
    /// Regions whose size is not said.
    pub unsized_bars: BTreeSet<(PciAddress, u8)>,
    /// Peer tests.
    pub peer_tests: Vec<peer_test::PeerTest>,
    /// Bandwidths and capabilities by pair.
    pub matrices: Vec<matrix::Matrices>,
    /// What the driver says about pairs.
    pub topologies: Vec<topology::Topology>,
    /// NCCL logs.
    pub nccl: nccl::Nccl,
    /// Groups by number.
    pub groups: BTreeMap<u32, Vec<PciAddress>>,
    /// Type of all groups, where a listing says one.
    pub domain: Option<DomainType>,
    /// GPUs whose BAR1 window is the legacy one, where the listing names them.
    pub small_windows: Vec<Option<PciAddress>>,
    /// What `lspci` says about access control, by port where it names one.
    pub acs: Vec<lspci::AcsControl>,
    /// What the kernel's peer-to-peer code would say.
    pub distances: Vec<distance::Distance>,
    /// What configurations name.
    pub configured: Vec<config::Configured>,
    /// Trouble of passed-through devices, as user space reports it.
    pub guest_logs: Vec<guest_log::GuestLog>,
    /// Module parameters.
    pub parameters: BTreeMap<String, String>,
}

/// A device as a listing shows it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListedDevice {
    /// Class code, 24 bits.
    pub class: Option<u32>,
    /// Vendor and device number.
    pub id: Option<peerway_core::address::VendorDevice>,
    /// Bound driver.
    pub driver: Option<String>,
    /// Memory regions.
    pub bars: Vec<Bar>,
}

impl Material {
    /// Adds a file: its name, its beginning (up to [`MOST_TEXT`]), and what a scan for kernel
    /// messages found in all of it. Returns what the file is.
    pub fn add(&mut self, name: &str, head: &[u8], scanned: &Collected) -> SourceKind {
        let text = String::from_utf8_lossy(head);
        let kind = self.read(&text, scanned);
        self.sources.push(Source { name: name.to_owned(), kind });
        kind
    }

    fn read(&mut self, text: &str, scanned: &Collected) -> SourceKind {
        let said = log_shape::says_something(&scanned.report);
        if said && log_shape::is_log(text) {
            return SourceKind::KernelLog;
        }
        if json::read(text, self) {
            return SourceKind::Regions;
        }
        if let Some(test) = peer_test::read(text) {
            self.peer_tests.push(test);
            return SourceKind::PeerTest;
        }
        if let Some(matrices) = matrix::read(text) {
            for device in matrices.devices.values() {
                self.devices.entry(*device).or_default();
            }
            self.matrices.push(matrices);
            return SourceKind::Matrix;
        }
        if let Some(topology) = topology::read(text) {
            self.topologies.push(topology);
            return SourceKind::Topology;
        }
        if self.nccl.read(text) {
            return SourceKind::Nccl;
        }
        if let Some(log) = guest_log::read(text) {
            self.guest_logs.push(log);
            return SourceKind::GuestLog;
        }
        if let Some(distance) = distance::read(text) {
            self.distances.push(distance);
            return SourceKind::Distance;
        }
        if groups::read(text, self) {
            return SourceKind::Groups;
        }
        if lspci::read(text, self) {
            return SourceKind::Lspci;
        }
        if nvidia_smi::read(text, self) {
            return SourceKind::NvidiaSmi;
        }
        if config::read(text, self) {
            return SourceKind::Config;
        }
        if parameters::read(text, self) {
            return SourceKind::Parameters;
        }
        if let Some(line) = command_line::read(text) {
            self.command_lines.push(line);
            return SourceKind::CommandLine;
        }
        if said || log_shape::is_log(text) { SourceKind::KernelLog } else { SourceKind::Unknown }
    }

    /// Whether any file is this.
    pub fn has(&self, kind: SourceKind) -> bool {
        self.sources.iter().any(|source| source.kind == kind)
    }
}
