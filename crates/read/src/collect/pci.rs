//! PCI functions from `/sys/bus/pci/devices`.
//!
//! Of every function the identity, the group and the regions are read: enough to say what an
//! address belongs to. The bridges above the devices asked about are read for access control and
//! links, the devices themselves in full. Power state comes first: a sleeping device's
//! configuration space and link are left alone, since reading them would wake the device
//! (`drivers/pci/pci-sysfs.c`, `pci_read_config`; from 6.18 on `current_link_width_show` and its
//! like too).

mod walk;

use std::collections::BTreeSet;

use peerway_core::address::{PciAddress, VendorDevice};
use peerway_core::observed::Observed;
use peerway_core::snapshot::Gap;
use peerway_core::snapshot::pci::{Bar, ConfigFacts, LinkState, PciDevice, Power, RootBus};

use crate::error::{observe, shown};
use crate::parse::config_space::{self, Decoded};
use crate::parse::sysfs;
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
    walk::read(root, scope, &listing, functions, gaps)
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

/// Reads what every function is asked for; its place in the tree is the caller's.
fn read_shallow(
    listing: &Directory<'_>,
    directory: &Directory<'_>,
    address: PciAddress,
    name: &str,
) -> Result<PciDevice, String> {
    let identity = identity(directory);
    let group = number(directory.link_name("iommu_group"));
    let bars = bars(directory);
    // A device that goes away in between leaves its files missing, which must not read as
    // "no driver" or "no group".
    let whole = identity.in_one && !group.is_absent() && bars.known().is_some();
    if !whole && !exists(listing, name) {
        return Err(VANISHED.to_owned());
    }
    Ok(PciDevice {
        address,
        ids: identity.ids,
        subsystem: identity.subsystem,
        class: identity.class,
        ancestors: Vec::new(),
        root: RootBus::default(),
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
    })
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

/// What is read of a bridge on the way, and of a device asked about.
struct More {
    power: Observed<Power>,
    removable: Observed<String>,
    config: Observed<ConfigFacts>,
    link: Observed<LinkState>,
    asked: Option<Asked>,
}

/// What is read of a device asked about only.
struct Asked {
    numa_node: Observed<u32>,
    driver_override: Observed<String>,
    iommu_unit: Observed<String>,
    dma_mask_bits: Observed<u32>,
    reset_methods: Observed<Vec<String>>,
}

impl More {
    fn read(directory: &Directory<'_>, depth: Depth, wake: bool) -> Self {
        let power = power(directory);
        let removable = attribute(directory, "removable").and_then(name);
        let (config, link) = match left_alone(&power).filter(|_| !wake) {
            Some(why) => (Observed::Unreadable(why.clone()), Observed::Unreadable(why)),
            None => registers(directory),
        };
        let asked = (depth == Depth::Asked).then(|| Asked::read(directory));
        Self { power, removable, config, link, asked }
    }

    fn put(self, device: &mut PciDevice) {
        device.power = self.power;
        device.removable = self.removable;
        device.config = self.config;
        device.link = self.link;
        if let Some(asked) = self.asked {
            device.numa_node = asked.numa_node;
            device.driver_override = asked.driver_override;
            device.iommu_unit = asked.iommu_unit;
            device.dma_mask_bits = asked.dma_mask_bits;
            device.reset_methods = asked.reset_methods;
        }
    }
}

impl Asked {
    fn read(directory: &Directory<'_>) -> Self {
        Self {
            numa_node: numa_node(directory),
            driver_override: match attribute(directory, "driver_override") {
                // The kernel prints the C library's spelling of a null pointer.
                Observed::Known(text) if text == "(null)" || text.is_empty() => Observed::Absent,
                other => other.and_then(name),
            },
            iommu_unit: directory.link_name("iommu").and_then(name),
            dma_mask_bits: number(attribute(directory, "dma_mask_bits")),
            reset_methods: attribute(directory, "reset_method")
                .and_then(name)
                .map(|text| text.split_ascii_whitespace().map(str::to_owned).collect()),
        }
    }
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

/// Configuration space, and the link: from the registers where they may be read, else from the
/// attributes that the kernel makes of them. A link with less than its lanes is read as
/// attributes in any case, since these are the evidence that a finding names.
fn registers(directory: &Directory<'_>) -> (Observed<ConfigFacts>, Observed<LinkState>) {
    let part = match directory.open_part("config") {
        Ok(part) => part,
        // Every function has configuration space: without the file nobody could look.
        Err(error) if error.is_absent() => {
            return (Observed::Unreadable("there is no config for it".to_owned()), link(directory));
        }
        Err(error) => return (error.observed(), link(directory)),
    };
    let mut read = |offset: u16, length: usize| {
        part.read_at(u64::from(offset), length).map_err(|error| error.reason.to_string())
    };
    match config_space::decode(&mut read) {
        Ok(Decoded { facts, link: Some(link) }) if link.width >= link.max_width => {
            (Observed::Known(facts), Observed::Known(link))
        }
        Ok(Decoded { facts, .. }) => (Observed::Known(facts), link(directory)),
        Err(why) => (Observed::Unreadable(why), link(directory)),
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
