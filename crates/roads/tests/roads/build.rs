//! From a recipe to a snapshot.

use peerway_core::address::{BusAddress, PciAddress, VendorDevice};
use peerway_core::observed::Observed::{self, Absent, Known, Unreadable};
use peerway_core::snapshot::driver::{DriverFlavour, DriverVersion, GpuInformation, NvidiaDriver};
use peerway_core::snapshot::iommu::{DomainType, Group, Iommu, IommuUnit, IommuVendor};
use peerway_core::snapshot::kernel::{Cpu, Established, Kernel, MemoryEncryption, Tristate};
use peerway_core::snapshot::pci::{
    Acs, Bar, ConfigFacts, LinkState, PciDevice, PortType, Power, RootBus,
};
use peerway_core::snapshot::tenant::{Claim, Holder, Tenant, TenantId, TenantKind};
use peerway_core::snapshot::{Gap, Origin, SNAPSHOT_SCHEMA, Snapshot};

use crate::random::{OWNERS, Recipe, Slot};

fn function(address: PciAddress, class: u32, ancestors: &[PciAddress], root: u8) -> PciDevice {
    PciDevice {
        address,
        ids: Known(VendorDevice { vendor: 0x1022, device: 0x14ab }),
        subsystem: Absent,
        class: Known(class),
        ancestors: ancestors.to_vec(),
        root: RootBus { domain: 0, bus: root },
        driver: Absent,
        driver_override: Absent,
        group: Absent,
        iommu_unit: Known("unit0".to_owned()),
        numa_node: Known(u32::from(root / 0x40)),
        bars: Known(Vec::new()),
        power: Known(Power::Active),
        config: Known(config(PortType::Endpoint)),
        link: Known(LinkState { speed: 320, width: 16, max_speed: 320, max_width: 16 }),
        dma_mask_bits: Known(32),
        removable: Absent,
        reset_methods: Known(Vec::new()),
        vfio_device: Absent,
    }
}

fn config(port_type: PortType) -> ConfigFacts {
    ConfigFacts {
        dead: false,
        memory_enabled: true,
        bus_master: true,
        port_type: Known(port_type),
        acs: Absent,
        ats: Absent,
        pasid: Absent,
        resizable: Known(Vec::new()),
        max_payload: Known(256),
    }
}

fn at(bus: u8, device: u8, function: u8) -> PciAddress {
    PciAddress::new(0, bus, device, function).unwrap()
}

fn bridge(
    address: PciAddress,
    kind: PortType,
    above: &[PciAddress],
    root: u8,
    acs: u16,
) -> PciDevice {
    let mut port = function(address, 0x06_0400, above, root);
    port.driver = Known("pcieport".to_owned());
    let mut facts = config(kind);
    facts.acs = if kind == PortType::Upstream {
        Absent
    } else {
        Known(Acs { capability: 0x5f, control: acs })
    };
    port.config = Known(facts);
    port
}

fn bar(index: u8, start: u64, size: u64) -> Bar {
    Bar {
        index,
        start: BusAddress(start),
        size,
        memory: true,
        prefetchable: index > 0,
        width: if index > 0 { 64 } else { 32 },
        assigned: true,
    }
}

fn gpu(index: u8, slot: &Slot, address: PciAddress, above: &[PciAddress], root: u8) -> PciDevice {
    let mut gpu = function(address, 0x03_0200, above, root);
    gpu.ids = Known(VendorDevice { vendor: 0x10de, device: slot.board });
    gpu.driver = driver(slot.driver);
    let blackwell = slot.board >= 0x2b00;
    gpu.dma_mask_bits =
        Known(if slot.driver == "nvidia" { if blackwell { 52 } else { 47 } } else { 32 });
    gpu.bars = Known(vec![
        bar(0, 0xe000_0000 + (u64::from(index) << 26), 64 << 20),
        bar(1, (0x20 + u64::from(index)) << 36, 32 << 30),
    ]);
    if slot.external {
        gpu.removable = Known("removable".to_owned());
    }
    gpu
}

fn driver(name: &str) -> Observed<String> {
    if name.is_empty() { Absent } else { Known(name.to_owned()) }
}

