//! Describes a host in a few lines and renders it as the files that Linux would show.
//!
//! ```
//! use peerway_sim::build::{HostBuilder, Iommu, cpu, kernels};
//! use peerway_sim::build::function::{Function, Port, XEON_ROOT_PORT};
//! use peerway_sim::build::model::L40S;
//!
//! let mut host = HostBuilder::new("two-cards", kernels::DEBIAN_12, cpu::XEON_8480);
//! host.iommu(Iommu::INTEL, "DMA-FQ").command_line("root=/dev/sda1 ro intel_iommu=on");
//! for bus in [0x15, 0x37] {
//!     let root = host.root_bus(0, bus, 0);
//!     let port = host.port(root, Port::root(XEON_ROOT_PORT, 1, bus + 1));
//!     host.device(port, Function::of(&L40S).driver("nvidia"));
//! }
//! let tree = host.tree()?;
//! # Ok::<(), peerway_sim::build::BuildError>(())
//! ```

mod config;
pub mod cpu;
mod disk;
mod files;
pub mod function;
pub mod kernels;
pub mod kmsg;
mod layout;
pub mod model;
mod render;
pub mod tenants;

use peerway_core::address::PciAddress;
use peerway_core::snapshot::kernel::KernelVersion;
use peerway_read::tree::{Node, Tree};

pub use disk::write_tree;
pub use files::{BuildError, to_host_file, walk};
use function::{Function, Port};
use kmsg::Kmsg;
use tenants::{Process, Tenant};

/// The IOMMU of a host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Iommu {
    /// Off, or none.
    Off,
    /// AMD-Vi, one unit per root bus: both feature registers.
    Amd {
        /// Extended feature register.
        efr: u64,
        /// Second extended feature register.
        efr2: u64,
    },
    /// VT-d, one unit per root bus.
    Intel {
        /// Capability register.
        cap: u64,
        /// Extended capability register.
        ecap: u64,
    },
    /// Arm SMMUv3, one unit for all.
    Smmu,
}

impl Iommu {
    /// AMD-Vi of EPYC 9004 with SNP switched on in firmware.
    pub const AMD_SNP: Self = Self::Amd { efr: 0xa5bf_7320_a229_4aee, efr2: 0x1d };
    /// AMD-Vi of EPYC 9004 without SNP.
    pub const AMD: Self = Self::Amd { efr: 0x25bf_7320_a229_4aee, efr2: 0x1d };
    /// AMD-Vi of EPYC 9005 with SNP, and untranslated entries allowed under it (EFR2 bit 13).
    pub const AMD_SNP_MODE_ZERO: Self = Self::Amd { efr: 0xa5bf_7320_a229_4aee, efr2: 0x201d };
    /// VT-d of a fourth-generation Xeon: pass-through, scalable mode.
    pub const INTEL: Self = Self::Intel { cap: 0x19ed_008c_4078_0c66, ecap: 0x3_ee9e_86f0_50df };
}

/// NVIDIA's kernel driver.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NvidiaDriver {
    /// `580.95.05`.
    pub version: &'static str,
    /// Words of the version line that tell the flavour.
    pub flavour: NvidiaFlavour,
    /// Parameters that differ from the stock values, by name without `NVreg_`.
    pub params: Vec<(&'static str, String)>,
}

/// Build of NVIDIA's kernel driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NvidiaFlavour {
    /// Open kernel modules.
    Open,
    /// Closed kernel modules.
    Closed,
    /// Open kernel modules with peer-to-peer patches; they name themselves in the build line.
    Fork,
}

/// State of memory encryption.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Encryption {
    /// SME active in the kernel.
    pub sme: bool,
    /// SEV and SEV-ES usable for guests.
    pub sev: bool,
    /// SEV-SNP on.
    pub snp: bool,
}

/// A bus to put devices on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bus {
    pub(self) root: usize,
    pub(self) port: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
struct RootBus {
    domain: u32,
    bus: u8,
    node: i32,
}

#[derive(Clone, Debug)]
enum Item {
    Port(Port),
    Function(Box<Function>),
}

#[derive(Clone, Debug)]
struct Entry {
    bus: Bus,
    item: Item,
}

/// A host under description.
#[derive(Clone, Debug)]
pub struct HostBuilder {
    name: String,
    kernel: String,
    command_line: String,
    cpu: cpu::CpuModel,
    nodes: u32,
    iommu: Iommu,
    domain: &'static str,
    iommu_boot_lines: bool,
    encryption: Encryption,
    nvidia: Option<NvidiaDriver>,
    dmi: Vec<(&'static str, String)>,
    firmware_tables: bool,
    host_bridges: bool,
    host_bridge: Option<(u16, u16)>,
    readable_config: u64,
    roots: Vec<RootBus>,
    entries: Vec<Entry>,
    tenants: Vec<Tenant>,
    processes: Vec<Process>,
    log: Kmsg,
    extra: Vec<(String, Node)>,
    first_aperture: u64,
}

impl HostBuilder {
    /// A host with a name, a kernel release and a processor; everything else is plain: no IOMMU,
    /// no encryption, no devices.
    pub fn new(name: &str, kernel: &str, cpu: cpu::CpuModel) -> Self {
        Self {
            name: name.to_owned(),
            kernel: kernel.to_owned(),
            command_line: "root=/dev/nvme0n1p2 ro quiet".to_owned(),
            cpu,
            nodes: 1,
            iommu: Iommu::Off,
            domain: "DMA-FQ",
            iommu_boot_lines: true,
            encryption: Encryption::default(),
            nvidia: None,
            dmi: Vec::new(),
            firmware_tables: false,
            host_bridges: true,
            host_bridge: None,
            readable_config: 4096,
            roots: Vec::new(),
            entries: Vec::new(),
            tenants: Vec::new(),
            processes: Vec::new(),
            log: Kmsg::default(),
            extra: Vec::new(),
            first_aperture: 0x200_0000_0000,
        }
    }

