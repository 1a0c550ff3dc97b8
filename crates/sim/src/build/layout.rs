//! Places functions in the tree: addresses, sysfs paths, bus numbers, windows, groups.

use std::collections::{BTreeMap, BTreeSet};

use peerway_core::address::PciAddress;

use super::function::{Function, Port};
use super::model::{BarKind, Model};
use super::{BuildError, Bus, HostBuilder, Iommu, Item, RootBus, address};

const MIB: u64 = 1 << 20;
/// First address of 32-bit windows, and where the fixed ranges of the platform begin.
const LOW_WINDOW: (u64, u64) = (0x8000_0000, 0xfec0_0000);

/// Host bridge functions and IOMMU functions that root buses bring along.
const AMD_BRIDGE: Model = root_function(0x1022, 0x14a4, 0x06_0000);
const AMD_IOMMU: Model = root_function(0x1022, 0x149e, 0x08_0600);
const INTEL_BRIDGE: Model = root_function(0x8086, 0x09a2, 0x08_8000);
const ARM_BRIDGE: Model = root_function(0x1def, 0xe100, 0x06_0000);

const fn root_function(vendor: u16, device: u16, class: u32) -> Model {
    Model {
        name: "",
        vendor,
        device,
        subsystem: (vendor, device),
        class,
        bars: &[],
        link: None,
        dma_bits: 32,
        ats: false,
        pasid: false,
        resizable: None,
    }
}

/// One BAR with its place.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlacedBar {
    pub(super) index: u8,
    pub(super) start: u64,
    pub(super) size: u64,
    pub(super) kind: BarKind,
    pub(super) assigned: bool,
}

/// First and last address of what a bridge forwards.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Windows {
    pub(super) memory: Option<(u64, u64)>,
    pub(super) prefetch: Option<(u64, u64)>,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    Port(Port),
    Function(Box<Function>),
}

/// One function in its place.
#[derive(Clone, Debug)]
pub(super) struct Placed {
    pub(super) address: PciAddress,
    /// Directory in sysfs.
    pub(super) path: String,
    pub(super) kind: Kind,
    pub(super) node: i32,
    /// Index of the root bus, which is also the number of its IOMMU unit.
    pub(super) root: usize,
    pub(super) bars: Vec<PlacedBar>,
    pub(super) windows: Windows,
    pub(super) subordinate: u8,
    pub(super) group: Option<u32>,
    pub(super) multifunction: bool,
    /// Behind an external port.
    pub(super) external: bool,
}

impl Placed {
    pub(super) fn driver(&self) -> Option<&str> {
        match &self.kind {
            Kind::Port(_) => Some("pcieport"),
            Kind::Function(function) => function.driver,
        }
    }

    pub(super) fn is_iommu(&self) -> bool {
        matches!(&self.kind, Kind::Function(function) if function.model.class == 0x08_0600)
    }
}

/// All functions, ordered by address.
pub(super) fn place(host: &HostBuilder) -> Result<Vec<Placed>, BuildError> {
    let mut work = Work {
        host,
        placed: Vec::new(),
        low: LOW_WINDOW.0,
        high: host.first_aperture,
        io: 0x2000,
        children: BTreeMap::new(),
    };
    for (index, entry) in host.entries.iter().enumerate() {
        let key = (entry.bus.root, entry.bus.port);
        work.children.entry(key).or_default().push(index);
    }
    for (index, root) in host.roots.iter().enumerate() {
        let path = root_path(root);
        work.root_functions(index, root, &path);
        work.bus(Bus { root: index, port: None }, &path, false)?;
    }
    if work.low > LOW_WINDOW.1 {
        let what = "the 32-bit windows do not fit below 4 GiB".to_owned();
        return Err(BuildError::Shape { what });
    }
    let mut placed = work.placed;
    placed.sort_by_key(|one| one.address);
    mark_multifunction(&mut placed);
    number_groups(host, &mut placed);
    Ok(placed)
}

