//! Can the requester address the target at all?

use super::{Answer, Confidence, addressing};
use crate::boards;
use crate::code;
use crate::observed::Observed;
use crate::snapshot::Snapshot;
use crate::snapshot::pci::PciDevice;

/// Window of GPUs without Resizable BAR. Forks map the peer's whole memory through it.
const SMALL_WINDOW: u64 = 256 << 20;

/// A device whose configuration space reads as ones does not answer: directly observed.
pub(crate) fn dead(from: &PciDevice, to: &PciDevice) -> Option<Answer> {
    [from, to].into_iter().find(|device| is_dead(device)).map(|device| {
        Answer::broken(
            Confidence::Certain,
            code::DEAD_DEVICE,
            format!("{} does not answer: its configuration space reads as ones", device.address),
        )
    })
}

/// Whether a device's configuration space reads as ones.
pub fn is_dead(device: &PciDevice) -> bool {
    device.config.known().is_some_and(|config| config.dead)
}

/// Width of the bus addresses that a device can emit, with where that is known from.
pub fn address_bits(snapshot: &Snapshot, device: &PciDevice) -> Option<(u32, String)> {
    // A declared accelerator's mask is what its driver said, as for any other device.
    if let Some(bits) = device.dma_mask_bits.known().filter(|bits| **bits > 32) {
        return Some((*bits, "dma_mask_bits".to_owned()));
    }
    if snapshot.accelerator(device.address).is_some() {
        return None;
    }
    let architecture = boards::architecture(*device.ids.known()?)?;
    Some((architecture.address_bits(), format!("{architecture:?} chips")))
}

/// The target's memory: has it an address, and one that the requester can emit?
pub(crate) fn check(snapshot: &Snapshot, from: &PciDevice, to: &PciDevice) -> Option<Answer> {
    if let Observed::Unreadable(why) = &to.bars {
        return Some(Answer::unknown(
            code::ROUTE_UNKNOWN,
            format!("the regions of {} could not be read ({why})", to.address),
        ));
    }
    let Some((memory, bar)) = snapshot.peer_memory(to) else {
        return Some(Answer::broken(
            Confidence::Probable,
            code::TARGET_UNREACHABLE,
            format!("{} has no memory region that a peer could address", to.address),
        ));
    };
    if !bar.assigned {
        return Some(Answer::broken(
            Confidence::Certain,
            code::UNASSIGNED_BAR,
            format!("region {} of {} has no address", bar.index, memory.address),
        ));
    }
    if addressing::is_fork(snapshot) && bar.size <= SMALL_WINDOW && memory.is_gpu() {
        return Some(Answer::broken(
            Confidence::Probable,
            code::SMALL_BAR,
            format!(
                "the window to the memory of {} is {} MiB: a peer-to-peer fork reaches no more \
                 than the window, and the rest of the memory is not there",
                to.address,
                bar.size >> 20
            ),
        ));
    }
    if memory.config.known().is_some_and(|config| !config.memory_enabled) {
        return Some(Answer::broken(
            Confidence::Probable,
            code::TARGET_UNREACHABLE,
            format!("memory decoding of {} is off: nothing answers at its regions", memory.address),
        ));
    }
    let (bits, _) = address_bits(snapshot, from)?;
    let top = if bits >= 64 { u64::MAX } else { 1 << bits };
    (bar.end() > top).then(|| {
        Answer::broken(
            Confidence::Probable,
            code::BEYOND_ADDRESS_WIDTH,
            format!(
                "the memory of {} ends at {:#x}, above the {bits} bits that {} can address",
                to.address,
                bar.end(),
                from.address
            ),
        )
    })
}
