//! The requesters of a log, each with what it did, in bounded memory.

use peerway_core::address::BusAddress;

use crate::distinct::{AddressSet, Budget, Distinct, mix, slot_of};
use crate::event::{Access, Direction, Event, Iommu, Kind, Requester};
use crate::row::{AccessCounts, Hits, Occurrence, Region, Row};

/// Rows kept. A row is a requester and a kind of event; hosts have some dozens.
pub const MAX_ROWS: usize = 1_024;
/// Different values kept of each small property of a row (drivers, domains, flag words …).
const MAX_VALUES: usize = 16;
/// Bytes kept of a message that is quoted.
const MAX_TEXT: usize = 512;

#[derive(Clone, Debug)]
struct Slot {
    hot: Hot,
    last: Last,
    set: AddressSet,
    row: Row,
}

/// What every event of a row changes, side by side: the rows of a storm by many requesters have to
/// stay in the cache. The row gets it when it is asked for.
#[derive(Clone, Debug)]
struct Hot {
    key: u64,
    count: u64,
    cut: u64,
    /// By direction, and whether it is certain.
    access: [u64; 2 * Direction::COUNT],
    lowest: u64,
    highest: u64,
    noted: Noted,
}

/// All rows.
#[derive(Clone, Debug)]
pub(crate) struct Rows {
    slots: Vec<Slot>,
    /// Open addressing over `slots`: number of the slot plus one, 0 for free.
    index: Vec<u16>,
    last: usize,
    budget: Budget,
    regions: Vec<Region>,
    /// Events of requesters beyond [`MAX_ROWS`].
    pub(crate) unlisted: u64,
}

const INDEX: usize = 4 * MAX_ROWS;

impl Rows {
    pub(crate) fn new(mut regions: Vec<Region>) -> Self {
        regions.sort_unstable_by_key(|region| region.start);
        Self {
            slots: Vec::new(),
            index: vec![0; INDEX],
            last: 0,
            budget: Budget::new(),
            regions,
            unlisted: 0,
        }
    }

    /// Counts an event.
    #[inline]
    pub(crate) fn add(&mut self, event: &Event<'_>) {
        let key = key(event.requester, event.iommu, event.kind);
        let Some(at) = self.find(key, event.requester).or_else(|| self.insert(key, event)) else {
            self.unlisted += 1;
            return;
        };
        self.last = at;
        let Some(slot) = self.slots.get_mut(at) else { return };
        slot.hot.count += 1;
        let Access { direction, certain } = event.access;
        let access = 2 * direction.index() + usize::from(certain);
        if let Some(count) = slot.hot.access.get_mut(access) {
            *count += 1;
        }
        slot.hot.cut += u64::from(event.cut);
        slot.last.note(event);
        if let Some(BusAddress(address)) = event.address {
            slot.hot.lowest = slot.hot.lowest.min(address);
            slot.hot.highest = slot.hot.highest.max(address);
            slot.set.insert(address, &mut self.budget);
            if let Some(region) = region_of(&self.regions, address) {
                hit(&mut slot.row.regions, region, address, 1);
            }
        }
        if !slot.hot.noted.knows(event) {
            note(&mut slot.row, event);
        }
    }

    #[inline]
    fn find(&self, key: u64, requester: Requester<'_>) -> Option<usize> {
        let by_name = matches!(requester, Requester::Named(_));
        let is = |at: usize| {
            self.slots.get(at).is_some_and(|slot| {
                slot.hot.key == key && (!by_name || slot.row.requester.borrow() == requester)
            })
        };
        if is(self.last) {
            return Some(self.last);
        }
        let mut place = slot_of(mix(key), INDEX - 1);
        while let Some(number) = self.index.get(place)
            && let Some(at) = usize::from(*number).checked_sub(1)
        {
            if is(at) {
                return Some(at);
            }
            place = (place + 1) & (INDEX - 1);
        }
        None
    }

