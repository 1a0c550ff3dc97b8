//! Firmware settings that bear on peer access, the IOMMU and memory encryption: what boards call
//! them, and which of them can be read from Linux.
//!
//! Names are from board manuals, attribute lists and field reports. They differ by board and by
//! firmware version, so that everything that prints one adds "or the like".

use crate::snapshot::firmware::Firmware;

/// Whose menus are meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Maker {
    AsRockRack,
    Asus,
    Supermicro,
    Dell,
    Hpe,
    Lenovo,
    Cisco,
    /// Everybody else: AMI's menus with AMD's or Intel's reference pages.
    Reference,
}

impl Maker {
    /// From DMI data.
    pub(super) fn detect(firmware: &Firmware) -> Self {
        const WORDS: [(&str, Maker); 9] = [
            ("supermicro", Supermicro),
            ("asrock", Maker::AsRockRack),
            ("asus", Asus),
            ("dell", Dell),
            ("hpe", Hpe),
            ("hewlett", Hpe),
            ("lenovo", Lenovo),
            ("cisco", Cisco),
            ("hp", Hpe),
        ];
        ["board_vendor", "sys_vendor"]
            .iter()
            .filter_map(|name| firmware.dmi_value(name))
            .find_map(|value| {
                let value = value.to_ascii_lowercase();
                let of = |word: &str| {
                    // `hp` is a word of its own, not a part of one.
                    if word == "hp" { value == word } else { value.contains(word) }
                };
                WORDS.iter().find(|(word, _)| of(word)).map(|(_, maker)| *maker)
            })
            .unwrap_or(Self::Reference)
    }
}

/// Which processors have it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Platform {
    Amd,
    Intel,
    /// Arm and others.
    Other,
    Both,
}

/// How its state shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Detector {
    /// Units below `/sys/class/iommu`.
    Iommu,
    /// IVRS `IVinfo` bit 1.
    PreBootProtection,
    /// Access control capability of the root ports above accelerators.
    RootPortAcs,
    /// Processor flags `sme` and `sev`.
    MemoryEncryption,
    /// Line of the security processor in the boot log.
    TransparentEncryption,
    /// EFR bit 63 of the units.
    IommuSnp,
    /// Lines about the reverse map in the boot log.
    ReverseMap,
    /// Line of KVM about address-space numbers in the boot log.
    AsidLimit,
    /// EFR2 bit 13 of the units.
    SnpPageModeZero,
    /// Where the large regions of accelerators lie.
    Above4g,
    /// Resizable BAR capability of accelerators.
    ResizableBar,
    /// End of the highest region against the address widths.
    WindowBase,
    /// DMAR flags bit 3.
    RemappingForcedOff,
    /// DMAR flags bit 0.
    InterruptRemapping,
    /// DMAR flags bit 1.
    X2apicOptOut,
    /// DMAR flags bit 2.
    DmaOptIn,
    /// `ecap` bit 6 of the units.
    PassThrough,
    /// Cannot be read from Linux at all.
    NamedOnly,
}

/// One setting.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    /// What it is called here.
    pub(super) name: &'static str,
    /// Where it is on boards with reference menus.
    reference: &'static str,
    /// Where it is on boards of others.
    menus: &'static [(Maker, &'static str)],
    pub(super) platform: Platform,
    pub(super) detector: Detector,
}

impl Setting {
    /// Where to look on this maker's boards.
    pub(super) fn place(&self, maker: Maker) -> String {
        let own = self.menus.iter().find(|(one, _)| *one == maker);
        match own.map_or(self.reference, |(_, place)| place) {
            UNNAMED => "no menu entry is known".to_owned(),
            place => format!("look for {place}, or the like"),
        }
    }
}

const fn setting(
    name: &'static str,
    platform: Platform,
    detector: Detector,
    reference: &'static str,
    menus: &'static [(Maker, &'static str)],
) -> Setting {
    Setting { name, reference, menus, platform, detector }
}

