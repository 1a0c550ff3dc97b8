//! What addresses look like where no memory regions are known: a guess, and called one.

use peerway_core::address::BusAddress;

/// Below this lie 32-bit windows, and the kernel's first choice for DMA addresses.
const FOUR_GIB: u64 = 1 << 32;
/// Below this lies the memory of most hosts with few GPUs, and no large region was seen.
const LARGE_REGIONS: u64 = 32 << 30;
/// Large regions begin at multiples of this: the smallest large one is 256 MiB.
const REGION: u64 = 256 << 20;
/// Peer access begins at a region's start: offsets seen reach some MiB.
const OFFSET: u64 = 16 << 20;
/// The page of a 32-bit region that NVIDIA's peers write to (seen on two hosts).
const DOORBELL: u64 = 0x13_9000;
/// Alignment of such a region, 16 MiB at least.
const SMALL_REGION: u64 = 16 << 20;
/// Above this no desktop or small server has memory, and few large ones.
const HIGH: u64 = 1 << 38;

/// Whether an address looks like one of a device's memory region, and not like memory or an
/// address that the kernel hands out for DMA.
pub fn is_like_region(address: BusAddress) -> bool {
    let BusAddress(address) = address;
    if is_doorbell(address) {
        return true;
    }
    if address < LARGE_REGIONS || is_handed_out(address) {
        return false;
    }
    address % REGION < OFFSET || address >= HIGH
}

/// Whether all of some addresses lie where no desktop or small server has memory; zero says
/// nothing.
pub fn are_high(addresses: &[BusAddress]) -> bool {
    let mut meant = addresses.iter().filter(|address| address.0 > 0xfff).peekable();
    meant.peek().is_some() && meant.all(|address| address.0 >= HIGH && !is_handed_out(address.0))
}

/// The page that peers write to in a region below 4 GiB.
fn is_doorbell(address: u64) -> bool {
    (REGION..FOUR_GIB).contains(&address) && address % SMALL_REGION / 4096 == DOORBELL / 4096
}

/// Whether peers' own pages below 4 GiB are among some addresses: nothing else has that offset.
pub fn holds_doorbell(addresses: &[BusAddress]) -> bool {
    addresses.iter().any(|address| is_doorbell(address.0))
}

/// The kernel hands addresses out from the top of what a device can reach downwards
/// (`drivers/iommu/iova.c`): just below a power of two.
const fn is_handed_out(address: u64) -> bool {
    let top = match address.checked_next_power_of_two() {
        Some(top) => top,
        None => u64::MAX,
    };
    top - address <= top / 64
}

/// Whether most of some addresses look like regions; zero says nothing.
pub fn are_like_regions(addresses: &[BusAddress]) -> bool {
    let meant = addresses.iter().filter(|address| address.0 > 0xfff);
    let (all, alike) = meant.fold((0_usize, 0_usize), |(all, alike), address| {
        (all + 1, alike + usize::from(is_like_region(*address)))
    });
    all > 0 && alike * 3 >= all * 2
}

/// Small steps through one or two pages: descriptors that a network or storage controller writes
/// back, one by one. GPUs move larger pieces.
pub fn is_ring(addresses: &[BusAddress]) -> bool {
    let mut sorted: Vec<u64> = addresses.iter().map(|address| address.0).collect();
    sorted.sort_unstable();
    sorted.dedup();
    sorted.len() >= 4
        && sorted.windows(2).all(|pair| match pair {
            [low, high] => high - low <= 256 && high - low >= 16,
            _ => true,
        })
}

/// One low page, again and again, and not page zero: a known quirk of some GPUs, which read it at
/// a high rate whatever their driver does.
pub fn is_low_page(addresses: &[BusAddress]) -> bool {
    const LOW: u64 = 1 << 20;
    !addresses.is_empty()
        && addresses.iter().all(|address| address.0 > 0xfff && address.0 < LOW)
        && addresses
            .iter()
            .all(|address| address.0 >> 12 == addresses.first().map_or(0, |first| first.0 >> 12))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(address: u64, expected: bool) {
        assert_eq!(is_like_region(BusAddress(address)), expected, "{address:#x}");
    }

    #[test]
    fn regions_memory_and_handed_out_addresses() {
        // Apertures, at their start and deep inside.
        check(0x240_0000_0000, true);
        check(0x340_0000_1000, true);
        check(0x28_0000_9000, true);
        check(0x60_1234_5000, true);
        // A multiple of 256 MiB where memory is.
        check(0x4_0000_0000, false);
        // The small region's page, below 4 GiB.
        check(0xee13_9000, true);
        check(0xee13_8000, false);
        // Memory.
        check(0x4_d720_1180, false);
        check(0x3_2de0_0040, false);
        check(0x3700_1000, false);
        check(0x1000, false);
        check(0, false);
        // Handed out for DMA, for masks of 32, 39 and 47 bits.
        check(0xfff5_3000, false);
        check(0x7f_ffff_e000, false);
        check(0x7fff_ffff_e000, false);
    }

    #[test]
    fn most_of_the_addresses_decide() {
        let all = |list: &[u64]| {
            are_like_regions(&list.iter().map(|one| BusAddress(*one)).collect::<Vec<_>>())
        };
        assert!(all(&[0, 0x240_0000_0000, 0x340_0000_1000]));
        assert!(!all(&[0x4_da00_0000, 0x4_d9c0_0000, 0x240_0000_0000]));
        assert!(!all(&[0]));
    }

    #[test]
    fn rings_and_low_pages() {
        let list = |list: &[u64]| list.iter().map(|one| BusAddress(*one)).collect::<Vec<_>>();
        assert!(is_ring(&list(&[0xff70_01b0, 0xff70_01c0, 0xff70_0200, 0xff70_0240])));
        assert!(!is_ring(&list(&[0x1b28_0000, 0x1b28_1000, 0x1b28_2000, 0x1b28_3000])));
        assert!(!is_ring(&list(&[0x10, 0x20])));
        assert!(is_low_page(&list(&[0x2000, 0x2040])));
        assert!(!is_low_page(&list(&[0])));
        assert!(!is_low_page(&list(&[0x2000, 0x3000])));
    }
}