    /// Kernel command line, without `BOOT_IMAGE`.
    pub fn command_line(&mut self, text: &str) -> &mut Self {
        text.clone_into(&mut self.command_line);
        self
    }

    /// IOMMU, and the word in `type` of the groups that say nothing else.
    pub fn iommu(&mut self, iommu: Iommu, domain: &'static str) -> &mut Self {
        self.iommu = iommu;
        self.domain = domain;
        self
    }

    /// NUMA nodes.
    pub fn nodes(&mut self, count: u32) -> &mut Self {
        self.nodes = count;
        self
    }

    /// Memory encryption.
    pub fn encryption(&mut self, encryption: Encryption) -> &mut Self {
        self.encryption = encryption;
        self
    }

    /// NVIDIA's driver, loaded.
    pub fn nvidia(&mut self, version: &'static str, flavour: NvidiaFlavour) -> &mut Self {
        self.nvidia = Some(NvidiaDriver { version, flavour, params: Vec::new() });
        self
    }

    /// A parameter of NVIDIA's driver that is not stock, without `NVreg_`.
    pub fn nvidia_param(&mut self, name: &'static str, value: &str) -> &mut Self {
        if let Some(driver) = &mut self.nvidia {
            driver.params.push((name, value.to_owned()));
        }
        self
    }

    /// One DMI value (`board_vendor`, `bios_version`, …).
    pub fn dmi(&mut self, name: &'static str, value: &str) -> &mut Self {
        self.dmi.push((name, value.to_owned()));
        self
    }

    /// With the binary ACPI table of the IOMMU.
    pub fn firmware_tables(&mut self) -> &mut Self {
        self.firmware_tables = true;
        self
    }

    /// Without functions for host bridges and IOMMUs, as guests show them.
    pub fn bare_root_buses(&mut self) -> &mut Self {
        self.host_bridges = false;
        self
    }

    /// Vendor and device number of the host bridges, where they are not the processor's usual.
    pub fn host_bridge(&mut self, vendor: u16, device: u16) -> &mut Self {
        self.host_bridge = Some((vendor, device));
        self
    }

    /// As a reader without privilege sees it: 64 bytes of configuration space.
    pub fn unprivileged(&mut self) -> &mut Self {
        self.readable_config = 64;
        self
    }

    /// Where 64-bit windows begin.
    pub fn first_aperture(&mut self, address: u64) -> &mut Self {
        self.first_aperture = address;
        self
    }

    /// A root bus with its host bridge (and IOMMU unit), on a NUMA node (-1: unknown).
    pub fn root_bus(&mut self, domain: u32, bus: u8, node: i32) -> Bus {
        self.roots.push(RootBus { domain, bus, node });
        Bus { root: self.roots.len() - 1, port: None }
    }

    /// A port on a bus; gives the bus behind it.
    pub fn port(&mut self, bus: Bus, port: Port) -> Bus {
        self.entries.push(Entry { bus, item: Item::Port(port) });
        Bus { root: bus.root, port: Some(self.entries.len() - 1) }
    }

    /// A function on a bus; gives its address.
    pub fn device(&mut self, bus: Bus, function: Function) -> PciAddress {
        let number = self.bus_number(bus);
        let domain = self.roots.get(bus.root).map_or(0, |root| root.domain);
        let address = address(domain, number, function.device, function.function);
        self.entries.push(Entry { bus, item: Item::Function(Box::new(function)) });
        address
    }

    /// A switch: an upstream port on `bus`, and below it one downstream port per entry of
    /// `downstream`, whose buses are given back.
    pub fn switch(&mut self, bus: Bus, upstream: Port, downstream: &[Port]) -> Vec<Bus> {
        let inner = self.port(bus, upstream);
        downstream.iter().map(|port| self.port(inner, port.clone())).collect()
    }

    /// A container, a virtual machine or another tenant with its configuration.
    pub fn tenant(&mut self, tenant: Tenant) -> &mut Self {
        self.tenants.push(tenant);
        self
    }

    /// A process that holds devices.
    pub fn process(&mut self, process: Process) -> &mut Self {
        self.processes.push(process);
        self
    }

    /// Records of the kernel log after those of the boot.
    pub fn log(&mut self) -> &mut Kmsg {
        &mut self.log
    }

    /// A log that lost its boot lines (the ring was overwritten).
    pub fn without_boot_lines(&mut self) -> &mut Self {
        self.iommu_boot_lines = false;
        self
    }

    /// A further file.
    pub fn file(&mut self, path: &str, node: Node) -> &mut Self {
        self.extra.push((path.to_owned(), node));
        self
    }

    /// Renders the host.
    pub fn tree(&self) -> Result<Tree, BuildError> {
        render::render(self)
    }

    fn version(&self) -> KernelVersion {
        KernelVersion::from_release(&self.kernel).unwrap_or(KernelVersion {
            major: 6,
            minor: 0,
            patch: 0,
        })
    }

    fn bus_number(&self, bus: Bus) -> u8 {
        let behind = bus.port.and_then(|index| self.entries.get(index));
        match behind.map(|entry| &entry.item) {
            Some(Item::Port(port)) => port.secondary,
            Some(Item::Function(_)) | None => self.roots.get(bus.root).map_or(0, |root| root.bus),
        }
    }
}

/// An address from numbers known to be in range; higher bits of the device are dropped.
pub fn address(domain: u32, bus: u8, device: u8, function: u8) -> PciAddress {
    let id = u16::from(bus) << 8 | u16::from(device & 0x1f) << 3 | u16::from(function & 7);
    PciAddress::from_requester_id(domain, id)
}
