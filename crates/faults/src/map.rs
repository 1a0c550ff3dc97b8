//! Which device's memory a bus address lies in.

use std::collections::BTreeSet;

use peerway_core::address::{BusAddress, PciAddress};
use peerway_core::snapshot::Snapshot;
use peerway_klog::Region;

/// First index past the BARs: then come the expansion ROM, virtual functions, bridge windows.
const BARS: u8 = 6;

/// One memory region of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// First address.
    pub start: u64,
    /// Last address.
    pub end: u64,
    /// Whose.
    pub device: PciAddress,
    /// Resource index.
    pub bar: u8,
    /// Whether the size is known; else the region is as large as its start allows.
    pub sized: bool,
}

/// The memory regions of a host, ordered and without overlaps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AddressMap {
    places: Vec<Place>,
    complete: bool,
}

impl AddressMap {
    /// Of a snapshot. `unsized_bars` are those whose size the snapshot only bounds.
    pub fn new(snapshot: &Snapshot, unsized_bars: &BTreeSet<(PciAddress, u8)>) -> Self {
        let mut places: Vec<Place> = Vec::new();
        for device in &snapshot.devices {
            for bar in device.bars.known().into_iter().flatten() {
                if !bar.memory || !bar.assigned || bar.index >= BARS || bar.size == 0 {
                    continue;
                }
                places.push(Place {
                    start: bar.start.0,
                    end: bar.end().saturating_sub(1),
                    device: device.address,
                    bar: bar.index,
                    sized: !unsized_bars.contains(&(device.address, bar.index)),
                });
            }
        }
        places.sort_by_key(|place| (place.start, place.end));
        // Two devices cannot have one address; where a snapshot says so, the first keeps it. What
        // is only bounded ends where the next begins.
        let mut apart: Vec<Place> = Vec::with_capacity(places.len());
        for place in places {
            match apart.last_mut() {
                Some(last)
                    if place.start <= last.end && !last.sized && place.start > last.start =>
                {
                    last.end = place.start - 1;
                    apart.push(place);
                }
                Some(last) if place.start <= last.end => {}
                _ => apart.push(place),
            }
        }
        let complete = !snapshot.devices.is_empty()
            && snapshot.devices.iter().all(|device| device.bars.known().is_some());
        Self { places: apart, complete }
    }

    /// Whether every device's regions are known, so that an address in none of them is in none.
    pub const fn is_complete(&self) -> bool {
        self.complete
    }

    /// The regions, for a scan that counts by them; a region's tag is its number in this map.
    pub fn regions(&self) -> Vec<Region> {
        (0..)
            .zip(&self.places)
            .map(|(tag, place)| Region { start: place.start, end: place.end, tag })
            .collect()
    }

    /// A region by its number.
    pub fn place(&self, tag: u32) -> Option<&Place> {
        self.places.get(usize::try_from(tag).ok()?)
    }

    /// A device's region by its index.
    pub fn of(&self, device: PciAddress, bar: u8) -> Option<&Place> {
        self.places.iter().find(|place| (place.device, place.bar) == (device, bar))
    }

    /// The region that an address lies in, and the offset into it.
    pub fn find(&self, address: BusAddress) -> Option<(&Place, u64)> {
        let after = self.places.partition_point(|place| place.start <= address.0);
        let place = self.places.get(after.checked_sub(1)?)?;
        (address.0 <= place.end).then(|| (place, address.0 - place.start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::partial::testing::{device, with_bar};

    fn snapshot() -> Snapshot {
        let devices = vec![
            with_bar(device("0000:01:00.0"), 1, 0x20_0000_0000, 1 << 30),
            with_bar(device("0000:02:00.0"), 1, 0x28_0000_0000, 1 << 35),
            with_bar(device("0000:03:00.0"), 0, 0x28_4000_0000, 1 << 20),
        ];
        Snapshot { devices, ..Snapshot::default() }
    }

    #[track_caller]
    fn check(map: &AddressMap, address: u64, expected: Option<(&str, u64)>) {
        let seen = map.find(BusAddress(address)).map(|(place, at)| (place.device.to_string(), at));
        assert_eq!(seen, expected.map(|(device, at)| (device.to_owned(), at)), "{address:#x}");
    }

    #[test]
    fn addresses_are_found_in_regions() {
        let map = AddressMap::new(&snapshot(), &BTreeSet::new());
        check(&map, 0x20_0000_0000, Some(("0000:01:00.0", 0)));
        check(&map, 0x20_3fff_ffff, Some(("0000:01:00.0", 0x3fff_ffff)));
        check(&map, 0x20_4000_0000, None);
        check(&map, 0x1f_ffff_ffff, None);
        check(&map, 0, None);
        // Overlapping regions cannot both be right: the first keeps the address.
        check(&map, 0x28_4000_0001, Some(("0000:02:00.0", 0x4000_0001)));
        assert_eq!(map.regions().len(), 2);
        assert!(map.is_complete());
    }

    #[test]
    fn a_bounded_region_ends_where_the_next_begins() {
        let bounded = BTreeSet::from([("0000:02:00.0".parse().unwrap(), 1)]);
        let map = AddressMap::new(&snapshot(), &bounded);
        check(&map, 0x28_3fff_ffff, Some(("0000:02:00.0", 0x3fff_ffff)));
        check(&map, 0x28_4000_0001, Some(("0000:03:00.0", 1)));
    }
}
