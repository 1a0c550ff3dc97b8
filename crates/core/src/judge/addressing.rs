//! With which addresses does the requester's driver reach a peer?
//!
//! NVIDIA's driver asks the kernel to map peer memory only where the device has a table of DMA
//! operations (`kernel-open/nvidia/nv-dma.c`, `nv_dma_use_map_resource`). Kernels from 5.9 give a
//! translated device one; from 6.12 they do not any more ("dma-mapping: direct calls for
//! dma-iommu"), and the driver falls back to the raw bus address without saying so.

use super::{Answer, Confidence};
use crate::boards;
use crate::code::{self, Code};
use crate::observed::Observed;
use crate::snapshot::Snapshot;
use crate::snapshot::driver::DriverFlavour;
use crate::snapshot::kernel::Tristate;
use crate::snapshot::pci::{Addressing, PciDevice};
use crate::snapshot::query::vendor;

/// How a requester addresses a peer.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Peers {
    /// With the peer's bus address.
    Raw {
        /// Why that is so.
        why: String,
        /// A finding that says more.
        code: Option<Code>,
    },
    /// With an address that the kernel mapped to the peer's memory.
    Mapped {
        /// Why that is so.
        why: String,
    },
    /// Not at all.
    None(Answer),
    /// Nobody could tell.
    Unknown(String),
}

/// First kernels that give and no longer give a translated device a table of DMA operations.
const OPS_TABLE_FROM: (u32, u32) = (5, 9);
const OPS_TABLE_UNTIL: (u32, u32) = (6, 12);

/// What AMD's and Intel's drivers do, as far as their source was read.
pub(super) const BY_KERNEL: &str = "its driver has the kernel map peer memory, where the kernel \
                                    was built for it (CONFIG_PCI_P2PDMA) and allows the pair; not \
                                    verified";

/// How `from` addresses the memory of `to`.
pub(crate) fn of(snapshot: &Snapshot, from: &PciDevice, to: &PciDevice) -> Peers {
    if let Some(declared) = snapshot.accelerator(from.address) {
        return match declared.addressing {
            Addressing::Raw => Peers::Raw {
                why: format!("{} is declared to use raw bus addresses", declared.name),
                code: None,
            },
            Addressing::Mapped => Peers::Mapped {
                why: format!("{} is declared to use mapped addresses", declared.name),
            },
        };
    }
    match from.driver_name() {
        Some("nvidia") if to.is_gpu() && !to.is_vendor(vendor::NVIDIA) => Peers::Unknown(
            "NVIDIA's driver is not known to have a way to a GPU of another vendor".to_owned(),
        ),
        Some("nvidia") if to.is_gpu() => match offered(snapshot, from, to) {
            Some(answer) => Peers::None(answer),
            None => nvidia(snapshot),
        },
        Some("amdgpu" | "xe") if to.is_gpu() && same_vendor(from, to) => {
            Peers::Mapped { why: BY_KERNEL.to_owned() }
        }
        // Network controllers get the addresses of a GPU's memory from the GPU's driver.
        Some(_) if from.is_nic() && to.is_gpu() && to.driver_name() == Some("nvidia") => {
            nvidia(snapshot)
        }
        Some(driver) => {
            Peers::Unknown(format!("how driver {driver} addresses this peer is not known"))
        }
        None => Peers::Unknown(match &from.driver {
            Observed::Unreadable(why) => format!("its driver could not be read ({why})"),
            Observed::Absent | Observed::Known(_) => {
                format!("no driver is bound to {}", from.address)
            }
        }),
    }
}

/// Drivers reach the GPUs of their own maker.
fn same_vendor(from: &PciDevice, to: &PciDevice) -> bool {
    match (from.ids.known(), to.ids.known()) {
        (Some(from), Some(to)) => from.vendor == to.vendor,
        _ => false,
    }
}

/// Whether NVIDIA's stock driver offers peer access between two boards at all.
fn offered(snapshot: &Snapshot, from: &PciDevice, to: &PciDevice) -> Option<Answer> {
    if is_fork(snapshot) || forced(snapshot) {
        return None;
    }
    [from, to].into_iter().find_map(|device| {
        let board = boards::lookup(*device.ids.known()?)?;
        let refused = |confidence, gap: &str| {
            Answer::broken(
                confidence,
                code::BOARD_OFFERS_NONE,
                format!("NVIDIA's driver does not offer PCIe peer access on {}{gap}", board.name),
            )
        };
        (board.offers_p2p == Tristate::No).then(|| match snapshot.nvidia.params.unreadable() {
            Some(_) => {
                refused(Confidence::Possible, "; whether ForceP2P overrides that could not be read")
            }
            None => refused(Confidence::Probable, ""),
        })
    })
}

