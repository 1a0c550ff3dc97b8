//! Counting distinct addresses in bounded memory: exactly up to a cap, estimated above it.

use serde::{Deserialize, Serialize};

/// Addresses kept per row, and the count up to which it is exact.
pub const MAX_ADDRESSES: usize = 4_096;

/// Registers of the sketch, as a power of two: 4,096 bytes and a standard error of 1.6 %.
const SKETCH_BITS: u32 = 12;

/// How many distinct values were seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct Distinct {
    /// The number.
    pub value: u64,
    /// Whether it was counted; else it is estimated, with a standard error of 1.6 %.
    pub exact: bool,
}

/// A set of addresses that turns into an estimate when it is full.
#[derive(Clone, Debug, Default)]
pub(crate) struct AddressSet {
    /// Open addressing; 0 marks a free slot.
    slots: Vec<u64>,
    /// Address 0, which has no slot.
    has_zero: bool,
    len: usize,
    last: Option<u64>,
    /// Since the set is full: one register per byte.
    sketch: Vec<u8>,
}

/// Room for slots that several sets share, so that many requesters cannot exhaust memory.
#[derive(Clone, Debug)]
pub(crate) struct Budget {
    slots: usize,
}

impl Budget {
    /// Room for 64 sets at their cap: 4 MiB.
    pub(crate) const fn new() -> Self {
        Self { slots: 64 * 2 * MAX_ADDRESSES }
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

/// Spreads the bits of an address (the finaliser of SplitMix64).
#[inline]
pub(crate) const fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
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
        if self.last == Some(address) {
            return;
        }
        self.last = Some(address);
        if !self.sketch.is_empty() {
            self.sketch_in(address);
        } else if address == 0 {
            if !self.has_zero {
                self.has_zero = true;
                self.len += 1;
            }
        } else {
            self.insert_exact(address, budget);
        }
    }

    fn insert_exact(&mut self, address: u64, budget: &mut Budget) {
        let mask = self.slots.len().wrapping_sub(1);
        let mut at = slot_of(mix(address), mask);
        while let Some(slot) = self.slots.get(at) {
            if *slot == address {
                return;
            }
            if *slot == 0 {
                break;
            }
            at = (at + 1) & mask;
        }
        if self.len >= MAX_ADDRESSES || !self.has_room(budget) {
            self.begin_sketch();
            self.sketch_in(address);
            return;
        }
        self.place(address);
        self.len += 1;
    }

    /// Keeps at least half of the slots free; grows within the budget.
    fn has_room(&mut self, budget: &mut Budget) -> bool {
        if (self.len + 1) * 2 <= self.slots.len() {
            return true;
        }
        let grown = (self.slots.len() * 2).max(8);
        if !budget.take(grown - self.slots.len()) {
            return false;
        }
        let old = std::mem::replace(&mut self.slots, vec![0; grown]);
        for address in old {
            if address != 0 {
                self.place(address);
            }
        }
        true
    }

    fn place(&mut self, address: u64) {
        let mask = self.slots.len().wrapping_sub(1);
        let mut at = slot_of(mix(address), mask);
        while let Some(slot) = self.slots.get_mut(at) {
            if *slot == 0 {
                *slot = address;
                return;
            }
            at = (at + 1) & mask;
        }
    }

    fn begin_sketch(&mut self) {
        self.sketch = vec![0; 1 << SKETCH_BITS];
        let kept: Vec<u64> = self.kept().collect();
        for address in kept {
            self.sketch_in(address);
        }
    }

    #[inline]
    fn sketch_in(&mut self, address: u64) {
        let hash = mix(address ^ 0x9e37_79b9_7f4a_7c15);
        let at = slot_of(hash, (1 << SKETCH_BITS) - 1);
        let rest = hash >> SKETCH_BITS;
        let rank = rest.trailing_zeros().min(64 - SKETCH_BITS) + 1;
        if let Some(register) = self.sketch.get_mut(at)
            && u32::from(*register) < rank
        {
            *register = u8::try_from(rank).unwrap_or(u8::MAX);
        }
    }

