//! Questions that many rules ask of a snapshot.

use std::collections::BTreeSet;

use super::Snapshot;
use super::iommu::{DomainType, Group, IommuVendor};
use super::kernel::Tristate;
use super::pci::{Accelerator, Bar, PciDevice};
use super::tenant::{Claim, Tenant, TenantId};
use crate::address::{BusAddress, PciAddress};
use crate::observed::Observed;

/// Base class and subclass of a class code.
pub fn class_pair(class: u32) -> u32 {
    class >> 8
}

/// PCI classes by what they mean here.
pub mod class {
    /// VGA controller.
    pub const VGA: u32 = 0x0300;
    /// 3D controller.
    pub const THREE_D: u32 = 0x0302;
    /// Other display controller.
    pub const DISPLAY: u32 = 0x0380;
    /// Processing accelerator.
    pub const ACCELERATOR: u32 = 0x1200;
    /// Non-volatile memory controller (NVMe).
    pub const NVME: u32 = 0x0108;
    /// Base class of network controllers.
    pub const NETWORK: u32 = 0x02;
    /// InfiniBand controller.
    pub const INFINIBAND: u32 = 0x0207;
    /// PCI-to-PCI bridge.
    pub const BRIDGE: u32 = 0x0604;
    /// Other bridge; NVSwitch uses it.
    pub const OTHER_BRIDGE: u32 = 0x0680;
}

/// PCI vendor numbers.
pub mod vendor {
    /// NVIDIA.
    pub const NVIDIA: u16 = 0x10de;
    /// AMD/ATI graphics.
    pub const AMD_GRAPHICS: u16 = 0x1002;
    /// Intel.
    pub const INTEL: u16 = 0x8086;
}

impl PciDevice {
    /// A GPU by class and vendor: display or accelerator classes of NVIDIA, AMD and Intel. Display
    /// adapters of others (board management chips) are none.
    pub fn is_gpu(&self) -> bool {
        let (Some(class), Some(ids)) = (self.class.known(), self.ids.known()) else { return false };
        let display = matches!(class_pair(*class), class::VGA | class::THREE_D | class::DISPLAY);
        match ids.vendor {
            vendor::NVIDIA => display,
            vendor::AMD_GRAPHICS => display || class_pair(*class) == class::ACCELERATOR,
            vendor::INTEL => display || class_pair(*class) == class::ACCELERATOR,
            _ => false,
        }
    }

    /// A network controller.
    pub fn is_nic(&self) -> bool {
        self.class.known().is_some_and(|class| class >> 16 == class::NETWORK)
    }

    /// An NVMe controller.
    pub fn is_nvme(&self) -> bool {
        self.class.known().is_some_and(|class| class_pair(*class) == class::NVME)
    }

    /// A PCI-to-PCI bridge.
    pub fn is_bridge(&self) -> bool {
        self.class.known().is_some_and(|class| class_pair(*class) == class::BRIDGE)
    }

    /// Whether the vendor is this one.
    pub fn is_vendor(&self, vendor: u16) -> bool {
        self.ids.known().is_some_and(|ids| ids.vendor == vendor)
    }

    /// Name of the bound driver.
    pub fn driver_name(&self) -> Option<&str> {
        self.driver.known().map(String::as_str)
    }

    /// Bound to `vfio-pci` or a variant of it.
    pub fn is_vfio(&self) -> bool {
        self.driver_name().is_some_and(|name| name.contains("vfio"))
    }

    /// The memory that peers reach: its largest prefetchable memory BAR, else the largest memory
    /// BAR. NVIDIA's "BAR1" is resource index 1 or 2, by board.
    pub fn peer_bar(&self) -> Option<&Bar> {
        let bars = self.bars.known()?;
        let memory = || bars.iter().filter(|bar| bar.memory && bar.index < 6);
        memory()
            .filter(|bar| bar.prefetchable)
            .max_by_key(|bar| bar.size)
            .or_else(|| memory().max_by_key(|bar| bar.size))
    }
}

impl Snapshot {
    /// One device.
    pub fn device(&self, address: PciAddress) -> Option<&PciDevice> {
        let at = self.devices.binary_search_by_key(&address, |device| device.address).ok()?;
        self.devices.get(at)
    }

    /// One group.
    pub fn group(&self, id: u32) -> Option<&Group> {
        let at = self.groups.binary_search_by_key(&id, |group| group.id).ok()?;
        self.groups.get(at)
    }

