//! From a log's report to facts about a host: attribution, classes, meanings.

use std::collections::BTreeSet;

use peerway_core::address::{BusAddress, PciAddress};
use peerway_core::judge::Confidence;
use peerway_core::snapshot::Snapshot;
use peerway_core::snapshot::faults::{
    BarHit, DriverEvent, FaultClass, FaultFacts, Faulting, Moment, Weight,
};
use peerway_klog::nvidia::{self, Stage};
use peerway_klog::{Class, Iommu, Occurrence, Report, Row, Stamp, WallClock, notice, xid};

use crate::class::{self, Basis, DeviceClass, DeviceKind};
use crate::map::AddressMap;
use crate::pattern;

/// A log that was scanned.
#[derive(Clone, Copy, Debug)]
pub struct Log<'a> {
    /// Its name, for evidence.
    pub source: &'a str,
    /// Lines.
    pub lines: u64,
    /// What the scan gave.
    pub report: &'a Report,
    /// Whether the scan counted by the map's regions.
    pub by_regions: bool,
}

/// Joins a log with what is known of the host that it is from.
pub fn facts(log: Log<'_>, snapshot: &Snapshot, map: &AddressMap) -> FaultFacts {
    let Log { source, lines, report, .. } = log;
    let scene = Scene::new(log, snapshot, map);
    let overflows = report
        .events_lost
        .iter()
        .filter(|(how, _)| !matches!(how, notice::Lost::PageRequests))
        .map(|(_, count)| count)
        .sum();
    FaultFacts {
        source: source.to_owned(),
        lines,
        events: report.events,
        suppressed: report.suppressed,
        records_lost: report.records_lost,
        overflows,
        stuck: report.iommu_stuck,
        first: report.first.as_ref().map(moment),
        last: report.last.as_ref().map(moment),
        requesters: report.requesters.iter().map(|row| scene.faulting(row)).collect(),
        driver_events: report.driver_events.iter().map(driver_event).collect(),
    }
}

/// What all rows are judged against.
struct Scene<'a> {
    log: Log<'a>,
    snapshot: &'a Snapshot,
    map: &'a AddressMap,
    /// GPUs that host or log name.
    gpus: BTreeSet<PciAddress>,
    /// Requesters of unknown kind with addresses that look like regions.
    region_like: BTreeSet<PciAddress>,
}

impl<'a> Scene<'a> {
    fn new(log: Log<'a>, snapshot: &'a Snapshot, map: &'a AddressMap) -> Self {
        let mut scene = Self {
            log,
            snapshot,
            map,
            gpus: snapshot
                .devices
                .iter()
                .filter(|device| device.is_gpu())
                .map(|device| device.address)
                .collect(),
            region_like: BTreeSet::new(),
        };
        let report = log.report;
        for device in report.devices.keys() {
            let known = class::known(snapshot, report, &[], *device);
            if known.is_some_and(|known| known.kind == DeviceKind::Gpu) {
                scene.gpus.insert(*device);
            }
        }
        for row in &report.requesters {
            let Some(device) = row.requester.pci() else { continue };
            match scene.class_of(row, device).kind {
                DeviceKind::Gpu => {
                    scene.gpus.insert(device);
                }
                DeviceKind::Unknown if pattern::are_like_regions(&row.addresses) => {
                    scene.region_like.insert(device);
                }
                DeviceKind::Unknown | DeviceKind::Other(_) => {}
            }
        }
        scene
    }

    fn faulting(&self, row: &Row) -> Faulting {
        let address = row.requester.pci();
        let device = match address {
            Some(device) => self.class_of(row, device),
            None => DeviceClass::unknown("unknown device (not named by a PCI address)"),
        };
        let hits = self.hits(row);
        let Judged { class, confidence, why } = self.judge(row, address, &device, &hits);
        let hints = row.access.hints;
        Faulting {
            name: row.requester.to_string(),
            address,
            iommu: row.iommu.to_string(),
            kind: row.kind.to_string(),
            count: row.count,
            access: row.access.word().to_owned(),
            access_certain: hints == 0,
            lowest: row.lowest,
            highest: row.highest,
            distinct: row.distinct_addresses.value,
            hits,
            class,
            confidence,
            why,
            device: device.words,
            first: moment(&row.first),
            last: moment(&row.last),
            text: row.text.clone(),
        }
    }

