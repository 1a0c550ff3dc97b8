//! Counting distinct addresses in bounded memory: exactly up to a cap, estimated above it.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

/// Addresses kept per row, and the count up to which it is exact.
pub const MAX_ADDRESSES: usize = 4_096;

/// Every set may keep this many hashes, whatever the others took: 1.5 KiB with those that wait.
const LEAST: usize = 128;

/// Hashes that wait to be sorted, for a set of this many: a share of it, within bounds.
const fn waiting_room(size: usize) -> usize {
    let share = size / 4;
    if share < 64 { 64 } else { share }
}

/// How many distinct values were seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Distinct {
    /// The number.
    pub value: u64,
    /// Whether it was counted; else it is estimated, from at least 1,536 addresses: with a
    /// standard error of 2.6 % at most.
    pub exact: bool,
}

/// A set of addresses that becomes a sample when it is full: those whose hashes are lowest. The
/// sample is uniform over the distinct addresses, and how low its highest hash lies says how many
/// there are (the "k minimum values" estimate). A new address that does not belong into the
/// sample costs one comparison; one that does is written behind the last, and looked up with many
/// others at a time, since a table for each of many requesters would not fit into a cache.
#[derive(Clone, Debug)]
pub(crate) struct AddressSet {
    /// In order, each once. Hashing is one to one, so that the address comes back from its hash.
    kept: Vec<u64>,
    /// What came since, in any order and perhaps more than once: so many at the front of this.
    waiting: Vec<u64>,
    waiting_len: usize,
    /// How many hashes may be kept now.
    size: usize,
    /// Hashes above this one do not belong into the sample.
    threshold: u64,
    /// The hash that came last: storms repeat themselves.
    last: Option<u64>,
}

impl Default for AddressSet {
    fn default() -> Self {
        Self {
            kept: Vec::new(),
            waiting: Vec::new(),
            waiting_len: 0,
            size: LEAST,
            threshold: u64::MAX,
            last: None,
        }
    }
}

/// Room for hashes that several sets share, so that many requesters cannot exhaust memory.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    hashes: usize,
    /// Where two runs are merged: one for all sets, so that no set needs a second room of its own.
    merged: Vec<u64>,
}

impl Budget {
    /// Room for 128 full sets (64 requesters with two kinds of event): 5 MiB.
    pub(crate) const fn new() -> Self {
        Self::of(128 * (MAX_ADDRESSES + waiting_room(MAX_ADDRESSES)))
    }

    const fn of(hashes: usize) -> Self {
        Self { hashes, merged: Vec::new() }
    }

    const fn take(&mut self, hashes: usize) -> bool {
        match self.hashes.checked_sub(hashes) {
            Some(rest) => {
                self.hashes = rest;
                true
            }
            None => false,
        }
    }
}

/// Spreads the bits of a value, one to one (the finaliser of `SplitMix64`).
#[inline]
pub(crate) const fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

/// The value that [`mix`] made this of.
const fn unmix(hash: u64) -> u64 {
    let value = hash ^ (hash >> 31) ^ (hash >> 62);
    let value = value.wrapping_mul(0x3196_42b2_d24d_8ec3);
    let value = value ^ (value >> 27) ^ (value >> 54);
    let value = value.wrapping_mul(0x96de_1b17_3f11_9089);
    value ^ (value >> 30) ^ (value >> 60)
}

/// The low bits of a hash as an index.
#[inline]
pub(crate) fn slot_of(hash: u64, mask: usize) -> usize {
    usize::try_from(hash & 0xffff_ffff).unwrap_or(0) & mask
}

/// Takes the lower of two fronts.
#[inline]
fn lower<'a>(a: &mut &'a [u64], b: &mut &'a [u64]) -> Option<u64> {
    let from = match (a.first(), b.first()) {
        (Some(first), Some(second)) if first <= second => a,
        (Some(_), None) => a,
        _ => b,
    };
    let (first, rest) = from.split_first()?;
    *from = rest;
    Some(*first)
}

impl AddressSet {
    /// Adds an address.
    #[inline]
    pub(crate) fn insert(&mut self, address: u64, budget: &mut Budget) {
        let hash = mix(address);
        if Some(hash) == self.last {
            return;
        }
        self.last = Some(hash);
        // Written behind the last in any case. Whether it counts decides where the next one goes,
        // and not which way the processor takes: it would guess wrong half of the time.
        if self.waiting_len >= self.waiting.len() {
            self.settle(budget);
        }
        if let Some(place) = self.waiting.get_mut(self.waiting_len) {
            *place = hash;
            self.waiting_len += usize::from(hash <= self.threshold);
        }
    }

    /// Sorts in what waits.
    #[cold]
    fn settle(&mut self, budget: &mut Budget) {
        let mut waiting = std::mem::take(&mut self.waiting);
        if let Some(some) = waiting.get_mut(..self.waiting_len) {
            some.sort_unstable();
            self.absorb(some, budget);
        }
        waiting.resize(waiting_room(self.size), 0);
        self.waiting = waiting;
        self.waiting_len = 0;
    }

    /// Merges hashes in, which are in order.
    fn absorb(&mut self, others: &[u64], budget: &mut Budget) {
        let merged = &mut budget.merged;
        merged.clear();
        merged.reserve(self.kept.len() + others.len());
        let (mut mine, mut theirs) = (self.kept.as_slice(), others);
        let mut last = None;
        while let Some(hash) = lower(&mut mine, &mut theirs)
            && hash <= self.threshold
        {
            if last.replace(hash) != Some(hash) {
                merged.push(hash);
            }
        }
        self.kept.clear();
        self.kept.reserve_exact(merged.len());
        self.kept.extend_from_slice(merged);
        self.make_room(budget);
    }

