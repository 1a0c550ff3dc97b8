//! PCI functions: identity, place in the tree, address map, configuration space facts.

use serde::{Deserialize, Serialize};

use crate::address::{BusAddress, PciAddress, VendorDevice};
use crate::observed::Observed;

/// One PCI function.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct PciDevice {
    /// Its address.
    pub address: PciAddress,
    /// Vendor and device number.
    pub ids: Observed<VendorDevice>,
    /// Subsystem vendor and device number.
    pub subsystem: Observed<VendorDevice>,
    /// Class code, 24 bits: base class, subclass, programming interface.
    pub class: Observed<u32>,
    /// Bridges above it, from the root bus down to its parent; empty on a root bus.
    pub ancestors: Vec<PciAddress>,
    /// Root bus that it hangs from.
    pub root: RootBus,
    /// Bound driver; absent if none is.
    pub driver: Observed<String>,
    /// `driver_override`; absent if unset.
    pub driver_override: Observed<String>,
    /// IOMMU group; absent without an IOMMU for it.
    pub group: Observed<u32>,
    /// IOMMU unit that covers it (`ivhd0`, `dmar1`).
    pub iommu_unit: Observed<String>,
    /// NUMA node; absent if the kernel says -1.
    pub numa_node: Observed<u32>,
    /// Memory and I/O regions, from `resource`.
    pub bars: Observed<Vec<Bar>>,
    /// `power/runtime_status`.
    pub power: Observed<Power>,
    /// Facts from configuration space; read for bridges above and for the devices asked about.
    pub config: Observed<ConfigFacts>,
    /// `current_link_*` and `max_link_*`.
    pub link: Observed<LinkState>,
    /// `dma_mask_bits`: width of the bus addresses that its driver said it can emit.
    pub dma_mask_bits: Observed<u32>,
    /// `removable`: `fixed`, `removable` or `unknown` (`drivers/pci/pci-sysfs.c`).
    pub removable: Observed<String>,
    /// `reset_method`, in the kernel's order.
    pub reset_methods: Observed<Vec<String>>,
    /// `/sys/bus/pci/devices/ADDRESS/vfio-dev/vfioN`.
    pub vfio_device: Observed<String>,
}

/// A root bus: one per host bridge (`/sys/devices/pciDDDD:BB`).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
)]
pub struct RootBus {
    /// PCI domain.
    pub domain: u32,
    /// Bus number.
    pub bus: u8,
}

impl std::fmt::Display for RootBus {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.pad(&format!("pci{:04x}:{:02x}", self.domain, self.bus))
    }
}

/// One region of a function, from a line of `resource` (`drivers/pci/pci-sysfs.c`,
/// `resource_show`; flags from `include/linux/ioport.h`).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bar {
    /// Resource index: 0 to 5 for BARs, 6 for the expansion ROM.
    pub index: u8,
    /// First bus address.
    pub start: BusAddress,
    /// Bytes.
    pub size: u64,
    /// Memory (or I/O ports).
    pub memory: bool,
    /// Prefetchable.
    pub prefetchable: bool,
    /// 32 or 64.
    pub width: u8,
    /// Whether it has an address (flag `IORESOURCE_UNSET` clear, start not zero).
    pub assigned: bool,
}

impl Bar {
    /// First address past the region.
    pub fn end(&self) -> u64 {
        self.start.0.saturating_add(self.size)
    }

    /// Whether an address lies inside.
    pub fn contains(&self, address: BusAddress) -> bool {
        self.assigned && self.memory && address.0 >= self.start.0 && address.0 < self.end()
    }
}

/// Runtime power state (`Documentation/ABI/testing/sysfs-devices-power`, `runtime_status`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Power {
    /// Awake.
    Active,
    /// Asleep: its configuration space is left alone.
    Suspended,
    /// On its way to either.
    Changing,
    /// Runtime power management is not in use.
    Unsupported,
    /// The kernel reports an error.
    Error,
}

/// What configuration space says (PCI Express Base Specification, chapter 7).
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ConfigFacts {
    /// Every byte read as ones: the device does not answer.
    pub dead: bool,
    /// Memory decode (command register, bit 1).
    pub memory_enabled: bool,
    /// Bus mastering (command register, bit 2).
    pub bus_master: bool,
    /// PCI Express port type; absent for conventional PCI.
    pub port_type: Observed<PortType>,
    /// Access Control Services; absent where the function has none.
    pub acs: Observed<Acs>,
    /// Address Translation Services; absent where the function has none.
    pub ats: Observed<Ats>,
    /// PASID capability present.
    pub pasid: Observed<bool>,
    /// Resizable BAR entries.
    pub resizable: Observed<Vec<ResizableBar>>,
    /// Maximum payload size in force, bytes.
    pub max_payload: Observed<u32>,
}