pub(super) fn root_path(root: &RootBus) -> String {
    format!("/sys/devices/pci{:04x}:{:02x}", root.domain, root.bus)
}

struct Work<'a> {
    host: &'a HostBuilder,
    placed: Vec<Placed>,
    /// Next free address below 4 GiB, above it, and among I/O ports.
    low: u64,
    high: u64,
    io: u64,
    /// Entries on each bus.
    children: BTreeMap<(usize, Option<usize>), Vec<usize>>,
}

impl Work<'_> {
    fn root_functions(&mut self, index: usize, root: &RootBus, path: &str) {
        if !self.host.host_bridges {
            return;
        }
        let mut bridge = match self.host.cpu.vendor {
            "AuthenticAMD" => AMD_BRIDGE,
            "ARM" => ARM_BRIDGE,
            _ => INTEL_BRIDGE,
        };
        if let Some((vendor, device)) = self.host.host_bridge {
            bridge = Model { vendor, device, subsystem: (vendor, device), ..bridge };
        }
        let mut functions = vec![Function::of(&bridge)];
        if matches!(self.host.iommu, Iommu::Amd { .. }) {
            functions.push(Function::of(&AMD_IOMMU).at(0, 2));
        }
        for function in functions {
            let address = address(root.domain, root.bus, function.device, function.function);
            self.push(address, path, index, Kind::Function(Box::new(function)), false);
        }
    }

    /// Places everything on a bus and below; gives what a bridge above must forward.
    fn bus(&mut self, bus: Bus, path: &str, external: bool) -> Result<(Windows, u8), BuildError> {
        let number = self.host.bus_number(bus);
        let mut highest = number;
        let mut windows = Windows::default();
        let entries = self.children.get(&(bus.root, bus.port)).cloned().unwrap_or_default();
        for index in entries {
            let Some(entry) = self.host.entries.get(index) else { continue };
            let domain = self.host.roots.get(bus.root).map_or(0, |root| root.domain);
            match &entry.item {
                Item::Port(port) => {
                    let at = address(domain, number, port.device, port.function);
                    if port.secondary <= number {
                        let what = format!("the bus behind {at} is not above its own");
                        return Err(BuildError::Shape { what });
                    }
                    let slot = self.push(at, path, bus.root, Kind::Port(port.clone()), external);
                    self.low = self.low.next_multiple_of(MIB);
                    self.high = self.high.next_multiple_of(MIB);
                    let below = Bus { root: bus.root, port: Some(index) };
                    let inner_path = format!("{path}/{at}");
                    let inner = self.bus(below, &inner_path, external || port.external)?;
                    self.low = self.low.next_multiple_of(MIB);
                    self.high = self.high.next_multiple_of(MIB);
                    let (inner_windows, subordinate) = (whole_megabytes(inner.0), inner.1);
                    highest = highest.max(subordinate);
                    windows = join(windows, inner_windows);
                    if let Some(placed) = self.placed.get_mut(slot) {
                        placed.windows = inner_windows;
                        placed.subordinate = subordinate;
                    }
                }
                Item::Function(function) => {
                    let at = address(domain, number, function.device, function.function);
                    let kind = Kind::Function(function.clone());
                    let slot = self.push(at, path, bus.root, kind, external);
                    let bars = self.bars(function);
                    windows = bars.iter().filter(|bar| bar.assigned).fold(windows, cover);
                    if let Some(placed) = self.placed.get_mut(slot) {
                        placed.bars = bars;
                    }
                }
            }
        }
        Ok((windows, highest))
    }

    fn push(
        &mut self,
        address: PciAddress,
        above: &str,
        root: usize,
        kind: Kind,
        external: bool,
    ) -> usize {
        self.placed.push(Placed {
            address,
            path: format!("{above}/{address}"),
            kind,
            node: self.host.roots.get(root).map_or(-1, |root| root.node),
            root,
            bars: Vec::new(),
            windows: Windows::default(),
            subordinate: 0,
            group: None,
            multifunction: false,
            external,
        });
        self.placed.len() - 1
    }

    fn bars(&mut self, function: &Function) -> Vec<PlacedBar> {
        let mut bars = Vec::new();
        // BARs after one that was placed by hand lie behind it, in the same window.
        let mut behind = None;
        for spec in function.model.bars {
            let fixed = function.fixed.iter().find(|fixed| fixed.index == spec.index);
            let wide = matches!(spec.kind, BarKind::Prefetch64);
            let start = match (fixed, spec.kind) {
                (Some(fixed), _) => {
                    behind = Some(fixed.start + spec.size);
                    fixed.start
                }
                (None, BarKind::Prefetch64) => {
                    let cursor = behind.as_mut().unwrap_or(&mut self.high);
                    take(cursor, spec.size)
                }
                (None, BarKind::Io) => take(&mut self.io, spec.size),
                (None, BarKind::Memory32 | BarKind::Memory64) => take(&mut self.low, spec.size),
            };
            let assigned = !(wide && function.unassigned);
            let start = if assigned { start } else { 0 };
            let (index, size, kind) = (spec.index, spec.size, spec.kind);
            bars.push(PlacedBar { index, start, size, kind, assigned });
        }
        bars
    }
}

