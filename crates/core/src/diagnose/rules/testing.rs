//! Small hosts for the tests of rules.

mod expect;

use std::collections::BTreeMap;

use crate::address::{BusAddress, PciAddress, VendorDevice};
use crate::diagnose::pairs::PairScope;
use crate::observed::Observed::{self, Absent, Known};
use crate::snapshot::Snapshot;
use crate::snapshot::driver::{DriverFlavour, DriverVersion};
use crate::snapshot::iommu::{DomainType, Group, IommuUnit, IommuVendor};
use crate::snapshot::kernel::Tristate;
use crate::snapshot::pci::{
    Acs, Bar, ConfigFacts, LinkState, PciDevice, PortType, Power, ResizableBar, RootBus,
};
use crate::snapshot::tenant::{Claim, Holder, Tenant, TenantId, TenantKind};

pub(super) use expect::{all, fires, folklore, silent, value, well_formed};

/// GPUs of the hosts without a switch.
pub(super) const A: &str = "0000:01:00.0";
/// The other one, below another host bridge.
pub(super) const B: &str = "0000:41:00.0";
/// Root port above the first GPU.
pub(super) const PORT: &str = "0000:00:01.1";
/// GPUs of the host with a switch.
pub(super) const BELOW_SWITCH: [&str; 2] = ["0000:03:00.0", "0000:04:00.0"];

const GIB: u64 = 1 << 30;
/// RTX PRO 6000 Blackwell Server Edition.
pub(super) const PRO_6000: u16 = 0x2bb5;

/// A host under construction.
#[derive(Clone, Debug)]
pub(super) struct Host {
    pub(super) snapshot: Snapshot,
    pub(super) scope: PairScope,
}

/// An address from its text.
pub(super) fn at(text: &str) -> PciAddress {
    text.parse().unwrap()
}

/// An owned text that was read.
pub(super) fn known(text: &str) -> Observed<String> {
    Known(text.to_owned())
}

impl Host {
    /// Two GPUs on two host bridges of an AMD host: kernel 6.14, NVIDIA's open driver, translating
    /// groups, everything readable, neither SNP nor SME.
    pub(super) fn amd() -> Self {
        let mut host = Self::bare();
        host.snapshot.devices = vec![
            bridge(PORT, PortType::RootPort, &[], 0),
            gpu(A, &[PORT], 0, 0x200_0000_0000, 11),
            bridge("0000:40:01.1", PortType::RootPort, &[], 0x40),
            gpu(B, &["0000:40:01.1"], 0x40, 0x240_0000_0000, 12),
        ];
        host.snapshot.groups = vec![group(11, A), group(12, B)];
        host
    }

    /// The same host with an Intel processor and VT-d.
    pub(super) fn intel() -> Self {
        Self::amd().edit(|snapshot| {
            snapshot.cpu.vendor = known("GenuineIntel");
            snapshot.cpu.family = Known(6);
            snapshot.iommu.units = Known(vec![IommuUnit {
                name: "dmar0".to_owned(),
                vendor: IommuVendor::Intel,
                amd_efr: Absent,
                amd_efr2: Absent,
                intel_cap: Known(0),
                intel_ecap: Known(1 << 6),
            }]);
            for device in &mut snapshot.devices {
                device.iommu_unit = known("dmar0");
            }
        })
    }

    /// Both GPUs below one switch whose ports redirect nothing.
    pub(super) fn switch() -> Self {
        let up = "0000:01:00.0";
        let [down_a, down_b] = ["0000:02:00.0", "0000:02:01.0"];
        let [a, b] = BELOW_SWITCH;
        let mut host = Self::bare();
        host.snapshot.devices = vec![
            bridge(PORT, PortType::RootPort, &[], 0),
            bridge(up, PortType::Upstream, &[PORT], 0),
            bridge(down_a, PortType::Downstream, &[PORT, up], 0),
            bridge(down_b, PortType::Downstream, &[PORT, up], 0),
            gpu(a, &[PORT, up, down_a], 0, 0x200_0000_0000, 11),
            gpu(b, &[PORT, up, down_b], 0, 0x240_0000_0000, 12),
        ];
        host.snapshot.groups = vec![group(11, a), group(12, b)];
        host
    }

