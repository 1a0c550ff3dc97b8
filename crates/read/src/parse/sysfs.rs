//! Small formats of sysfs: `uevent`, `resource`, device paths, link speeds, `reserved_regions`.

use peerway_core::address::{BusAddress, PciAddress, VendorDevice};
use peerway_core::snapshot::iommu::Reserved;
use peerway_core::snapshot::pci::{Bar, Power, RootBus};

/// What `uevent` of a PCI function says (`drivers/pci/pci-driver.c`, `pci_uevent`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Uevent {
    /// `DRIVER`.
    pub driver: Option<String>,
    /// `PCI_CLASS`.
    pub class: Option<u32>,
    /// `PCI_ID`.
    pub ids: Option<VendorDevice>,
    /// `PCI_SUBSYS_ID`.
    pub subsystem: Option<VendorDevice>,
}

/// Reads `uevent`.
pub fn uevent(text: &str) -> Uevent {
    let mut seen = Uevent::default();
    for line in text.lines() {
        let Some((key, value)) = line.split_once('=') else { continue };
        match key {
            "DRIVER" => seen.driver = Some(value.to_owned()),
            "PCI_CLASS" => seen.class = u32::from_str_radix(value, 16).ok(),
            "PCI_ID" => seen.ids = value.to_ascii_lowercase().parse().ok(),
            "PCI_SUBSYS_ID" => seen.subsystem = value.to_ascii_lowercase().parse().ok(),
            _ => {}
        }
    }
    seen
}

/// `IORESOURCE_MEM` (`include/linux/ioport.h`).
const MEMORY: u64 = 0x200;
/// `IORESOURCE_IO`.
const PORTS: u64 = 0x100;
/// `IORESOURCE_PREFETCH`.
const PREFETCH: u64 = 0x2000;
/// `IORESOURCE_MEM_64`.
const WIDE: u64 = 0x10_0000;
/// `IORESOURCE_UNSET`: the kernel found no address for it.
const UNSET: u64 = 0x2000_0000;

/// Reads `resource`: the first seven lines, BAR 0 to 5 and the expansion ROM. Bridges' windows and
/// the BARs of virtual functions follow them and are not regions of this function.
///
/// # Errors
/// The first line that is not three hexadecimal numbers.
pub fn resource(text: &str) -> Result<Vec<Bar>, String> {
    let mut bars = Vec::new();
    for (index, line) in (0_u8..7).zip(text.lines()) {
        let mut words = line.split_ascii_whitespace();
        let mut number = || {
            words
                .next()
                .and_then(|word| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok())
                .ok_or_else(|| format!("line {} of resource is {line:?}", index + 1))
        };
        let (start, end, flags) = (number()?, number()?, number()?);
        if flags & (MEMORY | PORTS) == 0 || end < start {
            continue;
        }
        bars.push(Bar {
            index,
            start: BusAddress(start),
            size: (end - start).saturating_add(1),
            memory: flags & MEMORY != 0,
            prefetchable: flags & PREFETCH != 0,
            width: if flags & WIDE != 0 { 64 } else { 32 },
            assigned: flags & UNSET == 0 && start != 0,
        });
    }
    Ok(bars)
}

/// Buses of one PCI domain, and so the most levels of bridges.
const MOST_LEVELS: usize = 256;

/// Place of a function in the tree, from where its link in `/sys/bus/pci/devices` leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// Root bus.
    pub root: RootBus,
    /// Bridges above it, from the root down.
    pub ancestors: Vec<PciAddress>,
}

/// Reads `../../../devices/pci0000:00/0000:00:01.1/0000:01:00.0`; `None` if it has another shape.
pub fn place(target: &str, address: PciAddress) -> Option<Place> {
    let mut parts = target.split('/').skip_while(|part| !part.starts_with("pci"));
    // VMD and Hyper-V put further directories before the root bus: the last `pciDDDD:BB` counts.
    let mut root = root_bus(parts.next()?)?;
    let mut ancestors = Vec::new();
    for part in parts {
        if let Some(inner) = root_bus(part) {
            root = inner;
            ancestors.clear();
        } else if let Ok(step) = part.parse::<PciAddress>() {
            ancestors.push(step);
        }
    }
    // Whatever else a directory on the way is called, the last one is the function.
    let last = target.trim_end_matches('/').rsplit('/').next()?.parse() == Ok(address);
    let ends_there = last && ancestors.pop() == Some(address);
    // A tree has no more levels than buses, and nothing hangs below itself.
    let is_tree = ancestors.len() <= MOST_LEVELS && !ancestors.contains(&address);
    (ends_there && is_tree).then_some(Place { root, ancestors })
}