    /// Lets the set grow until what it keeps fits, or makes it a sample.
    fn make_room(&mut self, budget: &mut Budget) {
        let is_sample = self.threshold != u64::MAX;
        while !is_sample && self.kept.len() > self.size && self.grow(budget) {}
        let most = if is_sample { self.size / 4 * 3 } else { self.size };
        if self.kept.len() > most {
            self.threshold = self.kept.get(most / 2).map_or(0, |hash| hash.saturating_sub(1));
            self.kept.truncate(most / 2);
            self.kept.shrink_to(self.size);
        }
    }

    /// Doubles what may be kept, up to the cap.
    fn grow(&mut self, budget: &mut Budget) -> bool {
        let size = 2 * self.size;
        let more = size + waiting_room(size) - self.size - waiting_room(self.size);
        let grows = size <= MAX_ADDRESSES && budget.take(more);
        if grows {
            self.size = size;
        }
        grows
    }

    /// The addresses that are kept, in order, and whether these are all.
    pub(crate) fn addresses(&self) -> (Vec<u64>, bool) {
        let settled = self.settled();
        let mut all: Vec<u64> = settled.kept.iter().copied().map(unmix).collect();
        all.sort_unstable();
        (all, settled.threshold == u64::MAX)
    }

    /// Sorts in what waits, so that a reader has nothing left to do.
    pub(crate) fn sort_in(&mut self, budget: &mut Budget) {
        if self.waiting_len > 0 {
            self.settle(budget);
        }
    }

    /// How many distinct addresses were added.
    pub(crate) fn distinct(&self) -> Distinct {
        let settled = self.settled();
        let kept = u64::try_from(settled.kept.len()).unwrap_or(u64::MAX);
        if settled.threshold == u64::MAX {
            return Distinct { value: kept, exact: true };
        }
        // All hashes up to the threshold are kept: their number, over the threshold's share.
        let estimate = (u128::from(kept) << 64) / (u128::from(settled.threshold) + 1);
        Distinct { value: u64::try_from(estimate).unwrap_or(u64::MAX), exact: false }
    }

    /// The same set with nothing waiting.
    pub(crate) fn settled(&self) -> Cow<'_, Self> {
        if self.waiting_len == 0 {
            return Cow::Borrowed(self);
        }
        let mut settled = self.clone();
        // What it holds is paid for; it may grow by what waits.
        settled.settle(&mut Budget::of(4 * MAX_ADDRESSES));
        Cow::Owned(settled)
    }

    /// Adds all that another set holds.
    pub(crate) fn merge(&mut self, other: &Self, budget: &mut Budget) {
        while self.size < other.size && self.grow(budget) {}
        self.threshold = self.threshold.min(other.threshold);
        self.settle(budget);
        self.absorb(&other.settled().kept, budget);
        self.waiting.resize(waiting_room(self.size), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn filled(count: u64) -> AddressSet {
        let mut set = AddressSet::default();
        let mut budget = Budget::new();
        for value in 0..count {
            set.insert(value << 12, &mut budget);
            set.insert(value << 12, &mut budget);
            set.insert((value / 2) << 12, &mut budget);
        }
        set
    }

    #[test]
    fn hashing_is_one_to_one() {
        for value in [0, 1, 0x1000, 0x0240_0000_0000, u64::MAX, 0x9e37_79b9_7f4a_7c15] {
            assert_eq!(unmix(mix(value)), value);
        }
    }

    #[test]
    fn exact_up_to_the_cap() {
        for count in [0, 1, 2, 100, 4_095, 4_096] {
            let set = filled(count);
            assert_eq!(set.distinct(), Distinct { value: count, exact: true });
            let (addresses, all) = set.addresses();
            assert!(all);
            assert_eq!(addresses, (0..count).map(|value| value << 12).collect::<Vec<_>>());
        }
    }

    #[test]
    fn estimated_above_it() {
        for count in [4_097_u64, 5_000, 10_000, 20_000, 100_000, 1_000_000] {
            let seen = filled(count).distinct();
            assert!(!seen.exact, "{count}");
            // Five standard errors.
            let error = seen.value.abs_diff(count);
            assert!(error * 100 <= count * 13, "{count} was estimated as {}", seen.value);
            let (addresses, all) = filled(count).addresses();
            assert!(!all && addresses.len() <= MAX_ADDRESSES && addresses.len() >= 1_500);
            assert!(addresses.iter().all(|address| address >> 12 < count));
        }
    }

    #[test]
    fn a_merged_set_is_the_set_of_both() {
        let mut budget = Budget::new();
        let mut few = filled(10);
        few.merge(&filled(20), &mut budget);
        assert_eq!(few.distinct(), Distinct { value: 20, exact: true });
        let mut many = filled(10);
        many.merge(&filled(50_000), &mut budget);
        many.merge(&filled(100), &mut budget);
        assert!(!many.distinct().exact);
        assert!(many.distinct().value.abs_diff(50_000) < 6_000, "{:?}", many.distinct());
    }

    #[test]
    fn without_room_it_is_estimated_early() {
        let mut budget = Budget::of(0);
        let mut set = AddressSet::default();
        for value in 1..=10_000 {
            set.insert(value, &mut budget);
        }
        assert!(!set.distinct().exact);
        assert!(set.addresses().0.len() <= 96);
        assert!(set.distinct().value.abs_diff(10_000) < 5_000, "{:?}", set.distinct());
    }
}
