//! What a device is, guessed from its class code, its identity, or the drivers that named it.

use std::collections::BTreeSet;

use peerway_core::address::PciAddress;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Confidence, DeviceHint};
use crate::report::DeviceFacts;

/// Coarse class of a device.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum DeviceClass {
    /// A GPU or another processing accelerator.
    Gpu,
    /// Sound, also that of a GPU's second function.
    Audio,
    /// A network adapter, wired or not.
    Nic,
    /// NVMe, SATA, SAS.
    Storage,
    /// USB or Thunderbolt.
    Usb,
    /// A bridge or port.
    Bridge,
    /// A switch of NVIDIA's links between GPUs.
    NvSwitch,
    /// A security processor.
    SecurityProcessor,
    /// A DMA or encryption engine.
    Engine,
    /// Not known.
    Unknown,
}

/// Drivers by class. A driver that is not here says nothing.
const DRIVERS: [(DeviceClass, &[&str]); 8] = [
    (
        DeviceClass::Gpu,
        &["nvidia", "nouveau", "nova_core", "amdgpu", "radeon", "xe", "i915", "ast", "habanalabs"],
    ),
    (DeviceClass::Audio, &["snd_hda_intel"]),
    (
        DeviceClass::Nic,
        &[
            "mlx4_core",
            "mlx5_core",
            "mlx5_vfio_pci",
            "ixgbe",
            "ixgbevf",
            "igb",
            "igbvf",
            "igc",
            "ice",
            "iavf",
            "i40e",
            "e1000",
            "e1000e",
            "bnxt_en",
            "bnx2",
            "bnx2x",
            "tg3",
            "r8169",
            "r8125",
            "r8168",
            "atlantic",
            "qede",
            "cxgb4",
            "ena",
            "efa",
            "ionic",
            "irdma",
            "hns3",
            "be2net",
            "enic",
            "sfc",
            "virtio_net",
            "ath9k",
            "ath10k_pci",
            "ath11k_pci",
            "ath12k_pci",
            "iwlwifi",
            "mt7921e",
            "mt76x2e",
            "rtw88_pci",
            "rtw89_pci",
            "brcmfmac",
            "alx",
            "sky2",
            "forcedeth",
            "jme",
            "mana",
            "gve",
            "nfp",
            "octeontx2",
            "fm10k",
            "hfi1",
        ],
    ),
    (
        DeviceClass::Storage,
        &[
            "nvme",
            "ahci",
            "megaraid_sas",
            "mpt3sas",
            "mpt2sas",
            "smartpqi",
            "hpsa",
            "aacraid",
            "qla2xxx",
            "lpfc",
            "pm80xx",
            "mvsas",
            "ata_piix",
            "virtio_blk",
            "xhci-mtk",
            "sdhci-pci",
        ],
    ),
    (
        DeviceClass::Usb,
        &["xhci_hcd", "xhci_pci", "ehci-pci", "ehci_hcd", "ohci_hcd", "thunderbolt"],
    ),
    (DeviceClass::Bridge, &["pcieport", "shpchp", "pci_bus"]),
    (DeviceClass::NvSwitch, &["nvidia-nvswitch"]),
    (DeviceClass::SecurityProcessor, &["ccp"]),
];

/// Drivers of DMA engines.
const ENGINES: [&str; 6] = ["ioatdma", "idxd", "ptdma", "qat_4xxx", "iaa_crypto", "ae4dma"];

/// Drivers that hold a device for somebody else.
const HOLDERS: [&str; 6] =
    ["vfio-pci", "pciback", "xen-pciback", "pci-stub", "nvgrace_gpu_vfio_pci", "vfio_pci"];

/// The class that a driver's name means.
pub(super) fn of_driver(name: &str) -> DeviceClass {
    if ENGINES.contains(&name) {
        return DeviceClass::Engine;
    }
    DRIVERS
        .iter()
        .find(|(_, names)| names.contains(&name))
        .map_or(DeviceClass::Unknown, |(class, _)| *class)
}

/// The class that a class code means.
fn of_code(code: u32, vendor: u16) -> DeviceClass {
    const NVIDIA: u16 = 0x10de;
    match (code >> 16, code >> 8 & 0xff) {
        (0x01, _) => DeviceClass::Storage,
        (0x02 | 0x0d, _) => DeviceClass::Nic,
        (0x03 | 0x12, _) => DeviceClass::Gpu,
        (0x04, _) => DeviceClass::Audio,
        (0x06, 0x80) if vendor == NVIDIA => DeviceClass::NvSwitch,
        (0x06, _) => DeviceClass::Bridge,
        (0x08, _) => DeviceClass::Engine,
        (0x0c, 0x03) => DeviceClass::Usb,
        (0x10, _) => DeviceClass::SecurityProcessor,
        _ => DeviceClass::Unknown,
    }
}

/// The best guess.
pub(super) fn guess(
    device: PciAddress,
    facts: Option<&DeviceFacts>,
    drivers: &BTreeSet<&str>,
    has_nic: bool,
) -> DeviceHint {
    let given_away = drivers.iter().any(|name| HOLDERS.contains(name));
    let hint = |class, confidence, why: String| DeviceHint { class, confidence, why, given_away };
    if let Some(facts) = facts
        && let (Some(code), Some(id)) = (facts.class, facts.id)
    {
        let class = of_code(code, id.vendor);
        if class != DeviceClass::Unknown {
            let why = format!("class {code:#08x} of {id}");
            return hint(class, Confidence::Certain, why);
        }
    }
    let by_driver = drivers
        .iter()
        .map(|name| (of_driver(name), *name))
        .find(|(class, _)| *class != DeviceClass::Unknown);
    if let Some((class, name)) = by_driver {
        return hint(class, Confidence::Certain, format!("driver {name}"));
    }
    if drivers.contains("nvgrace_gpu_vfio_pci") {
        return hint(
            DeviceClass::Gpu,
            Confidence::Certain,
            "driver nvgrace_gpu_vfio_pci".to_owned(),
        );
    }
    // Virtual functions of network adapters begin at device 16 of their bus (routing offset 0x80).
    if device.device() >= 16 && device.bus() > 0 && has_nic {
        let why = "a virtual function's address, beside a network adapter's driver".to_owned();
        return hint(DeviceClass::Nic, Confidence::Probable, why);
    }
    hint(DeviceClass::Unknown, Confidence::Possible, "no class and no driver of its own".to_owned())
}
