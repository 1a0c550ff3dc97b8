//! Proxmox: configurations of guests, mappings, reservations, QEMU's arguments.

use peerway_read::parse::proxmox;

/// Runs the target.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let vm = proxmox::vm(text);
    assert!(vm.passthrough.len() <= text.lines().count());
    proxmox::container(text);
    proxmox::mappings(text);
    for one in proxmox::reservations(text) {
        assert!(one.device.covers(one.device.address));
    }
    let devices = proxmox::qemu_devices(text.split('\0'));
    assert!(devices.windows(2).all(|two| two[0] < two[1]));
    proxmox::is_confidential(text.split('\0'));
}
