//! DMI data and ACPI tables.

use serde::{Deserialize, Serialize};

use crate::address::{BusAddress, PciAddress};
use crate::observed::Observed;

/// What firmware tells about itself and about the IOMMU.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Firmware {
    /// `/sys/class/dmi/id/*` by name: `bios_vendor`, `board_name`, `product_name`, …
    pub dmi: Vec<(String, String)>,
    /// ACPI table `IVRS` (AMD).
    pub ivrs: Observed<Ivrs>,
    /// ACPI table `DMAR` (Intel).
    pub dmar: Observed<Dmar>,
}

impl Firmware {
    /// One DMI value.
    pub fn dmi_value(&self, name: &str) -> Option<&str> {
        self.dmi.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

/// Facts of the `IVRS` table (AMD I/O Virtualization Technology specification, chapter 5).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ivrs {
    /// `IVinfo` bit 0: feature registers in the table are valid.
    pub efr_valid: bool,
    /// `IVinfo` bit 1: memory was protected before the operating system took over.
    pub dma_remap: bool,
    /// One entry per IOMMU: PCI address and EFR (0 where the block has none).
    pub units: Vec<IvrsUnit>,
    /// Unity and exclusion ranges.
    pub memory: Vec<UnityRange>,
}

/// One IVHD block, the highest type per IOMMU.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct IvrsUnit {
    /// The IOMMU's own function.
    pub address: PciAddress,
    /// Extended feature register.
    pub efr: u64,
    /// Second extended feature register.
    pub efr2: u64,
}

/// A range that firmware wants mapped one to one for a device (IVMD, RMRR).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnityRange {
    /// First address.
    pub start: BusAddress,
    /// Bytes.
    pub size: u64,
}

/// Facts of the `DMAR` table (Intel VT-d specification, chapter 8).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[expect(clippy::struct_excessive_bools, reason = "one per flag bit of the table")]
pub struct Dmar {
    /// Host address width, bits.
    pub address_width: u8,
    /// Flags bit 0: interrupt remapping.
    pub interrupt_remapping: bool,
    /// Flags bit 1: firmware asks not to use x2APIC.
    pub x2apic_opt_out: bool,
    /// Flags bit 2: firmware asks the system to control DMA.
    pub dma_control_opt_in: bool,
    /// Flags bit 3: firmware forces remapping off.
    pub remapping_off: bool,
    /// Remapping units.
    pub units: u32,
    /// Reserved memory regions.
    pub memory: Vec<UnityRange>,
}