    /// The best that is known of a requester.
    fn class_of(&self, row: &Row, device: PciAddress) -> DeviceClass {
        let report = self.log.report;
        if let Some(known) = class::known(self.snapshot, report, &row.drivers, device) {
            return known;
        }
        // Another form of the same device's events may name the driver.
        let drivers: Vec<String> = report
            .requesters
            .iter()
            .filter(|other| other.requester == row.requester)
            .flat_map(|other| other.drivers.clone())
            .collect();
        if let Some(known) = class::known(self.snapshot, report, &drivers, device) {
            return known;
        }
        if let Some(twin) = self.twin(row) {
            return twin;
        }
        class::guess(device, row.iommu, &row.addresses)
    }

    /// A known device with the very same addresses: the same board in another slot, or on another
    /// host whose log is in the same material.
    fn twin(&self, row: &Row) -> Option<DeviceClass> {
        let told = |addresses: &[BusAddress]| addresses.iter().any(|address| address.0 > 0xfff);
        if row.addresses.is_empty() || !told(&row.addresses) {
            return None;
        }
        let report = self.log.report;
        report
            .requesters
            .iter()
            .filter(|other| {
                other.requester != row.requester
                    && other.iommu == row.iommu
                    && other.kind == row.kind
                    && other.addresses == row.addresses
            })
            .find_map(|other| {
                let device = other.requester.pci()?;
                let known = class::known(self.snapshot, report, &other.drivers, device)?;
                let words = format!("{} like {device}, by its addresses", known.words);
                Some(DeviceClass { words, basis: Basis::Twin, ..known })
            })
    }

    /// The regions that a row's addresses lie in, the most events first.
    fn hits(&self, row: &Row) -> Vec<BarHit> {
        let mut hits: Vec<BarHit> = Vec::new();
        if self.log.by_regions {
            for seen in &row.regions {
                let Some(place) = self.map.place(seen.tag) else { continue };
                hits.push(BarHit {
                    device: place.device,
                    bar: place.bar,
                    offset_first: seen.offset_lowest,
                    offset_last: seen.offset_highest,
                    count: seen.count,
                    count_exact: true,
                });
            }
        } else {
            let each_once = row.distinct_addresses.exact
                && row.distinct_addresses.value == row.count
                && !row.addresses_truncated;
            for address in &row.addresses {
                let Some((place, offset)) = self.map.find(*address) else { continue };
                let found =
                    hits.iter_mut().find(|hit| (hit.device, hit.bar) == (place.device, place.bar));
                if let Some(hit) = found {
                    hit.offset_first = hit.offset_first.min(offset);
                    hit.offset_last = hit.offset_last.max(offset);
                    hit.count += 1;
                } else {
                    hits.push(BarHit {
                        device: place.device,
                        bar: place.bar,
                        offset_first: offset,
                        offset_last: offset,
                        count: 1,
                        count_exact: each_once,
                    });
                }
            }
            let alone = !row.addresses_truncated
                && row.addresses.iter().all(|address| self.map.find(*address).is_some());
            if let [only] = hits.as_mut_slice()
                && alone
            {
                only.count = row.count;
                only.count_exact = true;
            }
        }
        hits.sort_by(|a, b| {
            b.count.cmp(&a.count).then_with(|| (a.device, a.bar).cmp(&(b.device, b.bar)))
        });
        hits
    }

