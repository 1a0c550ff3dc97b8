//! Small formats of sysfs.

use peerway_core::address::PciAddress;
use peerway_read::parse::sysfs;

/// Runs the target.
pub fn run(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    sysfs::uevent(text);
    for bar in sysfs::resource(text).into_iter().flatten() {
        assert!(bar.end() >= bar.start.0 && bar.index < 7);
    }
    let address = PciAddress::from_requester_id(0, 0x100);
    if let Some(place) = sysfs::place(text, address) {
        assert!(!place.ancestors.contains(&address));
    }
    sysfs::power(text);
    sysfs::link_speed(text);
    assert!(sysfs::link_width(text).is_none_or(|lanes| (1..=32).contains(&lanes)));
    let regions = sysfs::reserved_regions(text).unwrap_or_default();
    assert!(regions.len() <= text.lines().count());
}