    fn insert(&mut self, key: u64, event: &Event<'_>) -> Option<usize> {
        if self.slots.len() >= MAX_ROWS {
            return None;
        }
        let text = event.text.get(..MAX_TEXT).unwrap_or(event.text);
        let row = Row {
            requester: event.requester.into(),
            iommu: event.iommu,
            kind: event.kind,
            count: 0,
            access: AccessCounts::default(),
            distinct_addresses: Distinct { value: 0, exact: true },
            addresses: Vec::new(),
            addresses_truncated: false,
            lowest: None,
            highest: None,
            regions: Vec::new(),
            drivers: Vec::new(),
            units: Vec::new(),
            flags: Vec::new(),
            domains: Vec::new(),
            pasids: Vec::new(),
            reasons: Vec::new(),
            words: None,
            cut: 0,
            first: occurrence(event),
            last: occurrence(event),
            text: String::from_utf8_lossy(text).into_owned(),
        };
        let last = Last::at(row.last.clone());
        let set = AddressSet::default();
        let hot = Hot {
            key,
            count: 0,
            cut: 0,
            access: [0; 2 * Direction::COUNT],
            lowest: u64::MAX,
            highest: 0,
            noted: Noted::default(),
        };
        self.push(Slot { hot, last, set, row })
    }

    fn push(&mut self, slot: Slot) -> Option<usize> {
        let at = self.slots.len();
        let mut place = slot_of(mix(slot.hot.key), INDEX - 1);
        while self.index.get(place).is_some_and(|number| *number != 0) {
            place = (place + 1) & (INDEX - 1);
        }
        *self.index.get_mut(place)? = u16::try_from(at + 1).ok()?;
        self.slots.push(slot);
        Some(at)
    }

    /// Nothing more comes: what was put off is done, by the processor that has it at hand.
    pub(crate) fn settle(&mut self) {
        for slot in &mut self.slots {
            slot.set.sort_in(&mut self.budget);
        }
    }

    /// Adds the rows of a later part of the same log.
    pub(crate) fn append(&mut self, later: &Self, shift: impl Fn(&Occurrence) -> Occurrence) {
        self.unlisted += later.unlisted;
        for theirs in &later.slots {
            let found = self.find(theirs.hot.key, theirs.row.requester.borrow());
            if let Some(mine) = found.and_then(|at| self.slots.get_mut(at)) {
                merge(mine, theirs, &mut self.budget);
                mine.last = Last::at(shift(&theirs.last.read()));
            } else if self.slots.len() >= MAX_ROWS {
                self.unlisted += theirs.hot.count;
            } else {
                let mut slot = Slot { set: AddressSet::default(), ..theirs.clone() };
                slot.set.merge(&theirs.set, &mut self.budget);
                slot.row.first = shift(&theirs.row.first);
                slot.last = Last::at(shift(&theirs.last.read()));
                self.push(slot);
            }
        }
    }

    /// The rows as values, the most events first.
    pub(crate) fn rows(&self) -> Vec<Row> {
        let mut rows: Vec<Row> = self
            .slots
            .iter()
            .map(|slot| {
                let set = slot.set.settled();
                let (addresses, all) = set.addresses();
                let Hot { count, cut, access, lowest, highest, .. } = slot.hot;
                let seen = lowest <= highest;
                let access = AccessCounts::new(&access);
                let mut row = Row { count, access, cut, ..slot.row.clone() };
                row.last = slot.last.read();
                row.addresses = addresses.into_iter().map(BusAddress).collect();
                row.addresses_truncated = !all;
                row.distinct_addresses = set.distinct();
                row.lowest = seen.then_some(BusAddress(lowest));
                row.highest = seen.then_some(BusAddress(highest));
                row
            })
            .collect();
        rows.sort_by(|a, b| {
            b.count.cmp(&a.count).then_with(|| (&a.requester, a.kind).cmp(&(&b.requester, b.kind)))
        });
        rows
    }

    pub(crate) fn first_and_last(&self) -> Option<(Occurrence, Occurrence)> {
        let first = self.slots.iter().map(|slot| &slot.row.first).min_by_key(|at| at.line)?;
        let last = self.slots.iter().max_by_key(|slot| slot.last.occurrence.line)?;
        Some((first.clone(), last.last.read()))
    }

    pub(crate) const fn is_truncated(&self) -> bool {
        self.unlisted > 0
    }
}

