//! A snapshot of what files say about a host: partial, and everything else in it unknown.

use peerway_core::address::PciAddress;
use peerway_core::observed::Observed;
use peerway_core::snapshot::iommu::{DomainType, Group};
use peerway_core::snapshot::kernel::{Established, Tristate};
use peerway_core::snapshot::pci::{Bar, PciDevice, RootBus};
use peerway_core::snapshot::{Origin, OriginKind, SNAPSHOT_SCHEMA, Snapshot};
use peerway_klog::notice::{BarState, Platform};
use peerway_klog::{DeviceFacts, Report};

use crate::class::by_driver;
use crate::collect::Collected;
use crate::facts::{Log, facts};
use crate::map::AddressMap;
use crate::material::{ListedDevice, Material};

/// Above this a region is 64 bits wide.
const FOUR_GIB: u64 = 1 << 32;

/// What the material says, as a snapshot, with the log's facts attributed to it.
pub fn snapshot(name: &str, material: &Material) -> Snapshot {
    let mut snapshot = Snapshot {
        schema: SNAPSHOT_SCHEMA,
        origin: Origin { host: name.to_owned(), kind: OriginKind::Recorded, ..Origin::default() },
        // A host with our own module would have it in its log.
        peer_map: Observed::Absent,
        ..Snapshot::default()
    };
    if let Some(log) = &material.log {
        from_log(&mut snapshot, log);
    }
    for (address, listed) in &material.devices {
        let device = entry(&mut snapshot, *address);
        listed_device(device, listed);
    }
    for (id, devices) in &material.groups {
        for address in devices {
            entry(&mut snapshot, *address).group = Observed::Known(*id);
        }
    }
    if let Some(line) = material.command_lines.first()
        && snapshot.kernel.command_line.known().is_none()
    {
        snapshot.kernel.command_line = Observed::Known(line.clone());
    }
    groups(&mut snapshot, material);
    snapshot.faults = match &material.log {
        Some(log) => {
            let map = AddressMap::new(&snapshot, &material.unsized_bars);
            let log =
                Log { source: name, lines: log.lines, report: &log.report, by_regions: false };
            Observed::Known(facts(log, &snapshot, &map))
        }
        None => Observed::Absent,
    };
    snapshot
}

/// The device of an address, made where it is not there yet.
fn entry(snapshot: &mut Snapshot, address: PciAddress) -> &mut PciDevice {
    let devices = &mut snapshot.devices;
    let at = match devices.binary_search_by_key(&address, |device| device.address) {
        Ok(at) => at,
        Err(at) => {
            devices.insert(at, blank(address));
            at
        }
    };
    #[expect(clippy::indexing_slicing, reason = "found or inserted just now")]
    &mut devices[at]
}

/// A device of which nothing is known but its address.
pub fn blank(address: PciAddress) -> PciDevice {
    let not_said = || Observed::Unreadable("the files do not say".to_owned());
    PciDevice {
        address,
        ids: Observed::default(),
        subsystem: Observed::default(),
        class: Observed::default(),
        ancestors: Vec::new(),
        root: RootBus { domain: address.domain(), bus: 0 },
        driver: not_said(),
        driver_override: Observed::default(),
        group: Observed::default(),
        iommu_unit: Observed::default(),
        numa_node: Observed::default(),
        bars: Observed::default(),
        power: Observed::default(),
        config: Observed::default(),
        link: Observed::default(),
        dma_mask_bits: Observed::default(),
        removable: Observed::default(),
        reset_methods: Observed::default(),
        vfio_device: Observed::default(),
    }
}

fn from_log(snapshot: &mut Snapshot, log: &Collected) {
    let report = &log.report;
    for (address, facts) in &report.devices {
        logged_device(entry(snapshot, *address), facts);
    }
    // The last boot is the one that people ask about.
    if let Some(boot) = report.boots.iter().rev().find(|boot| boot.release.is_some()) {
        snapshot.kernel.release =
            boot.release.clone().map_or_else(Observed::default, Observed::Known);
    }
    if let Some(line) = report.boots.iter().rev().find_map(|boot| boot.command_line.clone()) {
        snapshot.kernel.command_line = Observed::Known(line);
    }
    snapshot.kernel.log_facts = Observed::Known(log.hints.boot_lines.clone());
    snapshot.memory_encryption.snp = snp(report, &log.hints.boot_lines);
    snapshot.memory_encryption.sme = sme(report, &log.hints.boot_lines);
}

