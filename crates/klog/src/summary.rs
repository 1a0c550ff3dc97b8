//! The sink that aggregates: who faulted how often and where, and what else the log says, in
//! memory that does not grow with the log.

use std::collections::BTreeMap;

use peerway_core::address::{BusAddress, PciAddress};

use crate::event::{Class, Event};
use crate::notice::{
    Banner, BarState, Code, DomainRefusal, Fact, GpuError, Lost, Notice, Platform,
};
use crate::report::{BarFacts, Boot, DeviceFacts, DriverEvent, Report, Seen};
use crate::row::{Occurrence, Region};
use crate::rows::Rows;
use crate::scan::Sink;

/// Driver events kept: kinds times codes times devices.
const MAX_DRIVER_EVENTS: usize = 4_096;
/// Devices kept.
const MAX_DEVICES: usize = 8_192;
/// Boots kept.
const MAX_BOOTS: usize = 256;
/// Names kept per device or limit.
const MAX_NAMES: usize = 8;
/// Addresses kept per driver event.
const MAX_ADDRESSES: usize = 16;
/// Functions with a rate limit kept.
const MAX_FUNCTIONS: usize = 64;
/// Bytes kept of a message that is quoted.
const MAX_TEXT: usize = 512;
/// Bytes kept of a command line; the kernel's own limit is 2,048 on most architectures.
const MAX_COMMAND_LINE: usize = 4_096;

/// Aggregates what a [`crate::Scanner`] finds.
#[derive(Clone, Debug)]
pub struct Summary {
    rows: Rows,
    events: u64,
    classes: [u64; 3],
    suppressed: u64,
    suppressed_by: BTreeMap<String, (u64, bool)>,
    records_lost: u64,
    driver_events: BTreeMap<(&'static str, Code, Option<PciAddress>), DriverEvent>,
    driver_events_unlisted: u64,
    devices: BTreeMap<PciAddress, DeviceFacts>,
    devices_unlisted: bool,
    boots: Vec<Boot>,
    platform: BTreeMap<Platform, Seen>,
    banners: BTreeMap<Banner, Seen>,
    refusals: BTreeMap<DomainRefusal, Seen>,
    lost: BTreeMap<Lost, u64>,
    stuck: u64,
}

impl Default for Summary {
    fn default() -> Self {
        Self::new()
    }
}

impl Summary {
    /// Nothing seen yet.
    pub fn new() -> Self {
        Self::with_regions(Vec::new())
    }

    /// Nothing seen yet; events will be counted by the regions (BARs) that hold their addresses.
    /// Regions must not overlap.
    pub fn with_regions(regions: Vec<Region>) -> Self {
        Self {
            rows: Rows::new(regions),
            events: 0,
            classes: [0; 3],
            suppressed: 0,
            suppressed_by: BTreeMap::new(),
            records_lost: 0,
            driver_events: BTreeMap::new(),
            driver_events_unlisted: 0,
            devices: BTreeMap::new(),
            devices_unlisted: false,
            boots: Vec::new(),
            platform: BTreeMap::new(),
            banners: BTreeMap::new(),
            refusals: BTreeMap::new(),
            lost: BTreeMap::new(),
            stuck: 0,
        }
    }

    /// IOMMU events seen.
    pub const fn events(&self) -> u64 {
        self.events
    }

    /// IOMMU events that rate limits kept out of the log.
    pub const fn suppressed(&self) -> u64 {
        self.suppressed
    }

    /// Everything, as a document.
    pub fn report(&self) -> Report {
        let [translation_events, structure_events, rmp_events] = self.classes;
        let ends = self.rows.first_and_last();
        Report {
            events: self.events,
            translation_events,
            structure_events,
            rmp_events,
            suppressed: self.suppressed,
            suppressed_by: self.suppressed_by.clone(),
            records_lost: self.records_lost,
            first: ends.as_ref().map(|(first, _)| first.clone()),
            last: ends.map(|(_, last)| last),
            requesters: self.rows.rows(),
            unlisted_events: self.rows.unlisted,
            driver_events: self.driver_events.values().cloned().collect(),
            unlisted_driver_events: self.driver_events_unlisted,
            devices: self.devices.clone(),
            devices_truncated: self.devices_unlisted,
            boots: self.boots.clone(),
            platform: self.platform.clone(),
            banners: self.banners.clone(),
            domain_refusals: self.refusals.clone(),
            events_lost: self.lost.clone(),
            iommu_stuck: self.stuck,
        }
    }

    /// Whether there were more requesters than are listed.
    pub const fn is_truncated(&self) -> bool {
        self.rows.is_truncated()
    }

    /// Does what was put off until nothing more comes: for a part of a log, by its own processor.
    pub fn settle(&mut self) {
        self.rows.settle();
    }

