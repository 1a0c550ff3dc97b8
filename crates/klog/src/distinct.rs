//! Counting distinct addresses in bounded memory: exactly up to a cap, estimated above it.

use serde::{Deserialize, Serialize};

/// Addresses kept per row, and the count up to which it is exact.
pub const MAX_ADDRESSES: usize = 4_096;

/// Addresses wait here until so many can be looked up together: the tables of many requesters do
/// not fit into a cache, and loads that do not depend on each other wait for memory together.
const BATCH: usize = 16;

/// Every set may have this many slots, whatever the others took: 1 KiB.
const MIN_SLOTS: usize = 128;

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
/// sample costs one comparison.
#[derive(Clone, Debug)]
pub(crate) struct AddressSet {
    /// Open addressing over hashes; 0 marks a free slot. Hashing is one to one, so that the
    /// address comes back from its hash.
    slots: Vec<u64>,
    /// The one value that has no slot, since its hash is 0.
    has_zero: bool,
    len: usize,
    /// Hashes above this one do not belong into the sample.
    threshold: u64,
    /// The hash that came last: storms repeat themselves.
    last: u64,
    waiting: [u64; BATCH],
    waiting_len: usize,
}

impl Default for AddressSet {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            has_zero: false,
            len: 0,
            threshold: u64::MAX,
            last: 0,
            waiting: [0; BATCH],
            waiting_len: 0,
        }
    }
}

/// Room for slots that several sets share, so that many requesters cannot exhaust memory.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    slots: usize,
}

impl Budget {
    /// Room for 128 samples (64 requesters with two kinds of event): 4 MiB.
    pub(crate) const fn new() -> Self {
        Self { slots: 128 * MAX_ADDRESSES }
    }

    const fn take(&mut self, slots: usize) -> bool {
        match self.slots.checked_sub(slots) {
            Some(rest) => {
                self.slots = rest;
                true
            }
            None => false,
        }
    }
}

/// Spreads the bits of a value, one to one (the finaliser of `SplitMix64`). 0 stays 0.
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

impl AddressSet {
    /// Adds an address.
    #[inline]
    pub(crate) fn insert(&mut self, address: u64, budget: &mut Budget) {
        let hash = mix(address);
        if hash > self.threshold || (hash == self.last && hash != 0) {
            return;
        }
        self.last = hash;
        if let Some(place) = self.waiting.get_mut(self.waiting_len) {
            *place = hash;
            self.waiting_len += 1;
        }
        if self.waiting_len == BATCH {
            self.settle(budget);
        }
    }

    /// Looks up what waits.
    pub(crate) fn settle(&mut self, budget: &mut Budget) {
        let waiting = self.waiting;
        let waiting = waiting.get(..self.waiting_len).unwrap_or_default();
        self.waiting_len = 0;
        // Touch all their places first, so that the processor fetches them side by side.
        let mask = self.slots.len().wrapping_sub(1);
        let touched = waiting.iter().filter_map(|hash| self.slots.get(slot_of(*hash, mask)));
        std::hint::black_box(touched.fold(0, |all, slot| all | slot));
        for hash in waiting {
            if *hash <= self.threshold {
                self.insert_hash(*hash, budget);
            }
        }
    }

    fn insert_hash(&mut self, hash: u64, budget: &mut Budget) {
        if hash == 0 {
            self.len += usize::from(!self.has_zero);
            self.has_zero = true;
            return;
        }
        let mask = self.slots.len().wrapping_sub(1);
        let mut at = slot_of(hash, mask);
        while let Some(slot) = self.slots.get(at) {
            if *slot == hash {
                return;
            }
            if *slot == 0 {
                break;
            }
            at = (at + 1) & mask;
        }
        self.make_room(budget);
        if hash <= self.threshold {
            self.place(hash);
            self.len += 1;
        }
    }

