//! Small hosts for the tests of holders and tenants.

use std::sync::Arc;

use peerway_core::address::{PciAddress, VendorDevice};
use peerway_core::observed::Observed;
use peerway_core::snapshot::driver::{GpuInformation, NvidiaDriver};
use peerway_core::snapshot::iommu::{DomainType, Group};
use peerway_core::snapshot::pci::{PciDevice, RootBus};

use crate::host_file;
use crate::root::Root;

/// A recorded host of these entries.
pub(crate) fn root(entries: &str) -> Root {
    let count = entries.lines().filter(|line| line.starts_with("//- ")).count();
    let text = format!("peerway-host 1\n{entries}//- end {count}\n");
    Root::recorded(Arc::new(host_file::parse(&text).unwrap()))
}

pub(crate) fn address(text: &str) -> PciAddress {
    text.parse().unwrap()
}

/// One function: `driver` empty for none.
pub(crate) fn device(at: &str, vendor: u16, class: u32, group: u32, driver: &str) -> PciDevice {
    let driver = match driver {
        "" => Observed::Absent,
        name => Observed::Known(name.to_owned()),
    };
    PciDevice {
        address: address(at),
        ids: Observed::Known(VendorDevice { vendor, device: 1 }),
        subsystem: Observed::Absent,
        class: Observed::Known(class),
        ancestors: Vec::new(),
        root: RootBus::default(),
        driver,
        driver_override: Observed::Absent,
        group: Observed::Known(group),
        iommu_unit: Observed::Absent,
        numa_node: Observed::Absent,
        bars: Observed::Absent,
        power: Observed::Absent,
        config: Observed::Absent,
        link: Observed::Absent,
        dma_mask_bits: Observed::Absent,
        removable: Observed::Absent,
        reset_methods: Observed::Absent,
        vfio_device: Observed::Absent,
    }
}

/// Two GPUs on `nvidia`, two on `vfio-pci`; the last shares its group with a port and an audio
/// function.
pub(crate) fn devices() -> Vec<PciDevice> {
    let mut devices = vec![
        device("0000:41:00.0", 0x10de, 0x03_0200, 11, "nvidia"),
        device("0000:42:00.0", 0x10de, 0x03_0200, 12, "nvidia"),
        device("0000:c0:01.0", 0x1022, 0x06_0400, 14, "pcieport"),
        device("0000:c1:00.0", 0x10de, 0x03_0200, 13, "vfio-pci"),
        device("0000:c2:00.0", 0x10de, 0x03_0000, 14, "vfio-pci"),
        device("0000:c2:00.1", 0x10de, 0x04_0300, 14, "vfio-pci"),
    ];
    for device in &mut devices {
        if device.address == address("0000:c1:00.0") {
            device.vfio_device = Observed::Known("vfio0".to_owned());
        }
    }
    devices
}

/// Their groups.
pub(crate) fn groups() -> Vec<Group> {
    let group = |id: u32, devices: &[&str]| Group {
        id,
        domain: Observed::Known(DomainType::DmaFq),
        devices: devices.iter().map(|text| address(text)).collect(),
        reserved: Observed::Absent,
    };
    vec![
        group(11, &["0000:41:00.0"]),
        group(12, &["0000:42:00.0"]),
        group(13, &["0000:c1:00.0"]),
        group(14, &["0000:c0:01.0", "0000:c2:00.0", "0000:c2:00.1"]),
    ]
}

/// The driver of the first two.
pub(crate) fn nvidia() -> NvidiaDriver {
    let gpu = |at: &str, minor: u32, uuid: &str| GpuInformation {
        address: address(at),
        model: Observed::Absent,
        uuid: Observed::Known(uuid.to_owned()),
        minor: Observed::Known(minor),
        excluded: Observed::Known(false),
    };
    NvidiaDriver {
        gpus: Observed::Known(vec![
            gpu("0000:41:00.0", 1, "GPU-aa"),
            gpu("0000:42:00.0", 0, "GPU-bb"),
        ]),
        ..NvidiaDriver::default()
    }
}