    fn bare() -> Self {
        let mut snapshot = Snapshot { peer_map: Absent, ..Snapshot::default() };
        snapshot.kernel.release = known("6.14.8-test");
        snapshot.kernel.command_line = known("BOOT_IMAGE=/vmlinuz quiet");
        snapshot.kernel.iommu_dma_ops = Known(false);
        snapshot.kernel.log_facts = Known(vec!["Linux version 6.14.8-test".to_owned()]);
        snapshot.cpu.vendor = known("AuthenticAMD");
        snapshot.cpu.family = Known(25);
        snapshot.cpu.model = Known(17);
        snapshot.cpu.flags = Known(vec!["sme".to_owned()]);
        snapshot.cpu.physical_bits = Known(52);
        snapshot.memory_encryption.snp.state = Tristate::No;
        snapshot.memory_encryption.sme.state = Tristate::No;
        snapshot.iommu.units = Known(vec![amd_unit()]);
        snapshot.nvidia.version = Known(DriverVersion {
            version: "580.95.05".to_owned(),
            flavour: DriverFlavour::Open,
            line: "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05".to_owned(),
        });
        snapshot.nvidia.params = Known(BTreeMap::from([
            ("DmaRemapPeerMmio".to_owned(), "1".to_owned()),
            ("RegistryDwords".to_owned(), String::new()),
            ("RegistryDwordsPerDevice".to_owned(), String::new()),
        ]));
        snapshot.nvlinks = Known(Vec::new());
        snapshot.firmware.ivrs = Absent;
        snapshot.firmware.dmar = Absent;
        snapshot.holders = Known(Vec::new());
        snapshot.origin.privileged = true;
        Self { snapshot, scope: PairScope::default() }
    }

    /// Changes anything.
    pub(super) fn edit(mut self, change: impl FnOnce(&mut Snapshot)) -> Self {
        change(&mut self.snapshot);
        self
    }

    /// Changes one device.
    #[track_caller]
    pub(super) fn device(mut self, address: &str, change: impl FnOnce(&mut PciDevice)) -> Self {
        let address = at(address);
        let found = self.snapshot.devices.iter_mut().find(|device| device.address == address);
        change(found.expect("the host has no such device"));
        self
    }

    /// Changes every GPU.
    pub(super) fn gpus(mut self, change: impl Fn(&mut PciDevice)) -> Self {
        self.snapshot.devices.iter_mut().filter(|device| device.is_gpu()).for_each(change);
        self
    }

    /// Changes the configuration facts of one device.
    #[track_caller]
    pub(super) fn config(self, address: &str, change: impl FnOnce(&mut ConfigFacts)) -> Self {
        self.device(address, |device| match &mut device.config {
            Known(config) => change(config),
            other => panic!("no configuration facts: {other:?}"),
        })
    }

    /// Another kernel.
    pub(super) fn kernel(self, release: &str) -> Self {
        self.edit(|snapshot| snapshot.kernel.release = known(release))
    }

    /// Another command line.
    pub(super) fn boot(self, command_line: &str) -> Self {
        self.edit(|snapshot| snapshot.kernel.command_line = known(command_line))
    }

    /// Another line of the boot log.
    pub(super) fn logged(self, line: &str) -> Self {
        self.edit(|snapshot| match &mut snapshot.kernel.log_facts {
            Known(lines) => lines.push(line.to_owned()),
            other => *other = Known(vec![line.to_owned()]),
        })
    }

    /// Another type of all groups.
    pub(super) fn domains(mut self, domain: &DomainType) -> Self {
        for group in &mut self.snapshot.groups {
            group.domain = Known(domain.clone());
        }
        self
    }