fn root_bus(part: &str) -> Option<RootBus> {
    let (domain, bus) = part.strip_prefix("pci")?.split_once(':')?;
    Some(RootBus {
        domain: u32::from_str_radix(domain, 16).ok()?,
        bus: u8::from_str_radix(bus, 16).ok()?,
    })
}

/// `power/runtime_status` (`drivers/base/power/sysfs.c`, `rtpm_status_str`).
pub fn power(word: &str) -> Option<Power> {
    Some(match word {
        "active" => Power::Active,
        "suspended" => Power::Suspended,
        "suspending" | "resuming" => Power::Changing,
        "unsupported" => Power::Unsupported,
        "error" => Power::Error,
        _ => return None,
    })
}

/// `32.0 GT/s PCIe` in units of 0.1 GT/s; `None` for `Unknown` and anything else.
pub fn link_speed(text: &str) -> Option<u32> {
    let number = text.split_ascii_whitespace().next()?;
    let (whole, tenth) = number.split_once('.').unwrap_or((number, "0"));
    let whole: u32 = whole.parse().ok()?;
    let tenth: u32 = tenth.get(..1)?.parse().ok()?;
    whole.checked_mul(10)?.checked_add(tenth)
}

/// A number of lanes; `None` for those that mean "no link" (0, 63, 255).
pub fn link_width(text: &str) -> Option<u32> {
    text.parse().ok().filter(|lanes| (1..=32).contains(lanes))
}

/// `reserved_regions`: start, end (inclusive), kind.
///
/// # Errors
/// The first line of another shape.
pub fn reserved_regions(text: &str) -> Result<Vec<Reserved>, String> {
    text.lines()
        .map(|line| {
            reserved_region(line).ok_or_else(|| format!("a line of reserved_regions is {line:?}"))
        })
        .collect()
}

