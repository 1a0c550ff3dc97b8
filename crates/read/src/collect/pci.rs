//! PCI functions from `/sys/bus/pci/devices`.
//!
//! Of every function the identity, the group and the regions are read: enough to say what an
//! address belongs to. The bridges above the devices asked about are read for access control and
//! links, the devices themselves in full. Power state comes first: a sleeping device's
//! configuration space and link are left alone, since reading them would wake the device
//! (`drivers/pci/pci-sysfs.c`, `pci_read_config`; from 6.18 on `current_link_width_show` and its
//! like too).

use std::collections::{BTreeMap, BTreeSet};

use peerway_core::address::{PciAddress, VendorDevice};
use peerway_core::observed::Observed;
use peerway_core::snapshot::Gap;
use peerway_core::snapshot::pci::{Bar, ConfigFacts, LinkState, PciDevice, Power};

use super::spread::spread;
use crate::error::{observe, shown};
use crate::parse::{config_space, sysfs};
use crate::root::{Directory, Root, exists};

/// Where the kernel lists PCI functions.
pub const DEVICES: &str = "/sys/bus/pci/devices";

/// Why a sleeping device's configuration space was not read.
pub const ASLEEP: &str = "asleep";

/// Which devices are read deeply.
#[derive(Clone, Debug, Default)]
pub struct Scope {
    /// Network controllers too.
    pub nics: bool,
    /// NVMe controllers too.
    pub nvme: bool,
    /// Read the configuration space of sleeping devices, which wakes them.
    pub wake: bool,
    /// Further devices by address.
    pub also: BTreeSet<PciAddress>,
}

impl Scope {
    fn wants(&self, device: &PciDevice) -> bool {
        device.is_gpu()
            || self.nics && device.is_nic()
            || self.nvme && device.is_nvme()
            || self.also.contains(&device.address)
    }
}

/// Functions of one host: several times what the largest has, and a bound for hostile trees.
const MOST_DEVICES: usize = 1 << 16;

/// Attributes of sysfs are no longer.
const ATTRIBUTE: usize = 4096;

/// How much is read of one function beyond what is read of every one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Depth {
    /// A bridge on the way: access control, link.
    Passed,
    /// A device asked about: everything.
    Asked,
}

/// Reads all functions, ordered by address.
pub fn collect(root: &Root, scope: &Scope, gaps: &mut Vec<Gap>) -> Vec<PciDevice> {
    let listed = root.list(DEVICES).and_then(|names| Ok((names, root.directory(DEVICES)?)));
    let (names, listing) = match listed {
        Ok(listed) => listed,
        Err(error) => {
            gaps.push(Gap { source: DEVICES.to_owned(), why: error.reason.to_string() });
            return Vec::new();
        }
    };
    let functions = functions(names, gaps);
    let seen = spread(root, &functions, |(address, name)| read_shallow(&listing, *address, name));
    let mut found = Vec::with_capacity(seen.len());
    for (seen, (_, name)) in seen.into_iter().zip(&functions) {
        match seen {
            Ok(device) => found.push(device),
            Err(why) => gaps.push(Gap { source: format!("{DEVICES}/{name}"), why }),
        }
    }
    found.sort_by_key(|(device, _)| device.address);
    found.dedup_by_key(|(device, _)| device.address);
    let (mut devices, targets): (Vec<PciDevice>, Vec<String>) = found.into_iter().unzip();
    deepen(root, scope, &mut devices, &targets, gaps);
    devices
}

/// The names that are addresses. What is none is one gap, however many there are.
fn functions(names: Vec<String>, gaps: &mut Vec<Gap>) -> Vec<(PciAddress, String)> {
    let mut gap = |why: String| gaps.push(Gap { source: DEVICES.to_owned(), why });
    let all = names.len();
    let mut strange = None;
    let mut functions: Vec<(PciAddress, String)> = Vec::with_capacity(all.min(MOST_DEVICES));
    for name in names {
        match name.parse() {
            Ok(address) if functions.len() < MOST_DEVICES => functions.push((address, name)),
            Ok(_) => {
                gap(format!("only the first {MOST_DEVICES} of {all} functions were read"));
                break;
            }
            Err(_) => {
                let (count, _) = strange.get_or_insert((0_usize, name));
                *count += 1;
            }
        }
    }
    if let Some((count, name)) = strange {
        gap(format!(
            "{count} names in it are no PCI addresses, the first of them {}",
            shown(&name)
        ));
    }
    functions
}

