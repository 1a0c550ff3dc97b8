//! Can the requester address the target at all?

use super::{Answer, Confidence, addressing};
use crate::boards;
use crate::code;
use crate::observed::Observed;
use crate::snapshot::Snapshot;
use crate::snapshot::pci::PciDevice;
use crate::snapshot::query::vendor;

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

/// A peer-to-peer fork maps the whole memory of both ends in their windows at start, the
/// requester's too (`kbusIsStaticBar1Supported_TU102`).
fn small_window(snapshot: &Snapshot, from: &PciDevice, to: &PciDevice) -> Option<Answer> {
    if !addressing::is_fork(snapshot) || snapshot.accelerator(from.address).is_some() {
        return None;
    }
    let forked = |device: &&PciDevice| {
        device.is_vendor(vendor::NVIDIA) && device.driver_name() == Some("nvidia")
    };
    [from, to].into_iter().filter(forked).find_map(|device| {
        let (memory, bar) = snapshot.peer_memory(device)?;
        (memory.is_gpu() && bar.size <= SMALL_WINDOW).then(|| {
            Answer::broken(
                Confidence::Probable,
                code::SMALL_BAR,
                format!(
                    "the window of {} is {} MiB: a peer-to-peer fork needs both GPUs' whole \
                     memory in their windows, and peer access is refused or hangs at start",
                    device.address,
                    bar.size >> 20
                ),
            )
        })
    })
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
    if let Some(answer) = small_window(snapshot, from, to) {
        return Some(answer);
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
