//! Files of NVIDIA's kernel driver.
#![no_main]

use libfuzzer_sys::fuzz_target;
use peerway_core::address::PciAddress;
use peerway_read::parse::nvidia;

fuzz_target!(|text: &str| {
    if let Some(version) = nvidia::version(text) {
        assert!(version.line.contains(&version.version));
    }
    assert!(!nvidia::params(text).contains_key(""));
    let address = PciAddress::from_requester_id(0, 0x100);
    assert_eq!(nvidia::information(address, text).address, address);
});
