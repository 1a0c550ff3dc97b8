//! The document of `scan`: the inventory.

use std::collections::{BTreeMap, BTreeSet};

use schemars::JsonSchema;
use serde::Serialize;

use crate::address::{BusAddress, PciAddress};
use crate::observed::Observed;
use crate::snapshot::Snapshot;
use crate::snapshot::iommu::IommuVendor;
use crate::snapshot::kernel::Tristate;
use crate::snapshot::pci::{Bar, PciDevice};
use crate::snapshot::tenant::TenantId;

/// Inventory of a host.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Scan {
    /// The devices asked about: GPUs, accelerators, and what `--with` added.
    pub devices: Vec<Device>,
    /// Their IOMMU groups.
    pub groups: Vec<Group>,
    /// Everybody who holds or claims one.
    pub tenants: Vec<Tenant>,
    /// The kernel.
    pub kernel: Kernel,
    /// The IOMMU.
    pub iommu: Iommu,
    /// The NVIDIA driver.
    pub driver: Driver,
    /// What could not be read.
    pub gaps: Vec<Gap>,
}

/// One device.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Device {
    /// PCI address.
    pub address: PciAddress,
    /// Vendor number, `0x10de`.
    pub vendor_id: Option<String>,
    /// Device number, `0x2bb5`.
    pub device_id: Option<String>,
    /// Class code, `0x030200`.
    pub class: Option<String>,
    /// Name, from the driver or the table of boards.
    pub name: Option<String>,
    /// GPU UUID, where the driver tells.
    pub uuid: Option<String>,
    /// Bound driver.
    pub driver: Option<String>,
    /// NUMA node.
    pub numa_node: Option<u32>,
    /// IOMMU group.
    pub group: Option<u32>,
    /// IOMMU unit.
    pub iommu_unit: Option<String>,
    /// Who holds it.
    pub tenant: Option<TenantId>,
    /// Who says that it is theirs.
    pub claims: Vec<Claim>,
    /// Regions with an index from 0 to 5.
    pub bars: Vec<Region>,
    /// Bridges above it, from the root down.
    pub upstream: Vec<PciAddress>,
    /// Root bus.
    pub root_bus: String,
    /// Power state.
    pub power: Option<String>,
    /// Best and present link: generation-free, in units of 0.1 GT/s and lanes.
    pub link: Option<Link>,
    /// What could not be read, by field, with the reason.
    pub unreadable: BTreeMap<String, String>,
}

/// State of a link.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Link {
    /// Present transfer rate per lane, transfers per second.
    pub transfers_per_second: u64,
    /// Present lanes.
    pub lanes: u32,
    /// Best transfer rate.
    pub max_transfers_per_second: u64,
    /// Most lanes.
    pub max_lanes: u32,
}

/// One claim on a device.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Claim {
    /// Who.
    pub tenant: TenantId,
    /// What says so.
    pub source: String,
    /// Whether the claimant holds the device now: `yes`, `no`, `unknown`.
    pub active: String,
}

/// One region.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Region {
    /// Resource index.
    pub index: u8,
    /// First bus address; `null` where the kernel found none.
    pub start: Option<BusAddress>,
    /// Bytes.
    pub size: u64,
    /// Prefetchable.
    pub prefetchable: bool,
    /// 32 or 64.
    pub width: u8,
}

/// One IOMMU group.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Group {
    /// Number.
    pub id: u32,
    /// The word in `type`.
    #[serde(rename = "type")]
    pub domain: Option<String>,
    /// Members.
    pub devices: Vec<PciAddress>,
}

/// One tenant.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Tenant {
    /// `host`, `lxc:129`, `vm:132`, …
    pub id: TenantId,
    /// `host`, `lxc`, `vm`, `container`, `pod` or `job`.
    pub kind: String,
    /// Its own name.
    pub name: Option<String>,
    /// Whether its memory is encrypted against the host: `yes`, `no`, `unknown`.
    pub confidential: String,
    /// Whether it runs: `yes`, `no`, `unknown`.
    pub running: String,
    /// Devices that it holds.
    pub devices: Vec<PciAddress>,
}

/// The kernel.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Kernel {
    /// Release.
    pub release: Option<String>,
    /// Command line.
    pub command_line: Option<String>,
    /// Whether devices under translation have a table of DMA operations (`iommu_dma_ops`).
    pub iommu_dma_ops: Option<bool>,
}

/// The IOMMU.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Iommu {
    /// `amd`, `intel`, `arm`, `other`.
    pub vendor: Option<String>,
    /// `on`, `off`, `unknown`.
    pub state: String,
    /// SEV-SNP on the host: `yes`, `no`, `unknown`.
    pub snp: String,
    /// SME in the kernel's page tables: `yes`, `no`, `unknown`.
    pub sme: String,
}

/// The NVIDIA driver.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Driver {
    /// Version.
    pub version: Option<String>,
    /// `open`, `closed`, `fork`.
    pub flavour: Option<String>,
}

/// Something that could not be read.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Gap {
    /// File, directory or capability.
    pub source: String,
    /// Why.
    pub why: String,
}

