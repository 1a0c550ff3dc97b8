//! What kind of device a requester is, and what that rests on.

use peerway_core::address::{BusAddress, PciAddress, VendorDevice};
use peerway_core::snapshot::Snapshot;
use peerway_core::snapshot::query::vendor;
use peerway_klog::{DeviceFacts, Iommu, Report};

use crate::pattern;

/// Kind of a device, as coarse as the conclusions are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DeviceKind {
    /// A GPU.
    Gpu,
    /// Another kind, in a word.
    Other(&'static str),
    /// Not known.
    Unknown,
}

/// What a kind rests on, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Basis {
    /// The class code.
    Class,
    /// The driver.
    Driver,
    /// Another device that behaves the same.
    Twin,
    /// The place in the tree.
    Place,
    /// The pattern of addresses.
    Pattern,
    /// Nothing.
    Nothing,
}

/// What is known about a requester.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceClass {
    /// Its kind.
    pub kind: DeviceKind,
    /// What that rests on.
    pub basis: Basis,
    /// In words: `GPU (driver nvidia)`.
    pub words: String,
}

impl DeviceClass {
    /// Nothing known.
    pub fn unknown(why: &str) -> Self {
        Self { kind: DeviceKind::Unknown, basis: Basis::Nothing, words: why.to_owned() }
    }

    fn new(kind: DeviceKind, basis: Basis, how: &str) -> Self {
        let name = match kind {
            DeviceKind::Gpu => "GPU",
            DeviceKind::Other(name) => name,
            DeviceKind::Unknown => "unknown device",
        };
        Self { kind, basis, words: format!("{name} ({how})") }
    }
}

/// Kind by class code (PCI Code and ID Assignment Specification).
pub fn by_class(class: u32, id: Option<VendorDevice>) -> DeviceKind {
    let gpu_maker = id.is_none_or(|id| {
        matches!(id.vendor, vendor::NVIDIA | vendor::AMD_GRAPHICS | vendor::INTEL)
    });
    match class >> 8 {
        0x0300 | 0x0302 | 0x0380 if gpu_maker => DeviceKind::Gpu,
        0x1200 if id.is_some_and(|id| id.vendor != vendor::NVIDIA) && gpu_maker => DeviceKind::Gpu,
        0x0c03 => DeviceKind::Other("USB controller"),
        0x0403 | 0x0401 => DeviceKind::Other("audio"),
        0x0c05 => DeviceKind::Other("SMBus"),
        _ => match class >> 16 {
            0x01 => DeviceKind::Other("storage"),
            0x02 => DeviceKind::Other("network"),
            0x03 => DeviceKind::Other("display adapter"),
            0x04 => DeviceKind::Other("multimedia"),
            0x05 => DeviceKind::Other("memory"),
            0x06 => DeviceKind::Other("bridge"),
            0x07 => DeviceKind::Other("communication"),
            0x08 => DeviceKind::Other("platform device"),
            0x0c => DeviceKind::Other("serial bus"),
            0x0d => DeviceKind::Other("wireless"),
            0x10 => DeviceKind::Other("security processor"),
            0x11 => DeviceKind::Other("signal processor"),
            0x12 => DeviceKind::Other("accelerator"),
            _ => DeviceKind::Other("other device"),
        },
    }
}

/// Drivers by the kind of what they drive. Drivers of anything (VFIO, Xen's back end, the bus
/// itself) are not here on purpose.
const DRIVERS: [(&str, &[&str]); 9] = [
    (
        "network",
        &[
            "mlx4_core",
            "mlx5_core",
            "ice",
            "i40e",
            "ixgbe",
            "ixgbevf",
            "igb",
            "igc",
            "e1000e",
            "e1000",
            "iavf",
            "bnxt_en",
            "bnx2x",
            "tg3",
            "be2net",
            "cxgb4",
            "qede",
            "r8169",
            "r8125",
            "r8168",
            "atlantic",
            "alx",
            "sky2",
            "ena",
            "gve",
            "enic",
            "irdma",
            "hns3",
            "sfc",
            "virtio_net",
            "vmxnet3",
            "ath9k",
            "ath10k_pci",
            "ath11k_pci",
            "ath12k_pci",
            "iwlwifi",
            "mt7921e",
            "mt76x2e",
            "mt7915e",
            "rtw88_8822ce",
            "rtw89_8852ae",
            "brcmfmac",
            "stmmac",
            "dwmac-intel",
            "ionic",
            "fm10k",
            "nfp",
            "liquidio",
            "thunderx",
            "efa",
            "jme",
            "forcedeth",
            "via-rhine",
            "mana",
        ],
    ),
    (
        "storage",
        &[
            "nvme",
            "ahci",
            "megaraid_sas",
            "mpt3sas",
            "mpt2sas",
            "aacraid",
            "hpsa",
            "smartpqi",
            "sata_sil24",
            "sata_mv",
            "mvsas",
            "isci",
            "pvscsi",
            "virtio-pci",
            "lpfc",
            "qla2xxx",
            "arcmsr",
            "3w-sas",
            "sata_nv",
            "pata_jmicron",
            "sdhci-pci",
            "rtsx_pci",
            "ufshcd",
        ],
    ),
    ("USB controller", &["xhci_hcd", "xhci-pci-renesas", "ehci-pci", "ohci-pci", "uhci_hcd"]),
    ("Thunderbolt controller", &["thunderbolt"]),
    ("audio", &["snd_hda_intel", "snd_hda_codec", "snd_virtuoso", "snd_oxygen", "snd_sof_pci"]),
    ("security processor", &["ccp", "psp"]),
    ("bridge", &["pcieport", "shpchp", "pci_bridge"]),
    (
        "accelerator",
        &["idxd", "ioatdma", "qat_4xxx", "qat_c62x", "xdma", "qdma", "habanalabs", "hl", "apex"],
    ),
    (
        "other device",
        &[
            "lpc_ich",
            "i801_smbus",
            "piix4_smbus",
            "mei_me",
            "intel_ish_ipc",
            "cx23885",
            "saa7134",
            "ivtv",
            "firewire_ohci",
            "serial",
            "ivshmem",
            "nvidia-nvswitch",
        ],
    ),
];

