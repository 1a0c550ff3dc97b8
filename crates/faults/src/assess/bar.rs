//! The address map as the trouble: no address, too small, badly aligned.

use peerway_core::diagnose::assessment::Assessment;
use peerway_core::snapshot::pci::PciDevice;
use peerway_core::snapshot::query::vendor;

use super::{Assessed, Case, devices, rank};

/// The legacy window; a board with more memory than this needs a larger one for peer access.
const LEGACY: u64 = 256 << 20;
/// NVIDIA's device numbers from Ampere on, whose boards can resize their window and have far more
/// memory than the legacy one shows.
const RESIZABLE: u16 = 0x2200;

pub(super) fn check(case: &Case<'_>) -> Vec<Assessed> {
    [unassigned(case), alignment(case), too_small(case)].into_iter().flatten().collect()
}

fn unassigned(case: &Case<'_>) -> Option<Assessed> {
    // The driver refuses it, or the kernel found no room for a GPU's region.
    let refused = case.events("bar", &["invalid"]);
    let gpus = case.gpus();
    let no_room: Vec<_> = case
        .events("bar", &["no-space", "failed"])
        .into_iter()
        .filter(|event| event.device.is_some_and(|device| gpus.contains(&device.to_string())))
        // A region that found a place at the second try is no trouble.
        .filter(|event| {
            event.device.and_then(|device| case.snapshot.device(device)).is_none_or(|device| {
                device.bars.known().is_none_or(|bars| bars.iter().any(|bar| !bar.assigned))
            })
        })
        .collect();
    let listed: Vec<String> = case
        .snapshot
        .devices
        .iter()
        .filter(|device| {
            let bars = device.bars.known().map(Vec::as_slice).unwrap_or_default();
            let mut without =
                bars.iter().filter(|bar| bar.memory && !bar.assigned && bar.index < 6);
            // Only GPUs and a few accelerators have regions of this size.
            without.any(|bar| device.is_gpu() || bar.size >= LEGACY)
        })
        .map(|device| device.address.to_string())
        .collect();
    if refused.is_empty() && no_room.is_empty() && listed.is_empty() {
        return None;
    }
    let why = "firmware or kernel gave a region of the GPU no address: its driver cannot start it";
    Some(
        Assessed::new(Assessment::BarUnassigned, rank::BAR, why)
            .about(devices(&refused))
            .about(devices(&no_room))
            .about(listed),
    )
}

fn alignment(case: &Case<'_>) -> Option<Assessed> {
    let refused = case.events("nvidia", &["peer-alignment"]);
    if refused.is_empty() {
        return None;
    }
    let why = "the driver refuses a peer's region because of its alignment; the IOMMU has no part \
               in it, whatever the next line is called";
    Some(Assessed::new(Assessment::BarAlignment, rank::BAR + 1, why).about(devices(&refused)))
}

fn too_small(case: &Case<'_>) -> Option<Assessed> {
    let small: Vec<String> = case
        .snapshot
        .devices
        .iter()
        .filter(|device| is_small(device))
        .map(|device| device.address.to_string())
        .chain(
            case.hints()
                .into_iter()
                .flat_map(|hints| &hints.small_windows)
                .map(ToString::to_string),
        )
        .collect();
    let shown = &case.material.small_windows;
    if small.is_empty() && shown.is_empty() {
        return None;
    }
    let why = "the GPU's memory region is the legacy 256 MiB: peers cannot reach all of its memory";
    Some(
        Assessed::new(Assessment::BarTooSmall, rank::SMALL_BAR, why)
            .about(small)
            .about(shown.iter().flatten()),
    )
}

/// A resizable board whose largest region is the legacy one.
fn is_small(device: &PciDevice) -> bool {
    let resizable = device.ids.known().is_some_and(|ids| {
        ids.vendor == vendor::NVIDIA && (ids.device >= RESIZABLE || ids.device == 0)
    });
    let bars = device.bars.known();
    let wide = bars.into_iter().flatten().filter(|bar| bar.width == 64 && bar.assigned);
    let largest = wide.map(|bar| bar.size).max();
    device.is_gpu() && resizable && largest.is_some_and(|size| size > 0 && size <= LEGACY)
}
