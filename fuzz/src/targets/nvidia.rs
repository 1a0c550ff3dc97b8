//! Files of NVIDIA's kernel driver.

use peerway_core::address::PciAddress;
use peerway_read::parse::nvidia;

/// Runs the target.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Some(version) = nvidia::version(text) {
        assert!(version.line.contains(&version.version));
    }
    assert!(!nvidia::params(text).contains_key(""));
    let address = PciAddress::from_requester_id(0, 0x100);
    assert_eq!(nvidia::information(address, text).address, address);
}
