//! The gate on the addresses that a peer map occupies in the requester's domain.

use peerway_core::observed::Observed;
use peerway_core::snapshot::iommu::IommuVendor;
use peerway_core::snapshot::pci::{Bar, PciDevice};

use super::some_of;
use crate::gate::{Gate, GateCode};
use crate::scene::Scene;

/// The DMA API gives 32-bit addresses first.
const FOUR_GIB: u64 = 1 << 32;

/// What has to stay free above a mapped range for the DMA API, which works down from the top of
/// the device's mask: more than four times the 6 TiB that a socket of today takes.
const MARGIN: u64 = 32 << 40;

/// Bits of address that AMD's driver gives a domain at least: four levels of 9 bits on 12, less the
/// sign half that version 2 tables lose.
const AMD_DOMAIN_BITS: u32 = 47;

/// What stands against mapping one range for one requester.
enum Answer {
    Free(&'static str),
    Taken(String),
    Unknown(String),
}

/// Every peer's memory can be mapped at its own address in each requester's domain, and the DMA
/// API will not give those addresses out.
pub(crate) fn addresses_free(scene: &Scene<'_>) -> Gate {
    let mut taken = Vec::new();
    let mut unknown = Vec::new();
    let mut free = std::collections::BTreeSet::new();
    let mut targets: Vec<(&PciDevice, &Bar)> = Vec::new();
    for target in scene.devices() {
        match scene.snapshot().peer_memory(target) {
            Some((_, bar)) if bar.assigned => targets.push((target, bar)),
            _ => unknown.push(format!("the memory region of {} was not read", target.address)),
        }
    }
    for requester in scene.devices() {
        for (target, bar) in &targets {
            if target.address == requester.address {
                continue;
            }
            match range(scene, requester, target, bar) {
                Answer::Free(why) => {
                    free.insert(why);
                }
                Answer::Taken(why) => taken.push(why),
                Answer::Unknown(why) => unknown.push(why),
            }
        }
    }
    if !taken.is_empty() {
        return Gate::fail(
            GateCode::AddressesFree,
            some_of(&taken),
            "another place for the regions (firmware's MMIO base), above 4 GiB and well below the \
             top of what the requester addresses",
        );
    }
    if !unknown.is_empty() {
        return Gate::unknown(
            GateCode::AddressesFree,
            some_of(&unknown),
            "readable dma_mask_bits, reserved_regions and resource files",
        );
    }
    let why: Vec<&str> = free.into_iter().collect();
    Gate::pass(
        GateCode::AddressesFree,
        format!("{}; the module looks every page up before it maps", why.join("; ")),
    )
}

fn range(scene: &Scene<'_>, requester: &PciDevice, target: &PciDevice, bar: &Bar) -> Answer {
    let (start, end) = (bar.start.0, bar.end());
    let at = |text: &str| {
        format!("{start:#x} to {end:#x} ({}) for {}: {text}", target.address, requester.address)
    };
    match scene.snapshot().group_of(requester).map(|group| &group.reserved) {
        Some(Observed::Known(reserved)) => {
            let hit = reserved.iter().find(|one| one.start.0 < end && start <= one.end.0);
            if let Some(hit) = hit {
                return Answer::Taken(at(&format!(
                    "overlaps {} to {} ({}) of reserved_regions",
                    hit.start, hit.end, hit.kind
                )));
            }
        }
        _ => return Answer::Unknown(at("reserved_regions of its group was not read")),
    }
    let Some(bits) = domain_bits(scene) else {
        return Answer::Unknown(at("how wide a domain's addresses are was not read"));
    };
    if end > top(bits) {
        return Answer::Taken(at(&format!("beyond the {bits} bits of the domain")));
    }
    let Some(mask) = requester.dma_mask_bits.known().copied() else {
        return Answer::Unknown(at("dma_mask_bits was not read"));
    };
    if start >= top(mask) {
        return Answer::Free("above what the requester's driver lets the DMA API use");
    }
    // The kernel keeps the windows of the requester's own host bridge out of what it gives out
    // (`drivers/iommu/dma-iommu.c`, `iova_reserve_pci_windows`).
    if requester.root == target.root {
        return Answer::Free("in the requester's own host bridge, which the DMA API leaves out");
    }
    if start < FOUR_GIB {
        return Answer::Taken(at(
            "below 4 GiB under another host bridge, where the DMA API begins",
        ));
    }
    let limit = top(mask.min(bits));
    if end > limit || limit - end < MARGIN {
        return Answer::Taken(at(&format!(
            "less than 32 TiB below the top of {} bits, from where the DMA API works down",
            mask.min(bits)
        )));
    }
    Answer::Free("above 4 GiB, 32 TiB or more below the top of what the DMA API uses")
}

fn top(bits: u32) -> u64 {
    1_u64.checked_shl(bits).unwrap_or(u64::MAX)
}

/// Width of a domain's addresses: VT-d's capability register (MGAW, bits 21:16, of every unit),
/// or what AMD's driver gives at least.
fn domain_bits(scene: &Scene<'_>) -> Option<u32> {
    let units = scene.snapshot().iommu.units.known()?;
    match scene.snapshot().iommu_vendor()? {
        IommuVendor::Amd => Some(AMD_DOMAIN_BITS),
        IommuVendor::Intel => {
            let widths: Option<Vec<u32>> = units
                .iter()
                .map(|unit| {
                    let cap = *unit.intel_cap.known()?;
                    u32::try_from((cap >> 16 & 0x3f) + 1).ok()
                })
                .collect();
            widths?.into_iter().min()
        }
        IommuVendor::Arm | IommuVendor::Other => None,
    }
}