/// Reads what every function is asked for; gives where its link leads with it.
fn read_shallow(
    listing: &Directory<'_>,
    address: PciAddress,
    name: &str,
) -> Result<(PciDevice, String), String> {
    let target = match listing.link_text(name) {
        Observed::Known(target) => target,
        Observed::Absent => return Err(VANISHED.to_owned()),
        Observed::Unreadable(why) => return Err(why),
    };
    let place = sysfs::place(&target, address).ok_or_else(|| {
        format!("it leads to {}, which is no place in the PCI tree", shown(&target))
    })?;
    let directory = listing
        .directory_behind(name, &target)
        .map_err(|error| format!("{VANISHED}: {}", error.reason))?;
    let identity = identity(&directory);
    let group = number(directory.link_name("iommu_group"));
    let bars = bars(&directory);
    // A device that goes away in between leaves its files missing, which must not read as
    // "no driver" or "no group".
    let whole = identity.in_one && !group.is_absent() && bars.known().is_some();
    if !whole && !exists(listing, name) {
        return Err(VANISHED.to_owned());
    }
    let device = PciDevice {
        address,
        ids: identity.ids,
        subsystem: identity.subsystem,
        class: identity.class,
        ancestors: place.ancestors,
        root: place.root,
        driver: identity.driver,
        driver_override: Observed::default(),
        group,
        iommu_unit: Observed::default(),
        numa_node: Observed::default(),
        bars,
        power: Observed::default(),
        config: Observed::default(),
        link: Observed::default(),
        dma_mask_bits: Observed::default(),
        removable: Observed::default(),
        reset_methods: Observed::default(),
        vfio_device: Observed::default(),
    };
    Ok((device, target))
}

/// Why a function is left out that was there at first.
const VANISHED: &str = "it vanished while it was read";

struct Identity {
    ids: Observed<VendorDevice>,
    subsystem: Observed<VendorDevice>,
    class: Observed<u32>,
    driver: Observed<String>,
    /// All from one file, so that they belong together.
    in_one: bool,
}

/// From `uevent`, one file for four facts; from the single files where it is missing.
fn identity(directory: &Directory<'_>) -> Identity {
    if let Ok(text) = directory.text_within("uevent", ATTRIBUTE) {
        let seen = sysfs::uevent(&text);
        if let (Some(ids), Some(class)) = (seen.ids, seen.class) {
            return Identity {
                ids: Observed::Known(ids),
                subsystem: seen.subsystem.map_or(Observed::Absent, Observed::Known),
                class: Observed::Known(class),
                driver: seen.driver.map_or(Observed::Absent, Observed::Known).and_then(name),
                in_one: true,
            };
        }
    }
    Identity {
        ids: pair(hex(directory, "vendor"), hex(directory, "device")),
        subsystem: pair(hex(directory, "subsystem_vendor"), hex(directory, "subsystem_device")),
        class: hex(directory, "class"),
        driver: directory.link_name("driver").and_then(name),
        in_one: false,
    }
}

/// A name as the kernel gives it; longer ones do not exist (`MODULE_NAME_LEN`), and a hostile tree
/// must not fill the memory with them.
pub(super) fn name(text: String) -> Observed<String> {
    const LONGEST: usize = 255;
    if text.len() <= LONGEST {
        Observed::Known(text)
    } else {
        Observed::Unreadable(format!("a name of {} bytes", text.len()))
    }
}

/// A small attribute.
pub(super) fn attribute(directory: &Directory<'_>, name: &str) -> Observed<String> {
    observe(directory.text_within(name, ATTRIBUTE))
}

/// An attribute that every function has: without it the copy is partial, or the device is going.
fn always(directory: &Directory<'_>, name: &str) -> Observed<String> {
    match attribute(directory, name) {
        Observed::Absent => Observed::Unreadable(format!("there is no {name} for it")),
        other => other,
    }
}

fn pair(vendor: Observed<u32>, device: Observed<u32>) -> Observed<VendorDevice> {
    vendor.and_then(|vendor| {
        device.and_then(|device| match (u16::try_from(vendor), u16::try_from(device)) {
            (Ok(vendor), Ok(device)) => Observed::Known(VendorDevice { vendor, device }),
            _ => Observed::Unreadable("a number above ffff".to_owned()),
        })
    })
}

fn hex(directory: &Directory<'_>, name: &str) -> Observed<u32> {
    attribute(directory, name).and_then(|text| {
        let digits = text.strip_prefix("0x").unwrap_or(&text);
        match u32::from_str_radix(digits, 16) {
            Ok(value) => Observed::Known(value),
            Err(_) => Observed::Unreadable(format!("{} is no hexadecimal number", shown(&text))),
        }
    })
}

fn number(text: Observed<String>) -> Observed<u32> {
    text.and_then(|text| match text.parse() {
        Ok(value) => Observed::Known(value),
        Err(_) => Observed::Unreadable(format!("{} is no number", shown(&text))),
    })
}

/// -1 means that the kernel knows none.
fn numa_node(directory: &Directory<'_>) -> Observed<u32> {
    match attribute(directory, "numa_node") {
        Observed::Known(text) if text == "-1" => Observed::Absent,
        text => number(text),
    }
}

fn bars(directory: &Directory<'_>) -> Observed<Vec<Bar>> {
    always(directory, "resource").and_then(|text| match sysfs::resource(&text) {
        Ok(bars) => Observed::Known(bars),
        Err(why) => Observed::Unreadable(why),
    })
}

fn power(directory: &Directory<'_>) -> Observed<Power> {
    attribute(directory, "power/runtime_status").and_then(|word| match sysfs::power(&word) {
        Some(power) => Observed::Known(power),
        None => Observed::Unreadable(format!("{} is no power state", shown(&word))),
    })
}