    /// All groups pass addresses through.
    pub(super) fn identity(self) -> Self {
        self.domains(&DomainType::Identity)
    }

    /// SNP's state, with a line of evidence.
    pub(super) fn snp(self, state: Tristate) -> Self {
        self.edit(|snapshot| {
            snapshot.memory_encryption.snp.state = state;
            snapshot.memory_encryption.snp.evidence =
                vec![("/sys/module/kvm_amd/parameters/sev_snp".to_owned(), state.to_string())];
        })
    }

    /// SME's state, with a line of evidence.
    pub(super) fn sme(self, state: Tristate) -> Self {
        self.edit(|snapshot| {
            snapshot.memory_encryption.sme.state = state;
            snapshot.memory_encryption.sme.evidence =
                vec![("/proc/cmdline".to_owned(), "mem_encrypt=on".to_owned())];
        })
    }

    /// One of the driver's effective parameters.
    pub(super) fn parameter(self, name: &str, value: &str) -> Self {
        self.edit(|snapshot| match &mut snapshot.nvidia.params {
            Known(params) => drop(params.insert(name.to_owned(), value.to_owned())),
            other => panic!("no parameters: {other:?}"),
        })
    }

    /// Another driver.
    pub(super) fn driver(self, version: &str, flavour: DriverFlavour) -> Self {
        self.edit(|snapshot| {
            snapshot.nvidia.version = Known(DriverVersion {
                version: version.to_owned(),
                flavour,
                line: format!("NVRM version: NVIDIA UNIX Kernel Module  {version}"),
            });
        })
    }

    /// All GPUs are this board.
    pub(super) fn board(self, device: u16) -> Self {
        self.gpus(|gpu| gpu.ids = Known(VendorDevice { vendor: 0x10de, device }))
    }

    /// A running confidential virtual machine that holds these devices by VFIO.
    pub(super) fn guest(self, devices: &[&str]) -> Self {
        let id = TenantId("vm:132".to_owned());
        let mut host = self.edit(|snapshot| {
            snapshot.tenants.push(Tenant {
                id: id.clone(),
                kind: TenantKind::Vm,
                name: known("sandbox"),
                confidential: Tristate::Yes,
                running: Tristate::Yes,
            });
        });
        for device in devices {
            host = host.claimed(device, "vm:132", Tristate::Yes).device(device, |device| {
                device.driver = known("vfio-pci");
            });
        }
        host
    }

    /// A container that holds these devices.
    pub(super) fn container(self, devices: &[&str]) -> Self {
        let mut host = self.edit(|snapshot| {
            snapshot.tenants.push(Tenant {
                id: TenantId("lxc:129".to_owned()),
                kind: TenantKind::Lxc,
                name: known("inference"),
                confidential: Tristate::No,
                running: Tristate::Yes,
            });
        });
        for device in devices {
            host = host.claimed(device, "lxc:129", Tristate::Yes);
        }
        host
    }

    /// A claim on a device.
    pub(super) fn claimed(self, device: &str, tenant: &str, active: Tristate) -> Self {
        self.edit(|snapshot| {
            snapshot.claims.push(Claim {
                device: at(device),
                tenant: TenantId(tenant.to_owned()),
                source: format!("configuration of {tenant}"),
                active,
            });
        })
    }

    /// A process that holds all GPUs of NVIDIA's driver, with switches of its environment.
    pub(super) fn process(self, command: &str, switches: &[(&str, &str)]) -> Self {
        self.edit(|snapshot| {
            let devices: Vec<PciAddress> = snapshot
                .devices
                .iter()
                .filter(|device| device.driver_name() == Some("nvidia"))
                .map(|device| device.address)
                .collect();
            let tenant = devices
                .first()
                .and_then(|first| snapshot.tenant_of(snapshot.device(*first)?))
                .unwrap_or_else(TenantId::host);
            let holder = Holder {
                pid: 4711,
                command: command.to_owned(),
                start: 100,
                uid: 0,
                tenant,
                nodes: vec!["/dev/nvidia0".to_owned(), "/dev/nvidia1".to_owned()],
                devices,
                untold: Vec::new(),
                switches: switches
                    .iter()
                    .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                    .collect(),
            };
            match &mut snapshot.holders {
                Known(holders) => holders.push(holder),
                other => *other = Known(vec![holder]),
            }
        })
    }