/// Ports and GPUs of all slots, with the group of each GPU.
fn devices(recipe: &Recipe) -> (Vec<PciDevice>, Vec<Group>) {
    let acs = if recipe.redirect { 0x1d } else { 0x01 };
    let mut devices = Vec::new();
    let mut groups: Vec<Group> = Vec::new();
    let mut group = |address: PciAddress, domain: &str, shares: bool, port: bool| -> u32 {
        let id = u32::try_from(groups.len()).unwrap();
        match groups.last_mut() {
            Some(last) if shares && !port => {
                last.devices.push(address);
                last.id
            }
            _ => {
                groups.push(Group {
                    id,
                    domain: Known(DomainType::from_word(domain)),
                    devices: vec![address],
                    reserved: Known(Vec::new()),
                });
                id
            }
        }
    };
    for root in 0..2_u8 {
        let base = root * 0x40;
        if recipe.slots.iter().any(|slot| slot.root == root && slot.below_switch) {
            let above = at(base, 1, 0);
            let up = at(base + 1, 0, 0);
            devices.push(bridge(above, PortType::RootPort, &[], base, 0x1d));
            devices.push(bridge(up, PortType::Upstream, &[above], base, 0));
        }
    }
    for (index, slot) in recipe.slots.iter().enumerate() {
        let index = u8::try_from(index).unwrap();
        let base = slot.root * 0x40;
        let bus = base + 8 + index;
        let above = if slot.below_switch {
            let port = at(base + 2, index, 0);
            let above = [at(base, 1, 0), at(base + 1, 0, 0)];
            devices.push(bridge(port, PortType::Downstream, &above, base, acs));
            vec![above[0], above[1], port]
        } else {
            let port = at(base, 8 + index, 0);
            devices.push(bridge(port, PortType::RootPort, &[], base, 0x1d));
            vec![port]
        };
        let address = at(bus, 0, 0);
        let mut one = gpu(index, slot, address, &above, base);
        let id = group(address, slot.domain, slot.shares_group, false);
        one.group = Known(id);
        devices.push(one);
        if let Some(name) = slot.audio {
            let mut audio = function(at(bus, 0, 1), 0x04_0300, &above, base);
            audio.driver = driver(name);
            audio.group = Known(group(audio.address, slot.domain, true, false));
            devices.push(audio);
        }
    }
    devices.sort_by_key(|device| device.address);
    for group in &mut groups {
        group.devices.sort();
    }
    (devices, groups)
}

fn tenants(recipe: &Recipe, devices: &[PciDevice]) -> (Vec<Tenant>, Vec<Claim>, Vec<Holder>) {
    let gpus: Vec<&PciDevice> = devices.iter().filter(|device| device.is_gpu()).collect();
    let by_bus = |index: usize, slot: &Slot| {
        let bus = slot.root * 0x40 + 8 + u8::try_from(index).unwrap();
        gpus.iter().find(|gpu| gpu.address.bus() == bus).unwrap().address
    };
    let mut claims = Vec::new();
    let mut holders: Vec<Holder> = Vec::new();
    for (index, slot) in recipe.slots.iter().enumerate() {
        let device = by_bus(index, slot);
        for owner in [Some(slot.owner), slot.second_claim].into_iter().flatten() {
            if owner != "host" {
                claims.push(Claim {
                    device,
                    tenant: TenantId(owner.to_owned()),
                    source: format!("/etc/pve/{owner}.conf"),
                    active: Tristate::Unknown,
                });
            }
        }
        let holder = |owner: &str, pid: u32| Holder {
            pid,
            command: "worker".to_owned(),
            start: 1,
            uid: 0,
            tenant: TenantId(owner.to_owned()),
            nodes: vec![format!("/dev/nvidia{index}")],
            devices: vec![device],
            untold: Vec::new(),
            switches: vec![("NCCL_P2P_DISABLE".to_owned(), "1".to_owned())],
        };
        if recipe.held && slot.driver == "nvidia" {
            holders.push(holder(slot.owner, 100 + u32::try_from(index).unwrap()));
        }
        if recipe.stranger && index == 0 {
            holders.push(holder("lxc:2", 99));
        }
    }
    holders.sort_by_key(|holder| holder.pid);
    for holder in &holders {
        claims.push(Claim {
            device: holder.devices[0],
            tenant: holder.tenant.clone(),
            source: format!("process {}", holder.pid),
            active: Tristate::Yes,
        });
    }
    claims.sort();
    let kind = |id: &str| match id.split(':').next().unwrap() {
        "lxc" => TenantKind::Lxc,
        "vm" => TenantKind::Vm,
        "container" => TenantKind::Container,
        _ => TenantKind::Host,
    };
    let tenants = OWNERS.map(|id| Tenant {
        id: TenantId(id.to_owned()),
        kind: kind(id),
        name: Absent,
        confidential: if id == "vm:3" && recipe.snp { Tristate::Yes } else { Tristate::No },
        running: if recipe.running || id == "host" { Tristate::Yes } else { Tristate::No },
    });
    (tenants.into(), claims, holders)
}