    fn judge(
        &self,
        row: &Row,
        address: Option<PciAddress>,
        device: &DeviceClass,
        hits: &[BarHit],
    ) -> Judged {
        let peer =
            hits.iter().find(|hit| !address.is_some_and(|address| address.same_device(hit.device)));
        if let Some(hit) = peer
            && row.kind.class() == Class::Translation
            && !matches!(device.kind, DeviceKind::Other(_))
        {
            return self.inside_peer(hit);
        }
        match row.kind.class() {
            _ if matches!(row.iommu, Iommu::SmmuV2 | Iommu::SmmuV3) => {
                Judged::certain(FaultClass::Smmu, "an event of an Arm SMMU")
            }
            Class::Rmp => Judged::certain(
                FaultClass::Rmp,
                "the reverse map refused it, after the translation had let it pass",
            ),
            Class::Structure => {
                Judged::certain(FaultClass::Event, "an event of the IOMMU that is no page fault")
            }
            Class::Translation => self.page_fault(row, address, device, peer),
        }
    }

    fn inside_peer(&self, hit: &BarHit) -> Judged {
        let place = self.map.of(hit.device, hit.bar);
        let sized = place.is_none_or(|place| place.sized || hit.offset_first < SMALLEST_REGION);
        Judged {
            class: FaultClass::PeerAccess,
            confidence: if sized { Confidence::Certain } else { Confidence::Probable },
            why: format!("addresses lie inside region {} of {}", hit.bar, hit.device),
        }
    }

    fn page_fault(
        &self,
        row: &Row,
        address: Option<PciAddress>,
        device: &DeviceClass,
        peer: Option<&BarHit>,
    ) -> Judged {
        let guessed = match device.basis {
            Basis::Class | Basis::Driver => Confidence::Certain,
            Basis::Twin | Basis::Place => Confidence::Probable,
            Basis::Pattern | Basis::Nothing => Confidence::Possible,
        };
        match device.kind {
            DeviceKind::Other(_) => {
                let why = match peer {
                    Some(hit) => format!(
                        "the requester is no GPU ({}); its addresses lie in region {} of {}: \
                         access of another device to that memory, such as GPUDirect",
                        device.words, hit.bar, hit.device
                    ),
                    None => format!("the requester is no GPU: {}", device.words),
                };
                Judged { class: FaultClass::OtherDevice, confidence: guessed, why }
            }
            DeviceKind::Gpu => self.gpu_fault(row, address, device, guessed),
            DeviceKind::Unknown => self.unknown_fault(row, device),
        }
    }

    /// A GPU at addresses in no known region of another device.
    fn gpu_fault(
        &self,
        row: &Row,
        address: Option<PciAddress>,
        device: &DeviceClass,
        guessed: Confidence,
    ) -> Judged {
        let like = pattern::are_like_regions(&row.addresses);
        let peers = self.gpus.iter().filter(|gpu| Some(**gpu) != address).count();
        let enough = peers > 0 || pattern::are_high(&row.addresses);
        if like && enough && !self.map.is_complete() && device.basis != Basis::Pattern {
            let (confidence, beside) = if peers > 0 {
                (Confidence::Probable, "other GPUs are named")
            } else {
                (Confidence::Possible, "no other GPU is named")
            };
            let why = format!(
                "the addresses look like memory regions and not like memory, and {beside}; the \
                 regions themselves are not known here"
            );
            return Judged {
                class: FaultClass::PeerAccess,
                confidence: confidence.max(guessed),
                why,
            };
        }
        let (confidence, why) = if self.map.is_complete() {
            (Confidence::Certain, "the addresses lie in no other device's memory region")
        } else {
            (Confidence::Probable, "the addresses do not look like a device's memory region")
        };
        Judged {
            class: FaultClass::GpuOther,
            confidence: confidence.max(guessed),
            why: format!("{why}; requester: {}", device.words),
        }
    }

    /// A requester of unknown kind at addresses in no known region.
    fn unknown_fault(&self, row: &Row, device: &DeviceClass) -> Judged {
        let peers = self.region_like.len() > 1 || !self.gpus.is_empty();
        let like = pattern::are_like_regions(&row.addresses);
        if like && peers && pattern::holds_doorbell(&row.addresses)
            || like && self.region_like.len() > 1
        {
            return Judged {
                class: FaultClass::PeerAccess,
                confidence: Confidence::Possible,
                why: "several devices fault at addresses that look like each other's memory \
                      regions; what they are is not said"
                    .to_owned(),
            };
        }
        Judged {
            class: FaultClass::UnknownDevice,
            confidence: Confidence::Possible,
            why: device.words.clone(),
        }
    }
}