    /// Pairs across tenants too.
    pub(super) fn across(mut self) -> Self {
        self.scope.across_tenants = true;
        self
    }
}

/// An AMD unit with the SNP feature switched off.
pub(super) fn amd_unit() -> IommuUnit {
    IommuUnit {
        name: "ivhd0".to_owned(),
        vendor: IommuVendor::Amd,
        amd_efr: Known(0x2294),
        amd_efr2: Known(0),
        intel_cap: Absent,
        intel_ecap: Absent,
    }
}

fn function(address: &str, class: u32, ancestors: &[&str], bus: u8) -> PciDevice {
    PciDevice {
        address: at(address),
        ids: Known(VendorDevice { vendor: 0x1022, device: 0x14ab }),
        subsystem: Absent,
        class: Known(class),
        ancestors: ancestors.iter().map(|text| at(text)).collect(),
        root: RootBus { domain: 0, bus },
        driver: Absent,
        driver_override: Absent,
        group: Absent,
        iommu_unit: known("ivhd0"),
        numa_node: Known(0),
        bars: Known(Vec::new()),
        power: Known(Power::Active),
        config: Absent,
        link: Known(LinkState { speed: 320, width: 16, max_speed: 320, max_width: 16 }),
        dma_mask_bits: Known(32),
        removable: Absent,
        reset_methods: Known(Vec::new()),
        vfio_device: Absent,
    }
}

fn facts(port_type: PortType) -> ConfigFacts {
    ConfigFacts {
        dead: false,
        memory_enabled: true,
        bus_master: true,
        port_type: Known(port_type),
        acs: Absent,
        ats: Absent,
        pasid: Absent,
        resizable: Absent,
        max_payload: Known(256),
    }
}

/// A port; root ports carry the bits that the kernel sets, switch ports none.
pub(super) fn bridge(address: &str, port_type: PortType, above: &[&str], bus: u8) -> PciDevice {
    let mut port = function(address, 0x06_0400, above, bus);
    let control = if port_type == PortType::RootPort { 0x1d } else { 0 };
    let mut config = facts(port_type);
    if port_type != PortType::Upstream {
        config.acs = Known(Acs { capability: 0x5f, control });
    }
    port.driver = known("pcieport");
    port.config = Known(config);
    port
}

/// A GPU with a 128 GiB aperture at resource index 2.
pub(super) fn gpu(address: &str, above: &[&str], bus: u8, start: u64, group: u32) -> PciDevice {
    let mut gpu = function(address, 0x03_0200, above, bus);
    gpu.ids = Known(VendorDevice { vendor: 0x10de, device: PRO_6000 });
    gpu.driver = known("nvidia");
    gpu.group = Known(group);
    gpu.dma_mask_bits = Known(52);
    gpu.bars = Known(vec![
        Bar {
            index: 0,
            start: BusAddress(0xe000_0000),
            size: 64 << 20,
            memory: true,
            prefetchable: false,
            width: 32,
            assigned: true,
        },
        Bar {
            index: 2,
            start: BusAddress(start),
            size: 128 * GIB,
            memory: true,
            prefetchable: true,
            width: 64,
            assigned: true,
        },
    ]);
    let mut config = facts(PortType::Endpoint);
    config.resizable =
        Known(vec![ResizableBar { index: 2, current: 128 * GIB, largest: 128 * GIB }]);
    gpu.config = Known(config);
    gpu
}

fn group(id: u32, member: &str) -> Group {
    Group {
        id,
        domain: Known(DomainType::DmaFq),
        devices: vec![at(member)],
        reserved: Known(Vec::new()),
    }
}