/// Drivers of GPUs.
const GPU_DRIVERS: [&str; 8] =
    ["nvidia", "nouveau", "nova_core", "amdgpu", "radeon", "i915", "xe", "NVRM"];

/// Kind by driver; `None` for drivers of anything.
pub fn by_driver(driver: &str) -> Option<DeviceKind> {
    if GPU_DRIVERS.contains(&driver) {
        return Some(DeviceKind::Gpu);
    }
    DRIVERS
        .iter()
        .find(|(_, names)| names.contains(&driver))
        .map(|(kind, _)| DeviceKind::Other(kind))
        .or_else(|| (driver.starts_with("snd_")).then_some(DeviceKind::Other("audio")))
        .or_else(|| {
            let wireless = ["ath", "rtw", "mt7", "iwl", "brcm"];
            let is = wireless.iter().any(|front| driver.starts_with(front));
            is.then_some(DeviceKind::Other("network"))
        })
}

/// What is known of a device from the host, from the log's enumeration, and from drivers' names.
pub fn known(
    snapshot: &Snapshot,
    report: &Report,
    drivers: &[String],
    device: PciAddress,
) -> Option<DeviceClass> {
    if let Some(found) = snapshot.device(device)
        && let Some(class) = found.class.known()
    {
        let driver = found.driver_name().unwrap_or("none");
        let kind = by_class(*class, found.ids.known().copied());
        return Some(DeviceClass::new(kind, Basis::Class, &format!("driver {driver}")));
    }
    let said = report.devices.get(&device);
    if let Some(DeviceFacts { class: Some(class), id, .. }) = said {
        let kind = by_class(*class, *id);
        return Some(DeviceClass::new(kind, Basis::Class, "by its class in the log"));
    }
    let said = said.map(|facts| facts.drivers.as_slice()).unwrap_or_default();
    drivers.iter().chain(said).find_map(|driver| {
        let kind = by_driver(driver)?;
        Some(DeviceClass::new(kind, Basis::Driver, &format!("driver {driver}")))
    })
}

/// A guess from where the device is, or from what it does.
pub fn guess(device: PciAddress, iommu: Iommu, addresses: &[BusAddress]) -> DeviceClass {
    let at = (device.bus(), device.device(), device.function());
    // Every Intel processor with graphics has them there.
    if iommu == Iommu::VtD && at == (0, 2, 0) {
        return DeviceClass::new(
            DeviceKind::Gpu,
            Basis::Place,
            "integrated graphics, by its place",
        );
    }
    // A GPU is function 0 of device 0 behind its port.
    if at.1 != 0 || at.2 != 0 {
        let kind = DeviceKind::Other("no full GPU");
        return DeviceClass::new(kind, Basis::Place, "by its place in the tree");
    }
    if pattern::is_ring(addresses) {
        let kind = DeviceKind::Other("network or storage");
        return DeviceClass::new(kind, Basis::Pattern, "writes descriptors one by one");
    }
    if pattern::is_low_page(addresses) {
        return DeviceClass::new(
            DeviceKind::Gpu,
            Basis::Pattern,
            "reads one low page, a known quirk",
        );
    }
    DeviceClass::unknown("unknown device (the log names no class and no driver of its own)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn class(code: u32, vendor: u16, expected: DeviceKind) {
        assert_eq!(by_class(code, Some(VendorDevice { vendor, device: 1 })), expected, "{code:#x}");
    }

    #[test]
    fn classes() {
        class(0x03_0200, 0x10de, DeviceKind::Gpu);
        class(0x03_0000, 0x1a03, DeviceKind::Other("display adapter"));
        class(0x12_0000, 0x1002, DeviceKind::Gpu);
        class(0x12_0000, 0x1e0f, DeviceKind::Other("accelerator"));
        class(0x02_0000, 0x8086, DeviceKind::Other("network"));
        class(0x01_0802, 0x144d, DeviceKind::Other("storage"));
        class(0x0c_0340, 0x8086, DeviceKind::Other("USB controller"));
        class(0x06_8000, 0x10de, DeviceKind::Other("bridge"));
    }

    #[test]
    fn drivers() {
        assert_eq!(by_driver("nvidia"), Some(DeviceKind::Gpu));
        assert_eq!(by_driver("ice"), Some(DeviceKind::Other("network")));
        assert_eq!(by_driver("ath12k_pci"), Some(DeviceKind::Other("network")));
        for of_anything in ["vfio-pci", "pciback", "pci", "pci-stub"] {
            assert_eq!(by_driver(of_anything), None, "{of_anything}");
        }
    }

    #[track_caller]
    fn place(address: &str, iommu: Iommu, expected: DeviceKind) {
        assert_eq!(guess(address.parse().unwrap(), iommu, &[]).kind, expected, "{address}");
    }

    #[test]
    fn places() {
        place("0000:00:02.0", Iommu::VtD, DeviceKind::Gpu);
        place("0000:00:02.0", Iommu::AmdVi, DeviceKind::Other("no full GPU"));
        place("0000:03:00.1", Iommu::VtD, DeviceKind::Other("no full GPU"));
        place("0000:04:10.0", Iommu::AmdVi, DeviceKind::Other("no full GPU"));
        place("0000:c5:00.0", Iommu::AmdVi, DeviceKind::Unknown);
    }
}