fn take(cursor: &mut u64, size: u64) -> u64 {
    let start = cursor.next_multiple_of(size.max(1));
    *cursor = start + size;
    start
}

fn cover(mut windows: Windows, bar: &PlacedBar) -> Windows {
    let range = Some((bar.start, bar.start + bar.size - 1));
    match bar.kind {
        BarKind::Prefetch64 => windows.prefetch = hull(windows.prefetch, range),
        BarKind::Memory32 | BarKind::Memory64 => windows.memory = hull(windows.memory, range),
        BarKind::Io => {}
    }
    windows
}

fn join(one: Windows, other: Windows) -> Windows {
    Windows { memory: hull(one.memory, other.memory), prefetch: hull(one.prefetch, other.prefetch) }
}

fn hull(one: Option<(u64, u64)>, other: Option<(u64, u64)>) -> Option<(u64, u64)> {
    match (one, other) {
        (Some((start, end)), Some((other_start, other_end))) => {
            Some((start.min(other_start), end.max(other_end)))
        }
        (Some(range), None) | (None, Some(range)) => Some(range),
        (None, None) => None,
    }
}

/// Bridge windows have a granularity of 1 MiB.
fn whole_megabytes(windows: Windows) -> Windows {
    let round = |(start, end): (u64, u64)| (start / MIB * MIB, end / MIB * MIB + (MIB - 1));
    Windows { memory: windows.memory.map(round), prefetch: windows.prefetch.map(round) }
}

fn mark_multifunction(placed: &mut [Placed]) {
    let mut counts: BTreeMap<PciAddress, u32> = BTreeMap::new();
    let first = |address: PciAddress| address.with_function(0).unwrap_or(address);
    for one in placed.iter() {
        *counts.entry(first(one.address)).or_default() += 1;
    }
    for one in placed.iter_mut() {
        one.multifunction = counts.get(&first(one.address)).is_some_and(|count| *count > 1);
    }
}

/// Gives a free group number to every function that has none; IOMMUs stand outside.
fn number_groups(host: &HostBuilder, placed: &mut [Placed]) {
    if host.iommu == Iommu::Off {
        return;
    }
    let wanted = |one: &Placed| match &one.kind {
        Kind::Port(port) => port.group,
        Kind::Function(function) => function.group,
    };
    let taken: BTreeSet<u32> = placed.iter().filter_map(wanted).collect();
    let mut free = (0..).filter(|number| !taken.contains(number));
    for one in placed.iter_mut() {
        if !one.is_iommu() {
            one.group = wanted(one).or_else(|| free.next());
        }
    }
}
