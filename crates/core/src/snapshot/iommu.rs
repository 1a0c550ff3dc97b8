//! IOMMU units and groups.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::address::{BusAddress, PciAddress};
use crate::observed::Observed;

/// The host's IOMMU as a whole.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Iommu {
    /// Units under `/sys/class/iommu`; absent or empty means that no IOMMU is active.
    pub units: Observed<Vec<IommuUnit>>,
}

/// Maker of an IOMMU, from the names of its units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IommuVendor {
    /// AMD-Vi (`ivhdN`).
    Amd,
    /// Intel VT-d (`dmarN`).
    Intel,
    /// Arm SMMU.
    Arm,
    /// Something else (`virtio-iommu`, POWER, …).
    Other,
}

impl fmt::Display for IommuVendor {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            Self::Amd => "AMD-Vi",
            Self::Intel => "VT-d",
            Self::Arm => "SMMU",
            Self::Other => "IOMMU",
        })
    }
}

/// One IOMMU unit.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IommuUnit {
    /// Name in `/sys/class/iommu`.
    pub name: String,
    /// Its maker.
    pub vendor: IommuVendor,
    /// AMD: extended feature register (EFR), whatever order the kernel prints it in.
    pub amd_efr: Observed<u64>,
    /// AMD: second extended feature register (EFR2).
    pub amd_efr2: Observed<u64>,
    /// Intel: capability register.
    pub intel_cap: Observed<u64>,
    /// Intel: extended capability register.
    pub intel_ecap: Observed<u64>,
}

impl IommuUnit {
    /// AMD: SNP is switched on in this unit (EFR bit 63).
    pub fn snp_capable(&self) -> Observed<bool> {
        self.amd_efr.as_ref().map(|efr| efr >> 63 & 1 == 1)
    }

    /// AMD: untranslated device-table entries are allowed under SNP (EFR2 bit 13).
    pub fn snp_page_mode_zero(&self) -> Observed<bool> {
        self.amd_efr2.as_ref().map(|efr2| efr2 >> 13 & 1 == 1)
    }

    /// Intel: hardware pass-through (ecap bit 6).
    pub fn hardware_pass_through(&self) -> Observed<bool> {
        self.intel_ecap.as_ref().map(|ecap| ecap >> 6 & 1 == 1)
    }
}

/// One IOMMU group.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Number; it changes when devices are removed and found again.
    pub id: u32,
    /// `type`: the group's default domain, which is not the domain in use while VFIO holds it.
    pub domain: Observed<DomainType>,
    /// Members, ordered.
    pub devices: Vec<PciAddress>,
    /// `reserved_regions`.
    pub reserved: Observed<Vec<Reserved>>,
}

/// Type of a group's default domain (`drivers/iommu/iommu.c`, `iommu_group_show_type`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum DomainType {
    /// `DMA`: translated, strict invalidation.
    Dma,
    /// `DMA-FQ`: translated, deferred invalidation.
    DmaFq,
    /// `identity`: no translation.
    Identity,
    /// `blocked`: all DMA refused.
    Blocked,
    /// `unmanaged`: the caller manages it.
    Unmanaged,
    /// `unknown`: the group has no default domain.
    NoDefault,
    /// A word that this program does not know.
    Other(String),
}

impl DomainType {
    /// From the word in `type`.
    pub fn from_word(word: &str) -> Self {
        match word {
            "DMA" => Self::Dma,
            "DMA-FQ" => Self::DmaFq,
            "identity" => Self::Identity,
            "blocked" => Self::Blocked,
            "unmanaged" => Self::Unmanaged,
            "unknown" => Self::NoDefault,
            other => Self::Other(other.to_owned()),
        }
    }

    /// Whether the DMA API translates addresses in it.
    pub fn translates(&self) -> bool {
        matches!(self, Self::Dma | Self::DmaFq)
    }

    /// Whether a group that was told to have this type may read as that one: where the IOMMU has no
    /// deferred flush, or no queue for it could be had, the kernel falls back to strict invalidation
    /// (`drivers/iommu/dma-iommu.c`, `iommu_dma_init_domain`).
    pub fn may_read_as(&self, read: &Self) -> bool {
        self == read || matches!((self, read), (Self::DmaFq, Self::Dma))
    }

    /// The kernel's word.
    pub fn word(&self) -> &str {
        match self {
            Self::Dma => "DMA",
            Self::DmaFq => "DMA-FQ",
            Self::Identity => "identity",
            Self::Blocked => "blocked",
            Self::Unmanaged => "unmanaged",
            Self::NoDefault => "unknown",
            Self::Other(word) => word,
        }
    }
}

impl fmt::Display for DomainType {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.word())
    }
}

/// One line of `reserved_regions`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reserved {
    /// First address.
    pub start: BusAddress,
    /// Last address (inclusive).
    pub end: BusAddress,
    /// `direct`, `direct-relaxable`, `reserved` or `msi`.
    pub kind: String,
}