impl Scan {
    /// From a snapshot and the devices to list.
    pub fn new(snapshot: &Snapshot, listed: &[&PciDevice]) -> Self {
        let theirs: BTreeSet<u32> =
            listed.iter().filter_map(|device| device.group.known().copied()).collect();
        // Each is looked up among all claims, so once is enough.
        let owners: Vec<Option<TenantId>> =
            listed.iter().map(|device| snapshot.tenant_of(device)).collect();
        let groups = snapshot
            .groups
            .iter()
            .filter(|group| theirs.contains(&group.id))
            .map(|group| Group {
                id: group.id,
                domain: group.domain.known().map(ToString::to_string),
                devices: group.devices.clone(),
            })
            .collect();
        Self {
            tenants: tenants(snapshot, listed, &owners),
            devices: listed
                .iter()
                .zip(owners)
                .map(|(device, owner)| Device::new(snapshot, device, owner))
                .collect(),
            groups,
            kernel: Kernel {
                release: snapshot.kernel.release.known().cloned(),
                command_line: snapshot.kernel.command_line.known().cloned(),
                iommu_dma_ops: snapshot.kernel.iommu_dma_ops.known().copied(),
            },
            iommu: iommu(snapshot),
            driver: Driver {
                version: snapshot.nvidia.version.known().map(|driver| driver.version.clone()),
                flavour: snapshot
                    .nvidia
                    .version
                    .known()
                    .map(|driver| format!("{:?}", driver.flavour).to_lowercase()),
            },
            gaps: snapshot
                .gaps
                .iter()
                .map(|gap| Gap { source: gap.source.clone(), why: gap.why.clone() })
                .collect(),
        }
    }
}

/// Name of a device: what its driver says, else the table of boards.
pub fn device_name(snapshot: &Snapshot, device: &PciDevice) -> Option<String> {
    if let Some(declared) = snapshot.accelerator(device.address) {
        return Some(declared.name.clone());
    }
    let told = snapshot.nvidia.gpus.known().and_then(|gpus| {
        gpus.iter().find(|gpu| gpu.address == device.address)?.model.known().cloned()
    });
    told.or_else(|| {
        let board = crate::boards::lookup(*device.ids.known()?)?;
        Some(format!("NVIDIA {}", board.name))
    })
}

fn iommu(snapshot: &Snapshot) -> Iommu {
    let vendor = snapshot.iommu_vendor().map(|vendor| {
        match vendor {
            IommuVendor::Amd => "amd",
            IommuVendor::Intel => "intel",
            IommuVendor::Arm => "arm",
            IommuVendor::Other => "other",
        }
        .to_owned()
    });
    let state = match snapshot.iommu_active() {
        Tristate::Yes => "on",
        Tristate::No => "off",
        Tristate::Unknown => "unknown",
    };
    Iommu {
        vendor,
        state: state.to_owned(),
        snp: snapshot.memory_encryption.snp.state.to_string(),
        sme: snapshot.memory_encryption.sme.state.to_string(),
    }
}

fn tenants(snapshot: &Snapshot, listed: &[&PciDevice], owners: &[Option<TenantId>]) -> Vec<Tenant> {
    let mut held: BTreeMap<&TenantId, Vec<PciAddress>> = BTreeMap::new();
    for (device, owner) in listed.iter().zip(owners) {
        if let Some(owner) = owner {
            held.entry(owner).or_default().push(device.address);
        }
    }
    snapshot
        .tenants
        .iter()
        .map(|tenant| Tenant {
            id: tenant.id.clone(),
            kind: tenant.kind.to_string(),
            name: tenant.name.known().cloned(),
            confidential: tenant.confidential.to_string(),
            running: tenant.running.to_string(),
            devices: held.get(&tenant.id).cloned().unwrap_or_default(),
        })
        .collect()
}

impl Device {
    fn new(snapshot: &Snapshot, device: &PciDevice, tenant: Option<TenantId>) -> Self {
        let mut unreadable = BTreeMap::new();
        let ids = keep(&device.ids, "vendor_id", &mut unreadable);
        let uuid = snapshot.nvidia.gpus.known().and_then(|gpus| {
            gpus.iter().find(|gpu| gpu.address == device.address)?.uuid.known().cloned()
        });
        Self {
            address: device.address,
            vendor_id: ids.map(|ids| format!("{:#06x}", ids.vendor)),
            device_id: ids.map(|ids| format!("{:#06x}", ids.device)),
            class: keep(&device.class, "class", &mut unreadable)
                .map(|class| format!("{class:#08x}")),
            name: device_name(snapshot, device),
            uuid,
            driver: keep(&device.driver, "driver", &mut unreadable),
            numa_node: keep(&device.numa_node, "numa_node", &mut unreadable),
            group: keep(&device.group, "group", &mut unreadable),
            iommu_unit: keep(&device.iommu_unit, "iommu_unit", &mut unreadable),
            tenant,
            claims: snapshot
                .claims_on(device.address)
                .map(|claim| Claim {
                    tenant: claim.tenant.clone(),
                    source: claim.source.clone(),
                    active: claim.active.to_string(),
                })
                .collect(),
            bars: keep(&device.bars, "bars", &mut unreadable)
                .unwrap_or_default()
                .iter()
                .filter(|bar| bar.memory && bar.index < 6)
                .map(region)
                .collect(),
            upstream: device.ancestors.clone(),
            root_bus: device.root.to_string(),
            power: keep(&device.power, "power", &mut unreadable)
                .map(|power| format!("{power:?}").to_lowercase()),
            link: keep(&device.link, "link", &mut unreadable).map(|link| Link {
                transfers_per_second: u64::from(link.speed) * 100_000_000,
                lanes: link.width,
                max_transfers_per_second: u64::from(link.max_speed) * 100_000_000,
                max_lanes: link.max_width,
            }),
            unreadable,
        }
    }
}

/// The value, or a note why there is none.
fn keep<T: Clone>(
    seen: &Observed<T>,
    name: &str,
    unreadable: &mut BTreeMap<String, String>,
) -> Option<T> {
    if let Observed::Unreadable(why) = seen {
        unreadable.insert(name.to_owned(), why.clone());
    }
    seen.known().cloned()
}

fn region(bar: &Bar) -> Region {
    Region {
        index: bar.index,
        start: bar.assigned.then_some(bar.start),
        size: bar.size,
        prefetchable: bar.prefetchable,
        width: bar.width,
    }
}