use Detector as D;
use Maker::{Asus, Cisco, Dell, Hpe, Lenovo, Supermicro};
use Platform::{Amd, Both, Intel, Other};

/// Where no menu entry is known.
const UNNAMED: &str = "";

/// All settings, the ones that people ask about first.
pub(super) const SETTINGS: &[Setting] = &[
    setting(
        "IOMMU",
        Amd,
        D::Iommu,
        "AMD CBS > NBIO Common Options > IOMMU",
        &[
            (Supermicro, "Advanced > NB Configuration > IOMMU"),
            (Dell, "Processor Settings > IOMMU Support"),
            (Hpe, "AMD I/O Virtualization Technology"),
            (Lenovo, "IOMMU"),
            (Cisco, "IOMMU"),
        ],
    ),
    setting("VT-d", Intel, D::Iommu, "Intel VT for Directed I/O (VT-d)", &[]),
    setting(
        "ACS on root ports",
        Amd,
        D::RootPortAcs,
        "AMD CBS > NBIO Common Options > ACS Enable, with Enable AER Cap",
        &[
            (Supermicro, "ACS Enable (PCIe page)"),
            (Hpe, "Access Control Service"),
            (Lenovo, "ACS Enable"),
            (Cisco, "ACS Control"),
        ],
    ),
    setting(
        "ACS on root ports",
        Intel,
        D::RootPortAcs,
        "ACS Control (per slot; some makers word it the other way round: read the bits)",
        &[],
    ),
    setting("ACS on root ports", Other, D::RootPortAcs, UNNAMED, &[]),
    setting(
        "SMEE (memory encryption)",
        Amd,
        D::MemoryEncryption,
        "AMD CBS > CPU Common Options > SMEE",
        &[
            (Supermicro, "Advanced > CPU Configuration > SMEE"),
            (Dell, "Secure Memory Encryption"),
            (Hpe, "AMD Secure Memory Encryption"),
            (Lenovo, "SMEE"),
            (Cisco, "SMEE"),
        ],
    ),
    setting(
        "TSME (transparent memory encryption)",
        Amd,
        D::TransparentEncryption,
        "AMD CBS > UMC (DDR) > Security > TSME",
        &[
            (Supermicro, "TSME"),
            (Dell, "Transparent Secure Memory Encryption"),
            (Hpe, "TSME"),
            (Lenovo, "TSME"),
        ],
    ),
    setting(
        "SEV-SNP Support",
        Amd,
        D::IommuSnp,
        "AMD CBS > NBIO Common Options > SEV-SNP Support",
        &[
            (Supermicro, "Advanced > NB Configuration > SEV-SNP Support"),
            (Dell, "Secure Nested Paging"),
            (Hpe, "SEV-SNP Support, where the board has it"),
            (Lenovo, "SEV-SNP Support"),
            (Cisco, "SEV-SNP Support"),
        ],
    ),
    setting(
        "RMP coverage",
        Amd,
        D::ReverseMap,
        "AMD CBS > CPU Common Options > SNP Memory (RMP Table) Coverage",
        &[
            (Supermicro, "Advanced > CPU Configuration > SNP Memory (RMP Table) Coverage"),
            (Asus, "SNP Memory (RMP Table) Coverage, under NBIO or CPU Common Options"),
            (Dell, "SNP Memory Coverage"),
            (Lenovo, "SNP Memory (RMP Table Coverage)"),
            (Cisco, "SNP Memory Coverage"),
        ],
    ),
    setting(
        "SEV-ES ASID Space Limit",
        Amd,
        D::AsidLimit,
        "AMD CBS > CPU Common Options > SEV-ES ASID Space Limit",
        &[
            (Supermicro, "Advanced > CPU Configuration > SEV-ES ASID Space Limit"),
            (Dell, "Minimum SEV non-ES ASID"),
            (Hpe, "Minimum SEV ASID"),
            (Lenovo, "SEV-ES ASID Space Limit"),
        ],
    ),
    setting("SNP page mode 0", Amd, D::SnpPageModeZero, UNNAMED, &[]),
    setting(
        "pre-boot DMA protection",
        Amd,
        D::PreBootProtection,
        "AMD CBS > NBIO Common Options > DMAr Support",
        &[
            (Dell, "Kernel DMA Protection"),
            (Lenovo, "DMA Protection"),
            (Cisco, "PreBoot DMA Protection"),
        ],
    ),
    setting(
        "Above 4G Decoding",
        Both,
        D::Above4g,
        "Above 4G Decoding, PCI 64 Bit Resources Allocation, Memory Mapped I/O above 4GB",
        &[],
    ),
    setting("Resizable BAR", Both, D::ResizableBar, "Resizable BAR Support", &[]),
    setting(
        "place of the 64-bit windows",
        Both,
        D::WindowBase,
        "MMIO High Base, MMIO High Granularity Size",
        &[(Lenovo, "MmioAbove4GLimit")],
    ),
    setting("remapping forced off", Intel, D::RemappingForcedOff, UNNAMED, &[]),
    setting(
        "Pass-through DMA",
        Intel,
        D::PassThrough,
        "PassThrough DMA, beside the VT-d entries",
        &[],
    ),
    setting(
        "Interrupt Remapping",
        Intel,
        D::InterruptRemapping,
        "Interrupt Remapping, beside the VT-d entries",
        &[],
    ),
    setting(
        "X2APIC Opt Out",
        Intel,
        D::X2apicOptOut,
        "X2APIC Opt Out, beside the VT-d entries",
        &[],
    ),
    setting(
        "DMA Control Opt-In",
        Intel,
        D::DmaOptIn,
        "DMA Control Opt-In Flag, beside the VT-d entries",
        &[],
    ),
    setting(
        "xGMI speed and width",
        Amd,
        D::NamedOnly,
        "4-link xGMI max speed and link width control, under AMD CBS",
        &[],
    ),
    setting(
        "Preferred IO and LCLK",
        Amd,
        D::NamedOnly,
        "Preferred IO and Root Complex LCLK Frequency, under AMD CBS",
        &[],
    ),
    setting(
        "DF C-states and determinism",
        Amd,
        D::NamedOnly,
        "DF Cstates and determinism, under AMD CBS",
        &[],
    ),
    setting(
        "memory interleaving",
        Amd,
        D::NamedOnly,
        "memory interleaving and its size, under AMD CBS",
        &[],
    ),
    setting(
        "measured launch device",
        Amd,
        D::NamedOnly,
        "DRTM Virtual Device Support, under AMD CBS",
        &[],
    ),
    setting(
        "peer serialization",
        Intel,
        D::NamedOnly,
        "PCI Peer to Peer Serialization (some boards)",
        &[(Hpe, "PCI Peer to Peer Serialization")],
    ),
    setting("MSI check of the IOMMU", Intel, D::NamedOnly, "Opt-Out Illegal MSI Mitigation", &[]),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(vendor: &str, expected: Maker) {
        let dmi = vec![("board_vendor".to_owned(), vendor.to_owned())];
        assert_eq!(Maker::detect(&Firmware { dmi, ..Firmware::default() }), expected);
    }

    #[test]
    fn makers() {
        check("Supermicro", Supermicro);
        check("ASRockRack", Maker::AsRockRack);
        check("ASUSTeK COMPUTER INC.", Asus);
        check("Dell Inc.", Dell);
        check("Hewlett Packard Enterprise", Hpe);
        check("HP", Hpe);
        check("LENOVO", Lenovo);
        check("Cisco Systems Inc", Cisco);
        check("Giga Computing", Maker::Reference);
        assert_eq!(Maker::detect(&Firmware::default()), Maker::Reference);
    }

    #[test]
    fn a_maker_without_an_own_name_gets_the_reference() {
        let iommu = SETTINGS.first().unwrap();
        assert_eq!(
            iommu.place(Supermicro),
            "look for Advanced > NB Configuration > IOMMU, or the like"
        );
        assert_eq!(iommu.place(Maker::Reference), iommu.place(Maker::AsRockRack));
    }
}
