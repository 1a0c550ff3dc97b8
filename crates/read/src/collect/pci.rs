//! PCI functions from `/sys/bus/pci/devices`.
//!
//! Every function is read shallowly; configuration space, link and reset facts only of the
//! devices asked about and of the bridges above them. Power state comes first: a sleeping device's
//! configuration space is left alone, since reading it would wake the device
//! (`drivers/pci/pci-sysfs.c`, `pci_read_config`).

use std::collections::BTreeSet;

use peerway_core::address::PciAddress;
use peerway_core::observed::Observed;
use peerway_core::snapshot::Gap;
use peerway_core::snapshot::pci::{Bar, ConfigFacts, LinkState, PciDevice, Power};

use crate::error::observe;
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

/// Reads all functions, ordered by address.
pub fn collect(root: &Root, scope: &Scope, gaps: &mut Vec<Gap>) -> Vec<PciDevice> {
    let names = match root.list(DEVICES) {
        Ok(names) => names,
        Err(error) => {
            gaps.push(Gap { source: DEVICES.to_owned(), why: error.reason.to_string() });
            return Vec::new();
        }
    };
    let Ok(listing) = root.directory(DEVICES) else { return Vec::new() };
    let mut devices = Vec::with_capacity(names.len());
    for name in names {
        match read_shallow(root, &listing, &name) {
            Ok(device) => devices.push(device),
            Err(why) => gaps.push(Gap { source: format!("{DEVICES}/{name}"), why }),
        }
    }
    devices.sort_by_key(|device| device.address);
    devices.dedup_by_key(|device| device.address);
    deepen(root, scope, &mut devices, gaps);
    devices
}

/// Reads what every function is asked for.
fn read_shallow(root: &Root, listing: &Directory<'_>, name: &str) -> Result<PciDevice, String> {
    let address: PciAddress = name.parse().map_err(|_| "its name is no PCI address".to_owned())?;
    let target = match listing.link_text(name) {
        Observed::Known(target) => target,
        Observed::Absent => return Err("it vanished while it was read".to_owned()),
        Observed::Unreadable(why) => return Err(why),
    };
    let place = sysfs::place(&target, address)
        .ok_or_else(|| format!("it leads to {target:?}, which is no place in the PCI tree"))?;
    let directory = root
        .directory(&format!("{DEVICES}/{name}"))
        .map_err(|error| format!("it vanished while it was read: {}", error.reason))?;
    let identity = identity(&directory);
    let device = PciDevice {
        address,
        ids: identity.ids,
        subsystem: identity.subsystem,
        class: identity.class,
        ancestors: place.ancestors,
        root: place.root,
        driver: identity.driver,
        driver_override: Observed::default(),
        group: number(directory.link_name("iommu_group")),
        iommu_unit: Observed::default(),
        numa_node: numa_node(&directory),
        bars: bars(&directory),
        power: power(&directory),
        config: Observed::default(),
        link: Observed::default(),
        dma_mask_bits: Observed::default(),
        removable: Observed::default(),
        reset_methods: Observed::default(),
        vfio_device: Observed::default(),
    };
    // A device that goes away in between leaves its files missing, which must not read as
    // "no driver" or "no group".
    if exists(listing, name) { Ok(device) } else { Err("it vanished while it was read".to_owned()) }
}

struct Identity {
    ids: Observed<peerway_core::address::VendorDevice>,
    subsystem: Observed<peerway_core::address::VendorDevice>,
    class: Observed<u32>,
    driver: Observed<String>,
}

/// From `uevent`, one file for four facts; from the single files where it is missing.
fn identity(directory: &Directory<'_>) -> Identity {
    if let Ok(text) = directory.text("uevent") {
        let seen = sysfs::uevent(&text);
        if let (Some(ids), Some(class)) = (seen.ids, seen.class) {
            return Identity {
                ids: Observed::Known(ids),
                subsystem: seen.subsystem.map_or(Observed::Absent, Observed::Known),
                class: Observed::Known(class),
                driver: seen.driver.map_or(Observed::Absent, Observed::Known),
            };
        }
    }
    Identity {
        ids: pair(hex(directory, "vendor"), hex(directory, "device")),
        subsystem: pair(hex(directory, "subsystem_vendor"), hex(directory, "subsystem_device")),
        class: hex(directory, "class"),
        driver: directory.link_name("driver"),
    }
}