    fn make_room(&mut self, budget: &mut Budget) {
        let is_sample = self.threshold != u64::MAX;
        let room = self.slots.len() / 4 * if is_sample { 3 } else { 2 };
        if self.len < room {
            return;
        }
        let grown = (self.slots.len() * 2).max(8);
        let may_grow = !is_sample && grown <= 2 * MAX_ADDRESSES;
        if may_grow && (grown <= MIN_SLOTS || budget.take(grown - self.slots.len())) {
            self.rebuild(grown, u64::MAX);
            return;
        }
        // The lower half stays. A full set goes on in half of its slots.
        let mut hashes: Vec<u64> = self.hashes().collect();
        let keep = if is_sample { hashes.len() / 2 } else { self.slots.len() / 4 };
        if keep < hashes.len() {
            let (_, limit, _) = hashes.select_nth_unstable(keep);
            self.threshold = limit.saturating_sub(1);
            let slots = if is_sample { self.slots.len() } else { self.slots.len() / 2 };
            budget.slots += self.slots.len() - slots;
            self.rebuild(slots.max(MIN_SLOTS), self.threshold);
        }
    }

    fn rebuild(&mut self, slots: usize, limit: u64) {
        let old = std::mem::replace(&mut self.slots, vec![0; slots]);
        self.len = usize::from(self.has_zero);
        for hash in old {
            if hash != 0 && hash <= limit {
                self.place(hash);
                self.len += 1;
            }
        }
    }

    fn place(&mut self, hash: u64) {
        let mask = self.slots.len().wrapping_sub(1);
        let mut at = slot_of(hash, mask);
        while let Some(slot) = self.slots.get_mut(at) {
            if *slot == 0 {
                *slot = hash;
                return;
            }
            at = (at + 1) & mask;
        }
    }

    fn hashes(&self) -> impl Iterator<Item = u64> + '_ {
        let zero = self.has_zero.then_some(0);
        zero.into_iter().chain(self.slots.iter().copied().filter(|hash| *hash != 0))
    }

    /// The addresses that are kept, in order, and whether these are all.
    pub(crate) fn addresses(&self) -> (Vec<u64>, bool) {
        let settled = self.settled();
        let mut all: Vec<u64> = settled.hashes().map(unmix).collect();
        all.sort_unstable();
        (all, settled.threshold == u64::MAX)
    }

    /// How many distinct addresses were added.
    pub(crate) fn distinct(&self) -> Distinct {
        let settled = self.settled();
        let kept = u64::try_from(settled.len).unwrap_or(u64::MAX);
        if settled.threshold == u64::MAX {
            return Distinct { value: kept, exact: true };
        }
        // All hashes up to the threshold are kept: their number, over the threshold's share.
        let estimate = (u128::from(kept) << 64) / (u128::from(settled.threshold) + 1);
        Distinct { value: u64::try_from(estimate).unwrap_or(u64::MAX), exact: false }
    }

    /// The same set with nothing waiting.
    fn settled(&self) -> Self {
        let mut settled = self.clone();
        // What it holds is paid for; it may grow by what waits.
        settled.settle(&mut Budget { slots: 2 * self.slots.len() });
        settled
    }

    /// Adds all that another set holds.
    pub(crate) fn merge(&mut self, other: &Self, budget: &mut Budget) {
        self.settle(budget);
        let other = other.settled();
        if other.threshold < self.threshold {
            self.threshold = other.threshold;
            self.rebuild(self.slots.len(), other.threshold);
        }
        for hash in other.hashes() {
            if hash <= self.threshold {
                self.insert_hash(hash, budget);
            }
        }
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
        let mut budget = Budget { slots: 0 };
        let mut set = AddressSet::default();
        for value in 1..=10_000 {
            set.insert(value, &mut budget);
        }
        assert!(!set.distinct().exact);
        assert!(set.addresses().0.len() <= 96);
        assert!(set.distinct().value.abs_diff(10_000) < 5_000, "{:?}", set.distinct());
    }
}