/// Reads more of the devices asked about and of the bridges above them.
fn deepen(
    root: &Root,
    scope: &Scope,
    devices: &mut [PciDevice],
    targets: &[String],
    gaps: &mut Vec<Gap>,
) {
    let mut depths: BTreeMap<PciAddress, Depth> = BTreeMap::new();
    for device in devices.iter().filter(|device| scope.wants(device)) {
        depths.insert(device.address, Depth::Asked);
        for bridge in &device.ancestors {
            depths.entry(*bridge).or_insert(Depth::Passed);
        }
    }
    let places: Vec<(usize, PciAddress, Depth)> = devices
        .iter()
        .enumerate()
        .filter_map(|(at, device)| Some((at, device.address, *depths.get(&device.address)?)))
        .collect();
    let seen = spread(root, &places, |(at, address, depth)| {
        let mut device = devices.get(*at)?.clone();
        let target = targets.get(*at)?;
        let path = format!("{DEVICES}/{address}");
        match root.directory_behind(&path, target) {
            Ok(directory) => {
                read_deep(&directory, *depth, scope.wake, &mut device);
                Some((device, None))
            }
            Err(error) => {
                let why = error.reason.to_string();
                device.config = Observed::Unreadable(why.clone());
                Some((device, Some(Gap { source: path, why })))
            }
        }
    });
    for ((at, _, _), seen) in places.iter().zip(seen) {
        let (Some(place), Some((device, gap))) = (devices.get_mut(*at), seen) else { continue };
        *place = device;
        gaps.extend(gap);
    }
}

fn read_deep(directory: &Directory<'_>, depth: Depth, wake: bool, device: &mut PciDevice) {
    device.power = power(directory);
    device.removable = attribute(directory, "removable").and_then(name);
    let left_alone = left_alone(&device.power).filter(|_| !wake);
    device.link = match &left_alone {
        Some(why) => Observed::Unreadable(why.clone()),
        None => link(directory),
    };
    device.config = match left_alone {
        Some(why) => Observed::Unreadable(why),
        None => config(directory),
    };
    if depth == Depth::Passed {
        return;
    }
    device.numa_node = numa_node(directory);
    device.driver_override = match attribute(directory, "driver_override") {
        // The kernel prints the C library's spelling of a null pointer.
        Observed::Known(text) if text == "(null)" || text.is_empty() => Observed::Absent,
        other => other.and_then(name),
    };
    device.iommu_unit = directory.link_name("iommu").and_then(name);
    device.dma_mask_bits = number(attribute(directory, "dma_mask_bits"));
    device.reset_methods = attribute(directory, "reset_method")
        .and_then(name)
        .map(|text| text.split_ascii_whitespace().map(str::to_owned).collect());
}

/// Why what could wake a device is not read.
fn left_alone(power: &Observed<Power>) -> Option<String> {
    match power {
        Observed::Known(Power::Suspended | Power::Changing) => Some(ASLEEP.to_owned()),
        Observed::Unreadable(why) => Some(format!("left alone: power state unknown ({why})")),
        Observed::Known(_) | Observed::Absent => None,
    }
}

fn link(directory: &Directory<'_>) -> Observed<LinkState> {
    let read = |name: &str, parse: fn(&str) -> Option<u32>| {
        attribute(directory, name).and_then(|text| match parse(&text) {
            Some(value) => Observed::Known(value),
            None => Observed::Unreadable(format!("{name} is {}", shown(&text))),
        })
    };
    read("current_link_speed", sysfs::link_speed).and_then(|speed| {
        read("current_link_width", sysfs::link_width).and_then(|width| {
            read("max_link_speed", sysfs::link_speed).and_then(|max_speed| {
                read("max_link_width", sysfs::link_width).map(|max_width| LinkState {
                    speed,
                    width,
                    max_speed,
                    max_width,
                })
            })
        })
    })
}

fn config(directory: &Directory<'_>) -> Observed<ConfigFacts> {
    let part = match directory.open_part("config") {
        Ok(part) => part,
        // Every function has configuration space: without the file nobody could look.
        Err(error) if error.is_absent() => {
            return Observed::Unreadable("there is no config for it".to_owned());
        }
        Err(error) => return error.observed(),
    };
    let mut read = |offset: u16, length: usize| {
        part.read_at(u64::from(offset), length).map_err(|error| error.reason.to_string())
    };
    match config_space::decode(&mut read) {
        Ok(facts) => Observed::Known(facts),
        Err(why) => Observed::Unreadable(why),
    }
}

/// `vfio-dev/vfioN` of a device that VFIO holds.
pub fn vfio_device(root: &Root, address: PciAddress) -> Observed<String> {
    observe(root.list(&format!("{DEVICES}/{address}/vfio-dev"))).and_then(|names| {
        match names.into_iter().find(|name| name.starts_with("vfio")) {
            Some(name) => Observed::Known(name),
            None => Observed::Absent,
        }
    })
}
