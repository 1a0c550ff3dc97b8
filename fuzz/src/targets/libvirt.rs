//! Domains of libvirt.

use peerway_read::parse::libvirt;

/// Runs the target.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let domain = libvirt::domain(text);
    assert!(domain.devices.windows(2).all(|two| two[0] < two[1]));
}
