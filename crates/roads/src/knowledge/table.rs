//! The facts that this program brings along.

use super::{Effect, EvidenceLevel, Fact};
use crate::gate::GateCode;
use crate::id::RoadId;
use crate::version::Range;
use peerway_core::address::VendorDevice;

struct Row {
    id: &'static str,
    gate: GateCode,
    effect: Effect,
    road: Option<RoadId>,
    /// Device numbers of NVIDIA.
    boards: &'static [u16],
    kernels: (&'static str, &'static str),
    drivers: (&'static str, &'static str),
    snp: Option<bool>,
    text: &'static str,
    source: &'static str,
    level: EvidenceLevel,
}

/// A row about every board, driver and kernel.
const fn row(id: &'static str, gate: GateCode, effect: Effect) -> Row {
    Row {
        id,
        gate,
        effect,
        road: None,
        boards: &[],
        kernels: ("", ""),
        drivers: ("", ""),
        snp: None,
        text: "",
        source: "",
        level: EvidenceLevel::Inferred,
    }
}

const ROWS: &[Row] = &[
    Row {
        kernels: ("5.11", ""),
        text: "the type file of a group takes writes",
        source: "drivers/iommu/iommu.c, iommu_group_store_type; written on 6.1, 6.12 and 7.3; on \
                 5.10 the file is read-only",
        level: EvidenceLevel::Lab,
        ..row("type-file", GateCode::KernelEra, Effect::Allows)
    },
    Row {
        kernels: ("6.4", ""),
        text: "a group of several functions can change its type",
        source: "drivers/iommu/iommu.c, iommu_group_store_type; refused with EINVAL on 6.1, taken \
                 on 6.12 and 7.3",
        level: EvidenceLevel::Lab,
        ..row("type-file-many", GateCode::KernelEra, Effect::Allows)
    },
    Row {
        kernels: ("6.13", "6.19.10"),
        snp: Some(true),
        text: "this kernel takes the write of identity on an SNP host and then rejects all DMA of \
               the device (ILLEGAL_DEV_TABLE_ENTRY)",
        source: "drivers/iommu/amd/iommu.c: commit 4402f2627d30 opened the window, ba17de98545d \
                 closed it (stable 6.19.10, mainline 7.0)",
        level: EvidenceLevel::Source,
        ..row("snp-identity-window", GateCode::SnpIdentity, Effect::Fails)
    },
    Row {
        road: Some(RoadId::IdentityGroups),
        boards: &[0x2bb1, 0x2bb4, 0x2bb5],
        kernels: ("6.13", "6.19.10"),
        snp: Some(true),
        text: "the boards' security processor failed at its boot command when the driver bound \
               under an identity domain. The likeliest cause is SNP's rejection of the device's \
               DMA; bad reset, SME bits and power states remain as hypotheses",
        source: "reported for RTX PRO 6000 Blackwell, driver 580, kernel 6.14 with SNP on",
        level: EvidenceLevel::HardwareElsewhere,
        ..row("fsp-identity-snp", GateCode::KnownFailure, Effect::Fails)
    },
    Row {
        drivers: ("595", ""),
        text: "if a process opens the GPU while the driver removes it, the removal cannot finish \
               and only a reboot of the host heals it",
        source: "reported: NVIDIA/open-gpu-kernel-modules issues 1119 and 1374",
        level: EvidenceLevel::HardwareElsewhere,
        ..row("unbind-hazard", GateCode::UnbindHazard, Effect::Hazard)
    },
    Row {
        kernels: ("6.1", "7.4"),
        text: "the peer-map module is made for these kernels",
        source: "entries made by such a module carried peer copies under translation on 6.1, 6.12 \
                 and 7.3 (VT-d) and on 6.12 and 7.3 (emulated AMD-Vi)",
        level: EvidenceLevel::Lab,
        ..row("peer-map-module", GateCode::Module, Effect::Allows)
    },
    Row {
        kernels: ("5.9", "6.12"),
        text: "the kernel gives translated devices a table of DMA operations, so the stock open \
               driver has it map peer memory",
        source: "kernel-open/nvidia/nv-dma.c, nv_dma_use_map_resource; commit b5c58b2fdc42 ended \
                 it in 6.12",
        level: EvidenceLevel::Source,
        ..row("stock-driver-maps", GateCode::RawAddresses, Effect::Allows)
    },
    Row {
        kernels: ("", "7.4"),
        text: "VFIO's type 1 interface maps peer memory without telling the IOMMU driver that it \
               is MMIO, so with SME the entry carries the encryption bit",
        source: "drivers/vfio/vfio_iommu_type1.c up to 7.3.4: no IOMMU_MMIO",
        level: EvidenceLevel::Source,
        ..row("vfio-without-mmio-flag", GateCode::SmeMmio, Effect::Fails)
    },
    Row {
        kernels: ("7.2", ""),
        text: "the kernel writes its own ACS bits again whenever a driver binds (every kernel does \
               so when the port is reset or resumes)",
        source: "drivers/pci/pci-driver.c, pci_dma_configure; drivers/pci/pci.c, \
                 pci_restore_state",
        level: EvidenceLevel::Source,
        ..row("acs-reapplied", GateCode::AcsReadable, Effect::Hazard)
    },
];

fn range((from, until): (&str, &str)) -> Range {
    let end = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    Range { from: end(from), until: end(until) }
}

pub(super) fn facts() -> Vec<Fact> {
    ROWS.iter()
        .map(|row| Fact {
            id: row.id.to_owned(),
            gate: row.gate,
            effect: row.effect,
            road: row.road,
            boards: row
                .boards
                .iter()
                .map(|device| VendorDevice { vendor: 0x10de, device: *device })
                .collect(),
            kernels: range(row.kernels),
            drivers: range(row.drivers),
            snp: row.snp,
            text: row.text.to_owned(),
            source: row.source.to_owned(),
            level: row.level,
        })
        .collect()
}