    /// The group of a device.
    pub fn group_of(&self, device: &PciDevice) -> Option<&Group> {
        self.group(*device.group.known()?)
    }

    /// Default-domain type of a device's group; absent where it has no group.
    pub fn domain_of(&self, device: &PciDevice) -> Observed<DomainType> {
        match &device.group {
            Observed::Known(id) => match self.group(*id) {
                Some(group) => group.domain.clone(),
                None => Observed::Unreadable(format!("group {id} is not listed")),
            },
            Observed::Absent => Observed::Absent,
            Observed::Unreadable(why) => Observed::Unreadable(why.clone()),
        }
    }

    /// GPUs and declared accelerators, ordered by address.
    pub fn accelerated(&self) -> Vec<&PciDevice> {
        self.devices
            .iter()
            .filter(|device| device.is_gpu() || self.accelerator(device.address).is_some())
            .collect()
    }

    /// What the operator declared about a requester.
    pub fn accelerator(&self, requester: PciAddress) -> Option<&Accelerator> {
        self.accelerators.iter().find(|one| one.requester == requester)
    }

    /// The BAR that peers of this device reach, and the function it belongs to.
    pub fn peer_memory<'a>(&'a self, device: &'a PciDevice) -> Option<(&'a PciDevice, &'a Bar)> {
        match self.accelerator(device.address) {
            Some(declared) => {
                let memory = self.device(declared.memory)?;
                let bars = memory.bars.known()?;
                Some((memory, bars.iter().find(|bar| bar.index == declared.bar)?))
            }
            None => Some((device, device.peer_bar()?)),
        }
    }

    /// Whether an IOMMU is active at all.
    pub fn iommu_active(&self) -> Tristate {
        match &self.iommu.units {
            Observed::Known(units) if !units.is_empty() => Tristate::Yes,
            Observed::Known(_) | Observed::Absent => {
                // Groups without units would contradict: then nobody can tell.
                if self.groups.is_empty() { Tristate::No } else { Tristate::Unknown }
            }
            Observed::Unreadable(_) => Tristate::Unknown,
        }
    }

    /// Maker of the IOMMU, from its first unit.
    pub fn iommu_vendor(&self) -> Option<IommuVendor> {
        self.iommu.units.known()?.first().map(|unit| unit.vendor)
    }

    /// One tenant.
    pub fn tenant(&self, id: &TenantId) -> Option<&Tenant> {
        self.tenants.iter().find(|tenant| tenant.id == *id)
    }

    /// Claims on a device.
    pub fn claims_on(&self, device: PciAddress) -> impl Iterator<Item = &Claim> {
        self.claims.iter().filter(move |claim| claim.device == device)
    }

    /// Who holds a device now. A device that nobody is seen to hold belongs to its only claimant;
    /// without a claimant it belongs to guests if `vfio-pci` keeps it (`None`), else to the host.
    pub fn tenant_of(&self, device: &PciDevice) -> Option<TenantId> {
        let active: BTreeSet<&TenantId> = self
            .claims_on(device.address)
            .filter(|claim| claim.active == Tristate::Yes)
            .map(|claim| &claim.tenant)
            .collect();
        if let Some(first) = active.iter().next() {
            // Several holders at once: contested, and the first in order names it.
            return Some((*first).clone());
        }
        let all: BTreeSet<&TenantId> =
            self.claims_on(device.address).map(|claim| &claim.tenant).collect();
        match (all.len(), device.is_vfio()) {
            (1, _) => all.first().map(|only| (*only).clone()),
            (_, true) => None,
            (_, false) => Some(TenantId::host()),
        }
    }

    /// Whether more than one tenant holds or claims a device.
    pub fn is_contested(&self, device: PciAddress) -> bool {
        let claimants: BTreeSet<&TenantId> =
            self.claims_on(device).map(|claim| &claim.tenant).collect();
        claimants.len() > 1
    }

    /// The device and BAR that an address lies in, if any. Bridges' windows do not count.
    pub fn bar_at(&self, address: BusAddress) -> Option<(&PciDevice, &Bar)> {
        self.devices.iter().find_map(|device| {
            let bar = device.bars.known()?.iter().find(|bar| bar.contains(address))?;
            Some((device, bar))
        })
    }

    /// Whether this system is itself a guest (flag `hypervisor` of the processor).
    pub fn is_guest(&self) -> Tristate {
        self.cpu.has_flag("hypervisor").into()
    }
}
