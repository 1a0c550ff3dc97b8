//! Domains of libvirt.
#![no_main]

use libfuzzer_sys::fuzz_target;
use peerway_read::parse::libvirt;

fuzz_target!(|text: &str| {
    let domain = libvirt::domain(text);
    assert!(domain.devices.windows(2).all(|two| two[0] < two[1]));
});