/// A number for requester, family and kind. Names share one: the row tells them apart.
#[inline]
fn key(requester: Requester<'_>, iommu: Iommu, kind: Kind) -> u64 {
    let (who, tag) = match requester {
        Requester::Pci(address) => {
            let function = u64::from(address.device()) << 3 | u64::from(address.function());
            let low = u64::from(address.bus()) << 8 | function;
            (u64::from(address.domain()) << 16 | low, 0)
        }
        Requester::Stream(id) => (u64::from(id), 1),
        Requester::Named(_) => (0, 2),
        Requester::Unknown => (0, 3),
    };
    let kind = u64::from(kind.index());
    let family = match iommu {
        Iommu::AmdVi => 0,
        Iommu::VtD => 1,
        Iommu::SmmuV2 => 2,
        Iommu::SmmuV3 => 3,
    };
    who << 16 | kind << 8 | tag << 4 | family
}

/// Which small properties of events are in a row already, so that the same again costs a few
/// comparisons.
#[derive(Clone, Debug, Default)]
struct Noted {
    /// Bit by bit: flag words below 64, and the same of reason codes.
    flags: u64,
    reasons: u64,
    /// The last domain, plus one.
    domain: u64,
    /// The last driver's name.
    driver: u128,
}

impl Noted {
    /// Whether an event's small properties are in the row already. Notes those that fit.
    #[inline]
    fn knows(&mut self, event: &Event<'_>) -> bool {
        if event.pasid.is_some() || event.words.is_some() || event.unit.is_some() {
            return false;
        }
        let (Some(flags), Some(reasons)) =
            (bit(event.flags), bit(event.reason.map(|reason| reason.code)))
        else {
            return false;
        };
        let Some(driver) = driver_number(event) else { return false };
        let domain = event.domain.map_or(self.domain, |domain| u64::from(domain) + 1);
        let driver = if driver == 0 { self.driver } else { driver };
        // All at once: which of them is new does not matter.
        let new = (flags & !self.flags)
            | (reasons & !self.reasons)
            | (domain ^ self.domain)
            | u64::from(driver != self.driver);
        self.flags |= flags;
        self.reasons |= reasons;
        self.domain = domain;
        self.driver = driver;
        new == 0
    }
}

/// A value below 64 as a bit, none as no bit; `None` if it is larger.
#[inline]
fn bit(value: Option<u32>) -> Option<u64> {
    value.map_or(Some(0), |value| 1_u64.checked_shl(value))
}

/// A driver's name as a number, 0 without one; `None` if it is longer than 16 bytes.
#[inline]
fn driver_number(event: &Event<'_>) -> Option<u128> {
    let Some(driver) = event.driver else { return Some(0) };
    let bytes = match event.text.first_chunk::<16>() {
        // The message begins with it: its end is cut off below.
        Some(bytes) if std::ptr::eq(bytes.as_ptr(), driver.as_ptr()) => *bytes,
        _ => {
            let mut bytes = [0; 16];
            bytes.get_mut(..driver.len())?.copy_from_slice(driver.as_bytes());
            bytes
        }
    };
    let spare = 16_u32.checked_sub(u32::try_from(driver.len()).ok()?)?;
    // No byte of a name is 0: what remains tells its length.
    Some(u128::from_be_bytes(bytes).checked_shr(8 * spare).unwrap_or(0))
}

fn occurrence(event: &Event<'_>) -> Occurrence {
    Occurrence { line: event.line, boot: event.boot, stamp: event.when.stamp() }
}

/// Bytes of an envelope that are kept. Longer ones are read at once.
const ENVELOPE: usize = 64;

/// Where and when the last event was logged; its time stays in its envelope until it is asked for.
#[derive(Clone, Debug)]
struct Last {
    occurrence: Occurrence,
    envelope: [u8; ENVELOPE],
    len: usize,
}

impl Last {
    #[inline]
    fn note(&mut self, event: &Event<'_>) {
        self.occurrence.line = event.line;
        self.occurrence.boot = event.boot;
        if let Some((len @ 1..=ENVELOPE, chunk)) = event.when.chunk::<ENVELOPE>() {
            // All of them: a copy of a known length is a few instructions.
            self.envelope = *chunk;
            self.len = len;
        } else {
            self.occurrence.stamp = event.when.stamp();
            self.len = 0;
        }
    }