fn logged_device(device: &mut PciDevice, facts: &DeviceFacts) {
    if let Some(class) = facts.class {
        device.class = Observed::Known(class);
    }
    if let Some(id) = facts.id {
        device.ids = Observed::Known(id);
    }
    if let Some(group) = facts.group {
        device.group = Observed::Known(group);
    }
    // The bus's own name stands there while no driver is bound.
    let driver = facts.drivers.iter().rev().find(|name| {
        by_driver(name).is_some() || name.contains("vfio") || name.contains("pciback")
    });
    if let Some(driver) = driver {
        device.driver = Observed::Known(driver.clone());
    }
    let bars: Vec<Bar> = facts
        .bars
        .iter()
        .map(|(index, bar)| {
            let start = bar.start.map_or(0, |start| start.0);
            Bar {
                index: *index,
                start: peerway_core::address::BusAddress(start),
                size: bar.size.unwrap_or(0),
                memory: true,
                prefetchable: start >= FOUR_GIB,
                width: if start >= FOUR_GIB { 64 } else { 32 },
                assigned: start > 0 && matches!(bar.state, BarState::Found | BarState::Assigned),
            }
        })
        .collect();
    if !bars.is_empty() {
        device.bars = Observed::Known(bars);
    }
}

fn listed_device(device: &mut PciDevice, listed: &ListedDevice) {
    if let Some(class) = listed.class {
        device.class = Observed::Known(class);
    }
    if let Some(id) = listed.id {
        device.ids = Observed::Known(id);
    }
    if let Some(driver) = &listed.driver {
        device.driver = Observed::Known(driver.clone());
    }
    if !listed.bars.is_empty() {
        device.bars = Observed::Known(listed.bars.clone());
    }
}

/// Groups by the numbers that devices name.
fn groups(snapshot: &mut Snapshot, material: &Material) {
    let mut groups: std::collections::BTreeMap<u32, Vec<PciAddress>> =
        std::collections::BTreeMap::new();
    for device in &snapshot.devices {
        if let Some(id) = device.group.known() {
            groups.entry(*id).or_default().push(device.address);
        }
    }
    let domain = || {
        material.domain.clone().map_or_else(
            || Observed::Unreadable("the files do not say".to_owned()),
            Observed::<DomainType>::Known,
        )
    };
    snapshot.groups = groups
        .into_iter()
        .map(|(id, devices)| Group { id, domain: domain(), devices, reserved: Observed::default() })
        .collect();
}

/// What the log says about SNP: on, off, or nothing.
fn snp(report: &Report, lines: &[String]) -> Established {
    use Platform as P;
    let seen = |states: &[Platform]| states.iter().any(|state| report.platform.contains_key(state));
    let state = if seen(&[P::SnpIommuEnabled, P::KvmSnpEnabled, P::SnpWithoutVirtualApic]) {
        Tristate::Yes
    } else if seen(&[
        P::SnpOffPassthrough,
        P::SnpOffIommuOff,
        P::SnpOffPageTables,
        P::SnpOffFeature,
        P::SnpOffRmp,
        P::SnpOffOther,
        P::RmpNotReserved,
        P::RmpTooSmall,
        P::RmpInvalid,
        P::RmpUnmapped,
        P::SnpInitFailed,
        P::KvmSnpDisabled,
    ]) {
        Tristate::No
    } else {
        Tristate::Unknown
    };
    established(state, lines, &["SNP", "RMP"])
}

fn sme(report: &Report, lines: &[String]) -> Established {
    let state = if report.platform.contains_key(&Platform::SmeActive) {
        Tristate::Yes
    } else if report.platform.contains_key(&Platform::SmeOffInFirmware) {
        Tristate::No
    } else {
        Tristate::Unknown
    };
    established(state, lines, &["SME", "memory encryption not enabled"])
}

fn established(state: Tristate, lines: &[String], words: &[&str]) -> Established {
    let evidence = lines
        .iter()
        .filter(|line| state != Tristate::Unknown && words.iter().any(|word| line.contains(word)))
        .take(4)
        .map(|line| ("kernel log".to_owned(), line.clone()))
        .collect();
    Established { state, evidence }
}

#[cfg(test)]
pub(crate) mod testing {
    //! Devices for tests.

    use super::*;
    use peerway_core::address::BusAddress;

    pub(crate) fn device(address: &str) -> PciDevice {
        PciDevice { bars: Observed::Known(Vec::new()), ..blank(address.parse().unwrap()) }
    }

    pub(crate) fn with_bar(mut device: PciDevice, index: u8, start: u64, size: u64) -> PciDevice {
        if let Observed::Known(bars) = &mut device.bars {
            bars.push(Bar {
                index,
                start: BusAddress(start),
                size,
                memory: true,
                prefetchable: true,
                width: 64,
                assigned: true,
            });
        }
        device
    }
}