    /// Adds what a later part of the same log gave, which begins after `lines` lines and `boots`
    /// boots (highest number so far plus what the part's own numbers start at).
    pub fn append(&mut self, later: &Self, lines: u64, boots: u32) {
        let shift = |at: &Occurrence| Occurrence {
            // Wrapping: an event that began before the part has a number below zero.
            line: at.line.wrapping_add(lines),
            boot: at.boot.wrapping_add(boots),
            stamp: at.stamp,
        };
        self.rows.append(&later.rows, shift);
        self.events += later.events;
        for (mine, theirs) in self.classes.iter_mut().zip(later.classes) {
            *mine += theirs;
        }
        self.suppressed += later.suppressed;
        self.records_lost += later.records_lost;
        self.stuck += later.stuck;
        self.driver_events_unlisted += later.driver_events_unlisted;
        self.devices_unlisted |= later.devices_unlisted;
        for (function, (count, of_iommu)) in &later.suppressed_by {
            self.suppress(function, *count, *of_iommu);
        }
        for (how, count) in &later.lost {
            *self.lost.entry(*how).or_default() += count;
        }
        for (key, theirs) in &later.driver_events {
            self.append_driver_event(*key, theirs, shift);
        }
        for (device, theirs) in &later.devices {
            if let Some(mine) = device_facts(&mut self.devices, &mut self.devices_unlisted, *device)
            {
                theirs.drivers.iter().for_each(|driver| keep_name(&mut mine.drivers, driver));
                mine.group = theirs.group.or(mine.group);
                mine.id = theirs.id.or(mine.id);
                mine.class = theirs.class.or(mine.class);
                mine.bars.extend(&theirs.bars);
            }
        }
        Seen::append(&mut self.platform, &later.platform, shift);
        Seen::append(&mut self.banners, &later.banners, shift);
        Seen::append(&mut self.refusals, &later.refusals, shift);
        for theirs in &later.boots {
            let Some(mine) = self.boot(theirs.boot.wrapping_add(boots)) else { continue };
            if theirs.release.is_some() {
                mine.release.clone_from(&theirs.release);
            }
            if theirs.command_line.is_some() {
                mine.command_line.clone_from(&theirs.command_line);
            }
            for version in &theirs.nvidia {
                if !mine.nvidia.contains(version) && mine.nvidia.len() < MAX_NAMES {
                    mine.nvidia.push(version.clone());
                }
            }
        }
    }

    fn append_driver_event(
        &mut self,
        key: (&'static str, Code, Option<PciAddress>),
        theirs: &DriverEvent,
        shift: impl Fn(&Occurrence) -> Occurrence,
    ) {
        if let Some(mine) = self.driver_events.get_mut(&key) {
            mine.count += theirs.count;
            mine.last = shift(&theirs.last);
            mine.other = mine.other.or(theirs.other);
            theirs.addresses.iter().for_each(|address| keep_address(mine, *address));
        } else if self.driver_events.len() < MAX_DRIVER_EVENTS {
            let (first, last) = (shift(&theirs.first), shift(&theirs.last));
            self.driver_events.insert(key, DriverEvent { first, last, ..theirs.clone() });
        } else {
            self.driver_events_unlisted += theirs.count;
        }
    }

    fn boot(&mut self, number: u32) -> Option<&mut Boot> {
        let at = match self.boots.iter().position(|boot| boot.boot == number) {
            Some(at) => at,
            None if self.boots.len() < MAX_BOOTS => {
                self.boots.push(Boot { boot: number, ..Boot::default() });
                self.boots.len() - 1
            }
            None => return None,
        };
        self.boots.get_mut(at)
    }

    fn suppress(&mut self, function: &str, count: u64, of_iommu: bool) {
        if let Some((sum, _)) = self.suppressed_by.get_mut(function) {
            *sum = sum.saturating_add(count);
        } else if self.suppressed_by.len() < MAX_FUNCTIONS {
            self.suppressed_by.insert(function.to_owned(), (count, of_iommu));
        }
    }

    fn driver_event(&mut self, notice: &Notice<'_>) {
        let fact = &notice.fact;
        let key = (fact.kind(), fact.code(), fact.device());
        // Several lines of one error count once.
        let counted = match fact {
            Fact::Sxid { fatal, .. } => u64::from(fatal.is_some()),
            Fact::Gpu { what: GpuError::MmuFaultAddress, .. } => 0,
            _ => 1,
        };
        let key = match fact {
            Fact::Gpu { what: GpuError::MmuFaultAddress, device, .. } => {
                (fact.kind(), Code::Word(GpuError::MmuFault.as_str()), *device)
            }
            _ => key,
        };
        let (other, address) = match fact {
            Fact::PeerDma { provider, .. } => (*provider, None),
            Fact::Xid { address, .. }
            | Fact::Nvidia { address, .. }
            | Fact::Gpu { address, .. } => (None, *address),
            Fact::Bar { start, .. } => (None, *start),
            _ => (None, None),
        };
        let at = Occurrence { line: notice.line, boot: notice.boot, stamp: notice.when.stamp() };
        if let Some(seen) = self.driver_events.get_mut(&key) {
            seen.count += counted;
            seen.last = at;
            seen.other = seen.other.or(other);
            if let Some(address) = address {
                keep_address(seen, address);
            }
            return;
        }
        if self.driver_events.len() >= MAX_DRIVER_EVENTS {
            self.driver_events_unlisted += counted;
            return;
        }
        let (kind, code, device) = key;
        let code = match code {
            Code::None => None,
            Code::Word(_) | Code::Number(_) | Code::Pair(..) => Some(code.to_string()),
        };
        self.driver_events.insert(
            key,
            DriverEvent {
                kind: kind.to_owned(),
                code,
                device,
                other,
                count: counted,
                addresses: address.into_iter().collect(),
                first: at.clone(),
                last: at,
                text: quoted(notice.text, MAX_TEXT),
            },
        );
    }

    fn device(&mut self, notice: &Notice<'_>) {
        let Some(device) = notice.fact.device() else { return };
        let facts = device_facts(&mut self.devices, &mut self.devices_unlisted, device);
        let Some(facts) = facts else { return };
        if let Some(driver) = notice.driver {
            keep_name(&mut facts.drivers, driver);
        }
        match notice.fact {
            Fact::GroupJoined { group, .. } => facts.group = Some(group),
            Fact::DeviceFound { id, class, .. } => {
                facts.id = Some(id);
                facts.class = Some(class);
            }
            Fact::Bar { index, state, start, size, .. } => {
                facts.bars.insert(index, BarFacts { state, start, size });
            }
            _ => {}
        }
    }
}

fn device_facts<'a>(
    devices: &'a mut BTreeMap<PciAddress, DeviceFacts>,
    truncated: &mut bool,
    device: PciAddress,
) -> Option<&'a mut DeviceFacts> {
    if devices.len() >= MAX_DEVICES && !devices.contains_key(&device) {
        *truncated = true;
        return None;
    }
    Some(devices.entry(device).or_default())
}