    fn read(&self) -> Occurrence {
        let mut occurrence = self.occurrence.clone();
        if let Some(envelope) = self.envelope.get(..self.len).filter(|raw| !raw.is_empty()) {
            occurrence.stamp = crate::envelope::strip(envelope).stamp;
        }
        occurrence
    }

    const fn at(occurrence: Occurrence) -> Self {
        Self { occurrence, envelope: [0; ENVELOPE], len: 0 }
    }
}

fn region_of(regions: &[Region], address: u64) -> Option<&Region> {
    let after = regions.partition_point(|region| region.start <= address);
    let region = regions.get(after.checked_sub(1)?)?;
    (address <= region.end).then_some(region)
}

fn hit(hits: &mut Vec<Hits>, region: &Region, address: u64, count: u64) {
    let offset = address - region.start;
    match hits.iter_mut().find(|hits| hits.tag == region.tag) {
        Some(hits) => {
            hits.count += count;
            hits.offset_lowest = hits.offset_lowest.min(offset);
            hits.offset_highest = hits.offset_highest.max(offset);
        }
        None => hits.push(Hits {
            tag: region.tag,
            count,
            offset_lowest: offset,
            offset_highest: offset,
        }),
    }
}

/// Keeps the small properties of an event that the row does not have yet.
#[inline]
fn note(row: &mut Row, event: &Event<'_>) {
    keep_text(&mut row.drivers, event.driver);
    keep_text(&mut row.units, event.unit);
    keep(&mut row.flags, event.flags);
    keep(&mut row.domains, event.domain);
    keep(&mut row.pasids, event.pasid);
    if row.words.is_none() {
        row.words = event.words;
    }
    if let Some(reason) = event.reason
        && row.reasons.len() < MAX_VALUES
        && !row.reasons.iter().any(|(code, _)| *code == reason.code)
    {
        let text = reason.text.get(..MAX_TEXT).unwrap_or(reason.text);
        row.reasons.push((reason.code, text.to_owned()));
    }
}

#[inline]
fn keep(values: &mut Vec<u32>, value: Option<u32>) {
    if let Some(value) = value
        && !values.contains(&value)
        && values.len() < MAX_VALUES
    {
        values.push(value);
    }
}

#[inline]
fn keep_text(values: &mut Vec<String>, value: Option<&str>) {
    if let Some(value) = value
        && !values.iter().any(|known| known == value)
        && values.len() < MAX_VALUES
    {
        values.push(value.to_owned());
    }
}

fn merge(mine: &mut Slot, theirs: &Slot, budget: &mut Budget) {
    mine.hot.count += theirs.hot.count;
    mine.hot.cut += theirs.hot.cut;
    for (mine, theirs) in mine.hot.access.iter_mut().zip(theirs.hot.access) {
        *mine += theirs;
    }
    mine.hot.lowest = mine.hot.lowest.min(theirs.hot.lowest);
    mine.hot.highest = mine.hot.highest.max(theirs.hot.highest);
    mine.set.merge(&theirs.set, budget);
    mine.row.words = mine.row.words.or(theirs.row.words);
    for hits in &theirs.row.regions {
        let region = Region { start: 0, end: u64::MAX, tag: hits.tag };
        hit(&mut mine.row.regions, &region, hits.offset_lowest, hits.count);
        hit(&mut mine.row.regions, &region, hits.offset_highest, 0);
    }
    for driver in &theirs.row.drivers {
        keep_text(&mut mine.row.drivers, Some(driver));
    }
    for unit in &theirs.row.units {
        keep_text(&mut mine.row.units, Some(unit));
    }
    for (to, from) in [
        (&mut mine.row.flags, &theirs.row.flags),
        (&mut mine.row.domains, &theirs.row.domains),
        (&mut mine.row.pasids, &theirs.row.pasids),
    ] {
        for value in from {
            keep(to, Some(*value));
        }
    }
    for (code, text) in &theirs.row.reasons {
        if mine.row.reasons.len() < MAX_VALUES
            && !mine.row.reasons.iter().any(|(known, _)| known == code)
        {
            mine.row.reasons.push((*code, text.clone()));
        }
    }
}