fn pair(
    vendor: Observed<u32>,
    device: Observed<u32>,
) -> Observed<peerway_core::address::VendorDevice> {
    vendor.and_then(|vendor| {
        device.and_then(|device| match (u16::try_from(vendor), u16::try_from(device)) {
            (Ok(vendor), Ok(device)) => {
                Observed::Known(peerway_core::address::VendorDevice { vendor, device })
            }
            _ => Observed::Unreadable("a number above ffff".to_owned()),
        })
    })
}

fn hex(directory: &Directory<'_>, name: &str) -> Observed<u32> {
    directory.observe(name).and_then(|text| {
        let digits = text.strip_prefix("0x").unwrap_or(&text);
        match u32::from_str_radix(digits, 16) {
            Ok(value) => Observed::Known(value),
            Err(_) => Observed::Unreadable(format!("{text:?} is no hexadecimal number")),
        }
    })
}

fn number(text: Observed<String>) -> Observed<u32> {
    text.and_then(|text| match text.parse() {
        Ok(value) => Observed::Known(value),
        Err(_) => Observed::Unreadable(format!("{text:?} is no number")),
    })
}

/// -1 means that the kernel knows none.
fn numa_node(directory: &Directory<'_>) -> Observed<u32> {
    match directory.observe("numa_node") {
        Observed::Known(text) if text == "-1" => Observed::Absent,
        text => number(text),
    }
}

fn bars(directory: &Directory<'_>) -> Observed<Vec<Bar>> {
    directory.observe("resource").and_then(|text| match sysfs::resource(&text) {
        Ok(bars) => Observed::Known(bars),
        Err(why) => Observed::Unreadable(why),
    })
}

fn power(directory: &Directory<'_>) -> Observed<Power> {
    directory.observe("power/runtime_status").and_then(|word| match sysfs::power(&word) {
        Some(power) => Observed::Known(power),
        None => Observed::Unreadable(format!("{word:?} is no power state")),
    })
}

/// Reads the devices asked about, and the bridges above them, in full.
fn deepen(root: &Root, scope: &Scope, devices: &mut [PciDevice], gaps: &mut Vec<Gap>) {
    let mut deep: BTreeSet<PciAddress> = BTreeSet::new();
    for device in devices.iter().filter(|device| scope.wants(device)) {
        deep.insert(device.address);
        deep.extend(&device.ancestors);
    }
    for device in devices.iter_mut().filter(|device| deep.contains(&device.address)) {
        let path = format!("{DEVICES}/{}", device.address);
        match root.directory(&path) {
            Ok(directory) => read_deep(&directory, scope.wake, device),
            Err(error) => {
                device.config = Observed::Unreadable(error.reason.to_string());
                gaps.push(Gap { source: path, why: error.reason.to_string() });
            }
        }
    }
}

fn read_deep(directory: &Directory<'_>, wake: bool, device: &mut PciDevice) {
    device.driver_override = match directory.observe("driver_override") {
        // The kernel prints the C library's spelling of a null pointer.
        Observed::Known(text) if text == "(null)" || text.is_empty() => Observed::Absent,
        other => other,
    };
    device.iommu_unit = directory.link_name("iommu");
    device.link = link(directory);
    device.dma_mask_bits = number(directory.observe("dma_mask_bits"));
    device.removable = directory.observe("removable");
    device.reset_methods = directory
        .observe("reset_method")
        .map(|text| text.split_ascii_whitespace().map(str::to_owned).collect());
    device.config = config(directory, wake, &device.power);
}

fn link(directory: &Directory<'_>) -> Observed<LinkState> {
    let read = |name: &str, parse: fn(&str) -> Option<u32>| {
        directory.observe(name).and_then(|text| match parse(&text) {
            Some(value) => Observed::Known(value),
            None => Observed::Unreadable(format!("{name} is {text:?}")),
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

fn config(directory: &Directory<'_>, wake: bool, power: &Observed<Power>) -> Observed<ConfigFacts> {
    match power {
        Observed::Known(Power::Suspended | Power::Changing) if !wake => {
            return Observed::Unreadable(ASLEEP.to_owned());
        }
        Observed::Unreadable(why) if !wake => {
            return Observed::Unreadable(format!("left alone: power state unknown ({why})"));
        }
        Observed::Known(_) | Observed::Absent | Observed::Unreadable(_) => {}
    }
    let part = match directory.open_part("config") {
        Ok(part) => part,
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