    fn kept(&self) -> impl Iterator<Item = u64> + '_ {
        let zero = self.has_zero.then_some(0);
        zero.into_iter().chain(self.slots.iter().copied().filter(|address| *address != 0))
    }

    /// The addresses that are kept, in order, and whether these are all.
    pub(crate) fn addresses(&self) -> (Vec<u64>, bool) {
        let mut all: Vec<u64> = self.kept().collect();
        all.sort_unstable();
        (all, self.sketch.is_empty())
    }

    /// How many distinct addresses were added.
    pub(crate) fn distinct(&self) -> Distinct {
        let kept = u64::try_from(self.len).unwrap_or(u64::MAX);
        if self.sketch.is_empty() {
            return Distinct { value: kept, exact: true };
        }
        Distinct { value: estimate(&self.sketch).max(kept), exact: false }
    }

    /// Adds all that another set holds.
    pub(crate) fn merge(&mut self, other: &Self, budget: &mut Budget) {
        let kept: Vec<u64> = other.kept().collect();
        for address in kept {
            self.insert(address, budget);
        }
        if other.sketch.is_empty() {
            return;
        }
        if self.sketch.is_empty() {
            self.begin_sketch();
        }
        for (mine, theirs) in self.sketch.iter_mut().zip(&other.sketch) {
            *mine = (*mine).max(*theirs);
        }
    }
}

/// Number of distinct values in a sketch, without bias over the whole range: O. Ertl, "New
/// cardinality estimation algorithms for HyperLogLog sketches", 2017, algorithm 6.
fn estimate(registers: &[u8]) -> u64 {
    let mut counts = [0_u32; 66];
    for register in registers {
        if let Some(count) = counts.get_mut(usize::from(*register)) {
            *count += 1;
        }
    }
    let m = f64::from(1_u32 << SKETCH_BITS);
    let top = 64 - SKETCH_BITS;
    let count = |rank: u32| {
        usize::try_from(rank).ok().and_then(|rank| counts.get(rank)).map_or(0.0, |n| f64::from(*n))
    };
    let mut z = m * tau(1.0 - count(top + 1) / m);
    for rank in (1..=top).rev() {
        z = 0.5 * (z + count(rank));
    }
    z += m * sigma(count(0) / m);
    let value = (m * m / (2.0 * std::f64::consts::LN_2) / z).round();
    if !value.is_finite() || value >= 1.8e19 {
        return u64::MAX;
    }
    #[expect(
        clippy::as_conversions,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "finite, not negative and below 2^64, as checked"
    )]
    let value = value as u64;
    value
}

fn sigma(x: f64) -> f64 {
    if x >= 1.0 {
        return f64::INFINITY;
    }
    let (mut x, mut y, mut z) = (x, 1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if z <= before {
            return z;
        }
    }
}

fn tau(x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return 0.0;
    }
    let (mut x, mut y, mut z) = (x, 1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x) * (1.0 - x) * y;
        if z >= before {
            return z / 3.0;
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
        }
        set
    }

    #[test]
    fn exact_up_to_the_cap() {
        for count in [0, 1, 2, 100, 4_095, 4_096] {
            let set = filled(count);
            assert_eq!(set.distinct(), Distinct { value: count, exact: true });
            let (addresses, all) = set.addresses();
            assert_eq!((addresses.len(), all), (usize::try_from(count).unwrap(), true));
        }
    }

    #[test]
    fn estimated_above_it() {
        for count in [4_097_u64, 5_000, 10_000, 20_000, 100_000, 1_000_000] {
            let set = filled(count);
            let seen = set.distinct();
            assert!(!seen.exact);
            let error = seen.value.abs_diff(count);
            // Five standard errors.
            assert!(error * 100 <= count * 8, "{count} was estimated as {}", seen.value);
            assert_eq!(set.addresses().0.len(), MAX_ADDRESSES);
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
        assert_eq!(many.distinct().value, filled(50_000).distinct().value);
    }

    #[test]
    fn without_room_it_is_estimated_at_once() {
        let mut budget = Budget { slots: 8 };
        let mut set = AddressSet::default();
        for value in 1..=100 {
            set.insert(value, &mut budget);
        }
        assert!(!set.distinct().exact);
        assert!(set.distinct().value.abs_diff(100) < 20, "{:?}", set.distinct());
        assert_eq!(set.addresses().0.len(), 4);
    }
}