/// Device/port type of the PCI Express capability (7.5.3.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PortType {
    /// Endpoint, legacy endpoint.
    Endpoint,
    /// Root port.
    RootPort,
    /// Upstream port of a switch.
    Upstream,
    /// Downstream port of a switch.
    Downstream,
    /// Bridge to conventional PCI, or back.
    PciBridge,
    /// Integrated into the root complex.
    RootComplexIntegrated,
    /// Root complex event collector.
    EventCollector,
    /// A number that the specification does not give.
    Reserved(u8),
}

/// Access Control Services: capability and control words (7.7.11).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Acs {
    /// Capability register.
    pub capability: u16,
    /// Control register.
    pub control: u16,
}

impl Acs {
    /// Source validation.
    pub const SOURCE_VALIDATION: u16 = 1;
    /// Translation blocking.
    pub const TRANSLATION_BLOCKING: u16 = 1 << 1;
    /// Peer-to-peer request redirect.
    pub const REQUEST_REDIRECT: u16 = 1 << 2;
    /// Peer-to-peer completion redirect.
    pub const COMPLETION_REDIRECT: u16 = 1 << 3;
    /// Upstream forwarding.
    pub const UPSTREAM_FORWARDING: u16 = 1 << 4;
    /// Egress control.
    pub const EGRESS_CONTROL: u16 = 1 << 5;
    /// Direct translated peer-to-peer.
    pub const DIRECT_TRANSLATED: u16 = 1 << 6;

    /// Whether peer requests or completions are sent upstream: request redirect, completion
    /// redirect or egress control (`drivers/pci/p2pdma.c`, `pci_bridge_has_acs_redir`).
    pub fn redirects(self) -> bool {
        let bits = Self::REQUEST_REDIRECT | Self::COMPLETION_REDIRECT | Self::EGRESS_CONTROL;
        self.control & bits != 0
    }

    /// The control bits that are set, in `lspci`'s words.
    pub fn words(self) -> String {
        const NAMES: [(u16, &str); 7] = [
            (Acs::SOURCE_VALIDATION, "SrcValid"),
            (Acs::TRANSLATION_BLOCKING, "TransBlk"),
            (Acs::REQUEST_REDIRECT, "ReqRedir"),
            (Acs::COMPLETION_REDIRECT, "CmpltRedir"),
            (Acs::UPSTREAM_FORWARDING, "UpstreamFwd"),
            (Acs::EGRESS_CONTROL, "EgressCtrl"),
            (Acs::DIRECT_TRANSLATED, "DirectTrans"),
        ];
        let set: Vec<&str> = NAMES
            .iter()
            .filter(|(bit, _)| self.control & bit != 0)
            .map(|(_, name)| *name)
            .collect();
        if set.is_empty() { "none set".to_owned() } else { set.join(" ") }
    }
}

/// Address Translation Services (10.5.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ats {
    /// Enabled (control register, bit 15).
    pub enabled: bool,
}

/// One entry of the Resizable BAR capability (7.8.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResizableBar {
    /// BAR index.
    pub index: u8,
    /// Current size, bytes.
    pub current: u64,
    /// Largest supported size, bytes.
    pub largest: u64,
}

/// Link speed and width.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LinkState {
    /// Current speed in units of 0.1 GT/s; idle GPUs lower it.
    pub speed: u32,
    /// Current lanes.
    pub width: u32,
    /// Best speed in units of 0.1 GT/s.
    pub max_speed: u32,
    /// Most lanes.
    pub max_width: u32,
}

impl LinkState {
    /// Payload-free rate of a link in bytes per second: lanes times transfer rate, less the line
    /// coding (8b/10b to 5 GT/s, 128b/130b from 8 GT/s, none subtracted at 64 GT/s).
    pub fn rate(speed: u32, width: u32) -> u64 {
        let bits = u64::from(speed) * 100_000_000 * u64::from(width);
        match speed {
            0..=50 => bits * 8 / 10 / 8,
            51..=320 => bits * 128 / 130 / 8,
            _ => bits / 8,
        }
    }

    /// Generation of a speed: 32 GT/s is 5.
    pub fn generation(speed: u32) -> Option<u8> {
        match speed {
            25 => Some(1),
            50 => Some(2),
            80 => Some(3),
            160 => Some(4),
            320 => Some(5),
            640 => Some(6),
            _ => None,
        }
    }
}

/// How a device addresses its peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Addressing {
    /// With the peer's bus address, whatever the IOMMU does.
    Raw,
    /// With an address that its driver had the kernel map.
    Mapped,
}

/// A device that the operator named as an accelerator (`--accelerator`): the operator's word.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Accelerator {
    /// What to call it.
    pub name: String,
    /// The function that issues requests.
    pub requester: PciAddress,
    /// The function whose BAR is its memory.
    pub memory: PciAddress,
    /// Resource index of that BAR.
    pub bar: u8,
    /// How it addresses peers.
    pub addressing: Addressing,
    /// Whether the root complex is known to forward peer requests.
    pub root_complex_forwards: bool,
}