fn keep_name(names: &mut Vec<String>, name: &str) {
    if names.len() < MAX_NAMES && !names.iter().any(|known| known == name) {
        names.push(name.to_owned());
    }
}

fn keep_address(event: &mut DriverEvent, address: BusAddress) {
    if event.addresses.len() < MAX_ADDRESSES && !event.addresses.contains(&address) {
        event.addresses.push(address);
    }
}

fn quoted(text: &[u8], limit: usize) -> String {
    String::from_utf8_lossy(text.get(..limit).unwrap_or(text)).into_owned()
}

impl Sink for Summary {
    #[inline]
    fn event(&mut self, event: &Event<'_>) {
        self.events += 1;
        let [translation, structure, rmp] = &mut self.classes;
        *match event.class() {
            Class::Translation => translation,
            Class::Structure => structure,
            Class::Rmp => rmp,
        } += 1;
        self.rows.add(event);
    }

    fn notice(&mut self, notice: &Notice<'_>) {
        self.device(notice);
        let at = || Occurrence { line: notice.line, boot: notice.boot, stamp: notice.when.stamp() };
        match notice.fact {
            Fact::Suppressed { function, count, iommu_events } => {
                if iommu_events {
                    self.suppressed = self.suppressed.saturating_add(count);
                }
                self.suppress(function, count, iommu_events);
            }
            Fact::EventsLost(how) => *self.lost.entry(how).or_default() += 1,
            Fact::IommuStuck => self.stuck += 1,
            Fact::RecordsLost { count } => {
                self.records_lost = self.records_lost.saturating_add(count);
            }
            Fact::Banner(banner) => Seen::note(&mut self.banners, banner, at()),
            Fact::DomainRefused { why, device } => {
                Seen::note(&mut self.refusals, why, at());
                if device.is_some() {
                    self.driver_event(notice);
                }
            }
            Fact::Platform { state, device } => {
                Seen::note(&mut self.platform, state, at());
                if device.is_some() {
                    self.driver_event(notice);
                }
            }
            Fact::Boot { release } => {
                let release = release.to_owned();
                if let Some(boot) = self.boot(notice.boot) {
                    boot.release = Some(release);
                }
            }
            Fact::CommandLine { parameters } => {
                let parameters = quoted(parameters.as_bytes(), MAX_COMMAND_LINE);
                if let Some(boot) = self.boot(notice.boot) {
                    boot.command_line.get_or_insert(parameters);
                }
            }
            Fact::NvidiaDriver { version, open } => {
                let seen = (version.to_owned(), open);
                if let Some(boot) = self.boot(notice.boot)
                    && !boot.nvidia.contains(&seen)
                    && boot.nvidia.len() < MAX_NAMES
                {
                    boot.nvidia.push(seen);
                }
            }
            Fact::GroupJoined { .. }
            | Fact::GroupLeft { .. }
            | Fact::DeviceFound { .. }
            | Fact::DriverSeen { .. } => {}
            Fact::Bar { state: BarState::Found | BarState::Assigned, .. } => {}
            Fact::Bar { .. }
            | Fact::PeerDma { .. }
            | Fact::Acs { .. }
            | Fact::PcieError { .. }
            | Fact::DeviceState { .. }
            | Fact::Xid { .. }
            | Fact::Sxid { .. }
            | Fact::NvidiaInit { .. }
            | Fact::NvidiaInitFailed { .. }
            | Fact::Nvidia { .. }
            | Fact::Gpu { .. } => self.driver_event(notice),
        }
    }
}
