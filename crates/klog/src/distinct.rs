//! Counting distinct addresses in bounded memory: exactly up to a cap, estimated above it.

use serde::{Deserialize, Serialize};

/// Addresses kept per row, and the count up to which it is exact.
pub const MAX_ADDRESSES: usize = 4_096;

/// A full sample is thinned out when it has grown by a quarter, so that thinning is rare.
const SLACK: usize = MAX_ADDRESSES / 4;

/// Every set may have this many slots, whatever the others took: 1 KiB.
const MIN_SLOTS: usize = 128;

/// How many distinct values were seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Distinct {
    /// The number.
    pub value: u64,
    /// Whether it was counted; else it is estimated, from 4,096 addresses with a standard error
    /// of 1.6 %.
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
}

impl Default for AddressSet {
    fn default() -> Self {
        Self { slots: Vec::new(), has_zero: false, len: 0, threshold: u64::MAX, last: 0 }
    }
}

/// Room for slots that several sets share, so that many requesters cannot exhaust memory.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    slots: usize,
}

impl Budget {
    /// Room for 64 full sets of two kinds of event each: 8 MiB.
    pub(crate) const fn new() -> Self {
        Self { slots: 128 * 2 * MAX_ADDRESSES }
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
        if hash <= self.threshold && (hash != self.last || self.len == 0) {
            self.last = hash;
            self.insert_hash(hash, budget);
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

    /// How many may be kept in the slots at hand.
    fn capacity(&self) -> usize {
        (self.slots.len() / 2).min(MAX_ADDRESSES)
    }

    fn make_room(&mut self, budget: &mut Budget) {
        if self.len < self.capacity() {
            return;
        }
        let full = self.slots.len() >= 2 * MAX_ADDRESSES;
        let grown = (self.slots.len() * 2).max(8);
        if !full && (grown <= MIN_SLOTS || budget.take(grown - self.slots.len())) {
            self.rebuild(grown, u64::MAX);
            return;
        }
        // Once it is a sample it may grow a little before it is thinned out.
        let slack = if full { SLACK } else { self.slots.len() / 8 };
        if self.threshold == u64::MAX || self.len >= self.capacity() + slack {
            let limit = self.limit();
            self.threshold = limit;
            self.rebuild(self.slots.len(), limit);
        }
    }

    /// The hash up to which the capacity's number of hashes lie, less one that makes room.
    fn limit(&self) -> u64 {
        let mut hashes: Vec<u64> = self.hashes().collect();
        let keep = self.capacity().saturating_sub(1);
        if keep >= hashes.len() {
            return self.threshold;
        }
        let (_, limit, _) = hashes.select_nth_unstable(keep);
        limit.saturating_sub(1)
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

    /// The lowest hashes in order, no more than the cap.
    fn sample(&self) -> Vec<u64> {
        let mut hashes: Vec<u64> = self.hashes().collect();
        hashes.sort_unstable();
        hashes.truncate(MAX_ADDRESSES);
        hashes
    }

    /// The addresses that are kept, in order, and whether these are all.
    pub(crate) fn addresses(&self) -> (Vec<u64>, bool) {
        let mut all: Vec<u64> = self.sample().into_iter().map(unmix).collect();
        all.sort_unstable();
        (all, self.threshold == u64::MAX)
    }

    /// How many distinct addresses were added.
    pub(crate) fn distinct(&self) -> Distinct {
        let sample = self.sample();
        let kept = u64::try_from(sample.len()).unwrap_or(u64::MAX);
        let Some(highest) = sample.last().filter(|_| self.threshold != u64::MAX) else {
            return Distinct { value: kept, exact: true };
        };
        // (k - 1) / (k-th lowest hash as a share of all hashes), in whole numbers.
        let estimate = u128::from(kept.saturating_sub(1)) << 64;
        let estimate = estimate / (u128::from(*highest) + 1);
        Distinct { value: u64::try_from(estimate).unwrap_or(u64::MAX).max(kept), exact: false }
    }

    /// Adds all that another set holds.
    pub(crate) fn merge(&mut self, other: &Self, budget: &mut Budget) {
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
            set.insert(value / 2 << 12, &mut budget);
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
            assert!(error * 100 <= count * 8, "{count} was estimated as {}", seen.value);
            let (addresses, all) = filled(count).addresses();
            assert!(!all && addresses.len() <= MAX_ADDRESSES && addresses.len() >= 4_000);
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
        assert!(many.distinct().value.abs_diff(50_000) < 4_000, "{:?}", many.distinct());
    }

    #[test]
    fn without_room_it_is_estimated_early() {
        let mut budget = Budget { slots: 0 };
        let mut set = AddressSet::default();
        for value in 1..=10_000 {
            set.insert(value, &mut budget);
        }
        assert!(!set.distinct().exact);
        assert!(set.addresses().0.len() <= 80);
        assert!(set.distinct().value.abs_diff(10_000) < 5_000, "{:?}", set.distinct());
    }
}