/// A driver build with peer-to-peer patches.
pub fn is_fork(snapshot: &Snapshot) -> bool {
    snapshot.nvidia.version.known().is_some_and(|version| version.flavour == DriverFlavour::Fork)
}

/// `ForceP2P` with an enabling field (reads in bits 1:0, writes in bits 5:4; 1 enables).
pub fn forced(snapshot: &Snapshot) -> bool {
    let Some(params) = snapshot.nvidia.params.known() else { return false };
    let keys =
        ["RegistryDwords", "RegistryDwordsPerDevice"].iter().filter_map(|name| params.get(*name));
    keys.flat_map(|text| text.trim_matches('"').split(';'))
        .filter_map(|pair| pair.split_once('='))
        .filter(|(key, _)| {
            ["ForceP2P", "RMForceP2P"].iter().any(|name| key.trim().eq_ignore_ascii_case(name))
        })
        .filter_map(|(_, value)| number(value))
        .any(|value| value & 3 == 1 || value >> 4 & 3 == 1)
}

/// The value of `ForceP2P` in the driver's registry keys.
pub fn force_p2p(snapshot: &Snapshot) -> Option<u32> {
    registry_key(snapshot, "ForceP2P").or_else(|| registry_key(snapshot, "RMForceP2P"))
}

/// A registry key of the driver, from `RegistryDwords`.
pub fn registry_key(snapshot: &Snapshot, name: &str) -> Option<u32> {
    let dwords = snapshot.nvidia.params.known()?.get("RegistryDwords")?;
    dwords.trim_matches('"').split(';').find_map(|pair| {
        let (key, value) = pair.split_once('=')?;
        if !key.trim().eq_ignore_ascii_case(name) {
            return None;
        }
        number(value)
    })
}

fn number(text: &str) -> Option<u32> {
    let text = text.trim();
    match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

/// NVIDIA's driver under a translating domain.
fn nvidia(snapshot: &Snapshot) -> Peers {
    if is_fork(snapshot) {
        return Peers::Raw {
            why: "the loaded driver is a peer-to-peer fork, which always uses raw bus addresses"
                .to_owned(),
            code: Some(code::FORKED_DRIVER),
        };
    }
    if told_not_to_map(snapshot) {
        return Peers::Raw {
            why: "NVIDIA's driver is told not to map peer memory (DmaRemapPeerMmio: 0)".to_owned(),
            code: Some(code::REMAP_PARAMETER),
        };
    }
    match (by_kernel(snapshot), &snapshot.nvidia.params) {
        (Peers::Mapped { .. }, Observed::Unreadable(why)) => Peers::Unknown(format!(
            "NVIDIA's driver has this kernel map peer memory unless it is told not to, and its \
             parameters could not be read ({why})"
        )),
        (peers, _) => peers,
    }
}

/// Whether `DmaRemapPeerMmio` is 0: the driver then never asks the kernel.
pub fn told_not_to_map(snapshot: &Snapshot) -> bool {
    let params = snapshot.nvidia.params.known();
    params.and_then(|params| params.get("DmaRemapPeerMmio")).is_some_and(|value| value == "0")
}

/// Whether the kernel is one that the stock driver has map peer memory, if it is not told otherwise.
pub fn kernel_maps(snapshot: &Snapshot) -> bool {
    matches!(by_kernel(snapshot), Peers::Mapped { .. })
}

fn by_kernel(snapshot: &Snapshot) -> Peers {
    let raw = |why: &str| Peers::Raw { why: why.to_owned(), code: Some(code::REMAP_PARAMETER) };
    let mapped = |why: &str| Peers::Mapped { why: why.to_owned() };
    let version = snapshot.kernel.version();
    let at_least =
        |(major, minor): (u32, u32)| version.is_some_and(|version| version.at_least(major, minor));
    match (&snapshot.kernel.iommu_dma_ops, version) {
        (Observed::Known(true), _) => mapped(
            "NVIDIA's driver has this kernel map peer memory (it has a table of DMA operations); \
             nobody has verified that on hardware",
        ),
        (Observed::Known(false), Some(_)) if at_least(OPS_TABLE_FROM) => raw(
            "NVIDIA's driver uses raw bus addresses on this kernel, which gives devices no table \
             of DMA operations",
        ),
        (_, Some(_)) if at_least(OPS_TABLE_UNTIL) => {
            raw("NVIDIA's driver uses raw bus addresses on kernels from 6.12 on")
        }
        (_, Some(_)) if at_least(OPS_TABLE_FROM) => mapped(
            "NVIDIA's driver has kernels of 5.9 to 6.11 map peer memory; nobody has verified that \
             on hardware",
        ),
        _ => Peers::Unknown(
            "whether NVIDIA's driver maps peer memory depends on the kernel, and nothing is known \
             about this one"
                .to_owned(),
        ),
    }
}
