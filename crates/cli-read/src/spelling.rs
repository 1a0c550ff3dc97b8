//! Devices in every spelling: address, GPU UUID, or index in the order of addresses.

use peerway_core::address::PciAddress;
use peerway_core::snapshot::Snapshot;
use peerway_core::snapshot::pci::PciDevice;

use crate::error::CliError;

/// Finds a device.
pub fn device<'a>(snapshot: &'a Snapshot, spelling: &str) -> Result<&'a PciDevice, CliError> {
    let gpus = snapshot.accelerated();
    let found = if let Ok(address) = spelling.parse::<PciAddress>() {
        snapshot.device(address)
    } else if let Ok(index) = spelling.parse::<usize>() {
        gpus.get(index).copied()
    } else {
        by_uuid(snapshot, spelling)
    };
    found.ok_or_else(|| CliError::NoSuchDevice {
        spelling: spelling.to_owned(),
        hint: if gpus.is_empty() {
            "this host has no GPUs; --accelerator declares other devices".to_owned()
        } else {
            let list: Vec<String> = gpus
                .iter()
                .enumerate()
                .map(|(index, gpu)| format!("{index} = {}", gpu.address))
                .collect();
            format!("there are {}; a GPU UUID does too", list.join(", "))
        },
    })
}

/// A UUID, whole or its first part, if that names exactly one.
fn by_uuid<'a>(snapshot: &'a Snapshot, spelling: &str) -> Option<&'a PciDevice> {
    let wanted = spelling.strip_prefix("GPU-").unwrap_or(spelling).to_ascii_lowercase();
    if wanted.len() < 4 {
        return None;
    }
    let mut matching = snapshot.nvidia.gpus.known()?.iter().filter(|gpu| {
        gpu.uuid.known().is_some_and(|uuid| {
            uuid.strip_prefix("GPU-").unwrap_or(uuid).to_ascii_lowercase().starts_with(&wanted)
        })
    });
    match (matching.next(), matching.next()) {
        (Some(only), None) => snapshot.device(only.address),
        _ => None,
    }
}
