//! GPU boards: what NVIDIA's stock driver offers on them, how wide their addresses are.
//!
//! Sources: the supported-devices table of NVIDIA's open kernel modules and its chip tables
//! (address widths: `src/common/inc/swref/published/*/hwproject.h`). Whether PCIe peer access is
//! offered is decided inside the closed firmware; the column here is from vendor statements and
//! field reports and never gives a certain verdict.

use crate::address::VendorDevice;
use crate::snapshot::kernel::Tristate;
use crate::snapshot::query::vendor;

/// Chip generation of an NVIDIA GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Architecture {
    /// `TU10x`.
    Turing,
    /// `GA10x`.
    Ampere,
    /// `AD10x`.
    Ada,
    /// GH100.
    Hopper,
    /// `GB1xx` and `GB20x`.
    Blackwell,
}

impl Architecture {
    /// Width of the bus addresses that the chip can emit, bits.
    pub fn address_bits(self) -> u32 {
        match self {
            Self::Turing | Self::Ampere | Self::Ada => 47,
            Self::Hopper | Self::Blackwell => 52,
        }
    }

    /// Whether its security processor (FSP) boots it, fetching firmware by DMA.
    pub fn has_fsp(self) -> bool {
        matches!(self, Self::Hopper | Self::Blackwell)
    }
}

/// One board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Board {
    /// PCI device number.
    pub device: u16,
    /// Marketing name.
    pub name: &'static str,
    /// Chip generation.
    pub architecture: Architecture,
    /// Whether the stock driver offers PCIe peer access on bare metal.
    pub offers_p2p: Tristate,
    /// Whether it has NVLink, or takes a bridge.
    pub nvlink: bool,
}

const fn board(
    device: u16,
    name: &'static str,
    architecture: Architecture,
    offers_p2p: Tristate,
    nvlink: bool,
) -> Board {
    Board { device, name, architecture, offers_p2p, nvlink }
}

use Architecture::{Ada, Ampere, Blackwell, Hopper, Turing};
use Tristate::{No, Unknown, Yes};

/// Boards by device number, ordered.
const BOARDS: &[Board] = &[
    board(0x1e30, "Quadro RTX 6000/8000", Turing, Yes, true),
    board(0x1eb8, "T4", Turing, Yes, false),
    board(0x20b0, "A100 SXM4 40GB", Ampere, Yes, true),
    board(0x20b2, "A100 SXM4 80GB", Ampere, Yes, true),
    board(0x20b5, "A100 PCIe 80GB", Ampere, Yes, true),
    board(0x20b7, "A30", Ampere, Yes, true),
    board(0x20f1, "A100 PCIe 40GB", Ampere, Yes, true),
    board(0x2203, "GeForce RTX 3090 Ti", Ampere, No, true),
    board(0x2204, "GeForce RTX 3090", Ampere, No, true),
    board(0x2230, "RTX A6000", Ampere, Yes, true),
    board(0x2231, "RTX A5000", Ampere, Yes, true),
    board(0x2232, "RTX A4500", Ampere, Yes, true),
    board(0x2233, "RTX A5500", Ampere, Yes, true),
    board(0x2235, "A40", Ampere, Yes, true),
    board(0x2236, "A10", Ampere, Yes, false),
    board(0x2321, "H100 NVL", Hopper, Yes, true),
    board(0x2330, "H100 SXM5 80GB", Hopper, Yes, true),
    board(0x2331, "H100 PCIe", Hopper, Yes, true),
    board(0x2335, "H200 SXM", Hopper, Yes, true),
    board(0x2339, "H100", Hopper, Yes, true),
    board(0x233b, "H200 NVL", Hopper, Yes, true),
    board(0x25b6, "A16 or A2", Ampere, Unknown, false),
    board(0x2684, "GeForce RTX 4090", Ada, No, false),
    board(0x2685, "GeForce RTX 4090 D", Ada, No, false),
    board(0x26b1, "RTX 6000 Ada", Ada, Yes, false),
    board(0x26b2, "RTX 5000 Ada", Ada, Yes, false),
    board(0x26b3, "RTX 5880 Ada", Ada, Yes, false),
    board(0x26b5, "L40", Ada, Yes, false),
    board(0x26b9, "L40S", Ada, Yes, false),
    board(0x27b8, "L4", Ada, Yes, false),
    board(0x2901, "B200", Blackwell, Yes, true),
    board(0x2b85, "GeForce RTX 5090", Blackwell, No, false),
    board(0x2b87, "GeForce RTX 5090 D", Blackwell, No, false),
    board(0x2b8c, "GeForce RTX 5090 D v2", Blackwell, No, false),
    board(0x2bb1, "RTX PRO 6000 Blackwell Workstation Edition", Blackwell, Yes, false),
    board(0x2bb3, "RTX PRO 5000 Blackwell", Blackwell, Yes, false),
    board(0x2bb4, "RTX PRO 6000 Blackwell Max-Q", Blackwell, Yes, false),
    board(0x2bb5, "RTX PRO 6000 Blackwell Server Edition", Blackwell, Yes, false),
    board(0x2bb9, "RTX 6000D", Blackwell, Unknown, false),
    board(0x2c02, "GeForce RTX 5080", Blackwell, No, false),
    board(0x2c05, "GeForce RTX 5070 Ti", Blackwell, No, false),
    board(0x2c31, "RTX PRO 4500 Blackwell", Blackwell, Unknown, false),
    board(0x2c33, "RTX PRO 4000 Blackwell SFF", Blackwell, Unknown, false),
    board(0x2c34, "RTX PRO 4000 Blackwell", Blackwell, Unknown, false),
    board(0x2d04, "GeForce RTX 5060 Ti", Blackwell, No, false),
    board(0x2d30, "RTX PRO 2000 Blackwell", Blackwell, Unknown, false),
    board(0x2f04, "GeForce RTX 5070", Blackwell, No, false),
    board(0x3182, "B300 SXM6", Blackwell, Yes, true),
];

/// The board of an NVIDIA device number, where it is in the table.
pub fn lookup(ids: VendorDevice) -> Option<&'static Board> {
    if ids.vendor != vendor::NVIDIA {
        return None;
    }
    let at = BOARDS.binary_search_by_key(&ids.device, |board| board.device).ok()?;
    BOARDS.get(at)
}

/// Generation of an NVIDIA device number: from the table, else from the ranges of the chips.
pub fn architecture(ids: VendorDevice) -> Option<Architecture> {
    if let Some(board) = lookup(ids) {
        return Some(board.architecture);
    }
    if ids.vendor != vendor::NVIDIA {
        return None;
    }
    by_range(ids.device)
}

fn by_range(device: u16) -> Option<Architecture> {
    match device {
        0x1e00..=0x1fff | 0x2180..=0x21ff => Some(Turing),
        0x2080..=0x20ff | 0x2200..=0x22ff | 0x2480..=0x25ff => Some(Ampere),
        0x2680..=0x28ff => Some(Ada),
        0x2300..=0x237f => Some(Hopper),
        0x2900..=0x29ff | 0x3180..=0x327f | 0x2b80..=0x2dff | 0x2f00..=0x2f7f => Some(Blackwell),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_ordered() {
        assert!(BOARDS.is_sorted_by_key(|board| board.device));
    }

    #[test]
    fn ranges_agree_with_the_table() {
        for board in BOARDS {
            assert_eq!(by_range(board.device), Some(board.architecture), "{}", board.name);
        }
    }
}