fn nvidia(recipe: &Recipe, devices: &[PciDevice]) -> NvidiaDriver {
    let gpus = devices.iter().filter(|device| device.driver_name() == Some("nvidia"));
    let gpus = gpus.enumerate().map(|(index, device)| GpuInformation {
        address: device.address,
        model: Absent,
        uuid: Absent,
        minor: Known(u32::try_from(index).unwrap()),
        excluded: Known(false),
    });
    let params = [("DmaRemapPeerMmio", "1"), ("RegistryDwords", recipe.dwords)];
    NvidiaDriver {
        version: Known(DriverVersion {
            version: recipe.driver.to_owned(),
            flavour: DriverFlavour::Open,
            line: format!("Open Kernel Module {}", recipe.driver),
        }),
        params: Known(params.map(|(key, value)| (key.to_owned(), value.to_owned())).into()),
        modules: Known(Vec::new()),
        gpus: Known(gpus.collect()),
    }
}

/// The host of a recipe.
pub(crate) fn build(recipe: &Recipe) -> Snapshot {
    let (devices, groups) = devices(recipe);
    let (tenants, claims, holders) = tenants(recipe, &devices);
    let state = |on: bool| Established {
        state: if on { Tristate::Yes } else { Tristate::No },
        evidence: vec![("test".to_owned(), on.to_string())],
    };
    let version = peerway_core::snapshot::kernel::KernelVersion::from_release(recipe.kernel);
    let old = version.is_some_and(|version| !version.at_least(6, 12));
    Snapshot {
        schema: SNAPSHOT_SCHEMA,
        peer_map: Absent,
        measured: Absent,
        origin: Origin { privileged: true, ..Origin::default() },
        kernel: Kernel {
            release: Known(recipe.kernel.to_owned()),
            command_line: Known(if recipe.override_acs {
                "quiet pcie_acs_override=downstream".to_owned()
            } else {
                "quiet".to_owned()
            }),
            iommu_dma_ops: Known(old),
            lockdown: Known(recipe.lockdown.to_owned()),
            log_facts: Known(Vec::new()),
        },
        cpu: Cpu {
            vendor: Known(if recipe.amd { "AuthenticAMD" } else { "GenuineIntel" }.to_owned()),
            family: Known(if recipe.amd { 25 } else { 6 }),
            flags: Known(Vec::new()),
            ..Cpu::default()
        },
        memory_encryption: MemoryEncryption { sme: state(recipe.sme), snp: state(recipe.snp) },
        iommu: Iommu {
            units: Known(vec![IommuUnit {
                name: "unit0".to_owned(),
                vendor: if recipe.amd { IommuVendor::Amd } else { IommuVendor::Intel },
                amd_efr: Known(u64::from(recipe.snp) << 63),
                amd_efr2: Known(0),
                // 57 bits of address, pass-through.
                intel_cap: Known(56 << 16),
                intel_ecap: Known(1 << 6),
            }]),
        },
        nvidia: nvidia(recipe, &devices),
        devices,
        groups,
        nvlinks: Unreadable("not visible".to_owned()),
        tenants,
        claims,
        holders: Known(holders),
        gaps: recipe
            .gap
            .map(|source| Gap { source: source.to_owned(), why: "refused".to_owned() })
            .into_iter()
            .collect(),
        ..Snapshot::default()
    }
}