fn reserved_region(line: &str) -> Option<Reserved> {
    let mut words = line.split_ascii_whitespace();
    let (start, end, kind) = (words.next()?, words.next()?, words.next()?);
    let address =
        |word: &str| u64::from_str_radix(word.strip_prefix("0x")?, 16).ok().map(BusAddress);
    Some(Reserved { start: address(start)?, end: address(end)?, kind: kind.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn regions_of_a_large_gpu() {
        let text = "0x00000000f0000000 0x00000000f3ffffff 0x0000000000040200\n\
                    0x0000000000000000 0x0000000000000000 0x0000000000000000\n\
                    0x0000020000000000 0x0000021fffffffff 0x000000000014220c\n\
                    0x0000000000000000 0x0000000000000000 0x0000000000000000\n\
                    0x0000000000000000 0x0000000001ffffff 0x000000002014220c\n\
                    0x000000000000e000 0x000000000000e07f 0x0000000000040101\n\
                    0x0000000000000000 0x0000000000000000 0x0000000000000000\n\
                    0x0000000010000000 0x0000000010ffffff 0x000000000014220c\n";
        let bars = resource(text).unwrap();
        let seen: Vec<String> = bars
            .iter()
            .map(|bar| {
                format!(
                    "{} {} {} {}{} {} {}",
                    bar.index,
                    bar.start,
                    bar.size,
                    if bar.memory { "mem" } else { "io" },
                    if bar.prefetchable { " pref" } else { "" },
                    bar.width,
                    bar.assigned
                )
            })
            .collect();
        let expected = [
            "0 0xf0000000 67108864 mem 32 true",
            "2 0x20000000000 137438953472 mem pref 64 true",
            "4 0x0 33554432 mem pref 64 false",
            "5 0xe000 128 io 32 true",
        ];
        assert_eq!(seen, expected);
        assert_eq!(resource("0x0 junk\n").unwrap_err(), "line 1 of resource is \"0x0 junk\"");
        assert_eq!(resource("").unwrap(), Vec::new());
    }

    #[track_caller]
    fn check_place(target: &str, address: &str, expected: &str) {
        let seen = place(target, address.parse().unwrap())
            .map_or("none".to_owned(), |place| format!("{} {:?}", place.root, place.ancestors));
        assert_eq!(seen, expected);
    }

    #[test]
    fn places_in_the_tree() {
        check_place(
            "../../../devices/pci0000:00/0000:00:01.1/0000:01:00.0",
            "0000:01:00.0",
            "pci0000:00 [0000:00:01.1]",
        );
        check_place("../../../devices/pci0000:10/0000:10:00.0", "10:00.0", "pci0000:10 []");
        check_place(
            "../../../devices/pci0000:00/0000:00:0e.0/pci10000:e0/10000:e0:06.0/10000:e1:00.0",
            "10000:e1:00.0",
            "pci10000:e0 [10000:e0:06.0]",
        );
        check_place("../../../devices/pci0000:00/0000:00:01.1", "0000:02:00.0", "none");
        check_place("", "0000:02:00.0", "none");
        check_place("pci0000:00/0000:02:00.0/0000:02:00.0", "0000:02:00.0", "none");
        check_place(
            &format!("pci0000:00/{}0000:02:00.0", "0000:00:01.0/".repeat(257)),
            "0000:02:00.0",
            "none",
        );
        check_place("../../../devices/LNXSYSTM:00/x", "0000:02:00.0", "none");
    }

    #[test]
    fn links() {
        assert_eq!(link_speed("32.0 GT/s PCIe"), Some(320));
        assert_eq!(link_speed("2.5 GT/s PCIe"), Some(25));
        assert_eq!(link_speed("Unknown"), None);
        assert_eq!(link_speed("8."), None);
        assert_eq!(link_width("16"), Some(16));
        assert_eq!(link_width("63"), None);
    }

    #[test]
    fn uevents() {
        let text = "DRIVER=nvidia\nPCI_CLASS=30200\nPCI_ID=10DE:2BB5\nPCI_SUBSYS_ID=10DE:204E\n\
                    PCI_SLOT_NAME=0000:01:00.0\nMODALIAS=pci:v000010DEd00002BB5\n";
        let seen = uevent(text);
        assert_eq!(seen.driver.as_deref(), Some("nvidia"));
        assert_eq!(seen.class, Some(0x03_0200));
        assert_eq!(seen.ids.unwrap().to_string(), "10de:2bb5");
        assert_eq!(seen.subsystem.unwrap().to_string(), "10de:204e");
        assert_eq!(uevent("\u{fffd}=\n==\nPCI_ID=zz"), Uevent::default());
    }

    #[test]
    fn reserved() {
        let text = "0x00000000fee00000 0x00000000feefffff msi\n\
                    0x000000fd00000000 0x000000ffffffffff reserved";
        let regions = reserved_regions(text).unwrap();
        assert_eq!(regions.len(), 2);
        assert_eq!(regions[1].start, BusAddress(0xfd_0000_0000));
        assert_eq!(regions[0].kind, "msi");
        let error = reserved_regions("0x1 0x2").unwrap_err();
        assert_eq!(error, "a line of reserved_regions is \"0x1 0x2\"");
    }

    #[test]
    fn a_place_ends_with_the_device() {
        let address: PciAddress = "0000:01:00.0".parse().unwrap();
        for (target, is) in [
            ("../../../devices/pci0000:00/0000:00:01.1/0000:01:00.0", true),
            ("../../../devices/pci0000:00/0000:01:00.0/other", false),
            ("../../../devices/pci0000:00/0000:01:00.0/0000:00:00\u{a1}0", false),
        ] {
            assert_eq!(place(target, address).is_some(), is, "{target}");
        }
    }

    proptest! {
        #[test]
        fn regions_never_end_before_they_start(text in "(0x[0-9a-f]{0,17} ?){0,9}\n?.{0,9}") {
            if let Ok(bars) = resource(&text) {
                for bar in bars {
                    prop_assert!(bar.end() >= bar.start.0);
                }
            }
        }

        #[test]
        fn a_place_never_contains_the_device_itself(target in "(/|pci0000:00|0000:0[0-2]:0[0-2].0|\\.\\.){0,12}") {
            let address: PciAddress = "0000:01:00.0".parse().unwrap();
            if let Some(place) = place(&target, address) {
                prop_assert!(target.trim_end_matches('/').ends_with("0000:01:00.0"));
                prop_assert!(place.ancestors.len() < 12 && !place.ancestors.contains(&address));
            }
        }
    }
}