/// Below this offset an address is inside whatever the region's size is: no GPU has a smaller
/// region of those that peers reach.
const SMALLEST_REGION: u64 = 16 << 20;

struct Judged {
    class: FaultClass,
    confidence: Confidence,
    why: String,
}

impl Judged {
    fn certain(class: FaultClass, why: &str) -> Self {
        Self { class, confidence: Confidence::Certain, why: why.to_owned() }
    }
}

/// Where and when, in the form that the snapshot keeps.
pub fn moment(at: &Occurrence) -> Moment {
    Moment { line: at.line, boot: at.boot, time: time(at.stamp), seconds: seconds(at.stamp) }
}

/// A time as text; `None` where the line has none.
pub fn time(stamp: Stamp) -> Option<String> {
    (!stamp.is_none()).then(|| stamp.to_string())
}

fn seconds(stamp: Stamp) -> Option<u64> {
    stamp.monotonic_us.map(|us| us / 1_000_000).or_else(|| stamp.wall.map(wall_seconds))
}

/// Seconds of a wall clock from an arbitrary day on: only distances mean something, and those
/// across a new year in a log without years do not.
fn wall_seconds(wall: WallClock) -> u64 {
    const BEFORE: [u64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let months = BEFORE.get(usize::from(wall.month.saturating_sub(1))).copied().unwrap_or(0);
    let days = u64::from(wall.year.unwrap_or(0)) * 366 + months + u64::from(wall.day);
    let hours = days * 24 + u64::from(wall.hour);
    (hours * 60 + u64::from(wall.minute)) * 60 + u64::from(wall.second)
}

fn driver_event(event: &peerway_klog::DriverEvent) -> DriverEvent {
    let (meaning, weight) = meaning(&event.kind, event.code.as_deref());
    DriverEvent {
        kind: event.kind.clone(),
        code: event.code.clone(),
        device: event.device,
        count: event.count,
        other: event.other,
        first: moment(&event.first),
        last: moment(&event.last),
        text: event.text.clone(),
        meaning,
        weight,
    }
}

/// What a code means, where this program knows it.
fn meaning(kind: &str, code: Option<&str>) -> (Option<String>, Option<Weight>) {
    let Some(code) = code else { return (None, None) };
    match kind {
        "xid" => {
            let known = code.parse().ok().and_then(xid::lookup);
            let meaning = known.map(|xid| xid.meaning.to_owned());
            (meaning, known.map(|xid| weight(xid.weight)))
        }
        "nvidia_init" => {
            let stage = Stage::ALL.iter().find(|stage| stage.as_str() == code);
            (stage.map(|stage| stage.reading().to_owned()), None)
        }
        "nvidia_init_failed" => {
            let number = |text: &str| u32::from_str_radix(text.trim_start_matches("0x"), 16).ok();
            let (stage, status) = code.split_once(':').unwrap_or((code, ""));
            let stage = number(stage).and_then(nvidia::init_code);
            let status = number(status).and_then(nvidia::status_code);
            let words: Vec<&str> = [stage, status].into_iter().flatten().collect();
            ((!words.is_empty()).then(|| words.join(": ")), None)
        }
        "nvidia" if code == "not-addressable" => {
            (Some("the platform gave the GPU an address that it cannot reach".to_owned()), None)
        }
        _ => (None, None),
    }
}

const fn weight(weight: xid::Weight) -> Weight {
    match weight {
        xid::Weight::Elsewhere => Weight::Elsewhere,
        xid::Weight::Low => Weight::Low,
        xid::Weight::Medium => Weight::Medium,
        xid::Weight::High => Weight::High,
        xid::Weight::Critical => Weight::Critical,
        xid::Weight::Advice => Weight::Advice,
    }
}
