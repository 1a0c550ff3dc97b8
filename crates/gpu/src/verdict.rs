//! From what stands in memory to what happened to the data. Pure.

use crate::result::{Damage, DamageReport, PageRun};
use crate::tag::{Content, Header, UNIT};

/// What a tested piece of memory should hold: the payload within a range of bytes, and around it
/// what was there before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expectation {
    pub(crate) payload: Header,
    pub(crate) poison: Header,
    /// First byte of the payload.
    pub(crate) start: u64,
    /// First byte behind it.
    pub(crate) end: u64,
}

impl Expectation {
    /// The unit with this index.
    pub(crate) fn unit(&self, index: u64) -> [u8; 16] {
        let first = index * UNIT;
        let end = first + UNIT;
        if first >= self.start && end <= self.end {
            return self.payload.unit(index);
        }
        let poison = self.poison.unit(index);
        if end <= self.start || first >= self.end {
            return poison;
        }
        let mut unit = self.payload.unit(index);
        for (at, (byte, before)) in (first..).zip(unit.iter_mut().zip(poison)) {
            if at < self.start || at >= self.end {
                *byte = before;
            }
        }
        unit
    }

    /// The class of a unit of which only a part belongs to the payload, if that part is uniform.
    fn class_of_part(&self, index: u64, found: [u8; 16]) -> Option<Damage> {
        let first = index * UNIT;
        let part = |at: &u64| *at >= self.start && *at < self.end;
        if part(&first) && part(&(first + UNIT - 1)) {
            return None;
        }
        let of_part = |unit: [u8; 16]| -> Vec<u8> {
            (first..).zip(unit).filter(|(at, _)| part(at)).map(|(_, byte)| byte).collect()
        };
        let inside = of_part(found);
        if inside.is_empty() {
            None
        } else if inside == of_part(self.poison.unit(index)) {
            Some(Damage::Dropped)
        } else if inside.iter().all(|byte| *byte == 0) {
            Some(Damage::Zeros)
        } else if inside.iter().all(|byte| *byte == 0xff) {
            Some(Damage::Ones)
        } else {
            None
        }
    }

    /// What happened to a wrong unit.
    fn class(&self, index: u64, found: [u8; 16]) -> Damage {
        if found == self.poison.unit(index) {
            return Damage::Dropped;
        }
        if let Some(class) = self.class_of_part(index, found) {
            return class;
        }
        match Content::of(found) {
            Content::Zeros => Damage::Zeros,
            Content::Ones => Damage::Ones,
            Content::Other => Damage::Bits,
            Content::Tag(header, _) if header == self.payload || header == self.poison => {
                Damage::Aliased
            }
            Content::Tag(header, _)
                if header.device() != self.payload.device()
                    && header.device() != self.poison.device() =>
            {
                Damage::Misrouted
            }
            Content::Tag(..) => Damage::Stale,
        }
    }
}

/// Wrong units by class.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tally {
    counts: [u64; 7],
    first: Option<Wrong>,
}

#[derive(Clone, Copy, Debug)]
struct Wrong {
    index: u64,
    found: [u8; 16],
    expected: [u8; 16],
}

/// Slots of [`Tally::counts`]; the order decides between classes with equal counts.
const CLASSES: [Damage; 7] = [
    Damage::Aliased,
    Damage::Misrouted,
    Damage::Stale,
    Damage::Zeros,
    Damage::Ones,
    Damage::Dropped,
    Damage::Bits,
];

impl Tally {
    /// Compares one unit.
    pub(crate) fn look(&mut self, expectation: &Expectation, index: u64, found: [u8; 16]) {
        let expected = expectation.unit(index);
        if found == expected {
            return;
        }
        let class = expectation.class(index, found);
        for (count, candidate) in self.counts.iter_mut().zip(CLASSES) {
            *count += u64::from(candidate == class);
        }
        if self.first.is_none_or(|first| index < first.index) {
            self.first = Some(Wrong { index, found, expected });
        }
    }

    /// Compares a run of units from `first` on.
    pub(crate) fn look_at(&mut self, expectation: &Expectation, first: u64, bytes: &[u8]) {
        for (index, unit) in (first..).zip(bytes.as_chunks::<16>().0) {
            self.look(expectation, index, *unit);
        }
    }

    /// Wrong units that were looked at.
    pub(crate) fn wrong(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The class of the whole. Evidence of a wrong place outranks what is merely missing there,
    /// since data that went elsewhere is missing where it belongs.
    pub(crate) fn damage(&self) -> Option<Damage> {
        let mut counted = CLASSES.into_iter().zip(self.counts);
        let places = [Damage::Aliased, Damage::Misrouted, Damage::Stale];
        if let Some((class, _)) =
            counted.clone().find(|(class, count)| *count > 0 && places.contains(class))
        {
            return Some(class);
        }
        let most = self.counts.into_iter().max().unwrap_or(0);
        counted.find(|(_, count)| most > 0 && *count == most).map(|(class, _)| class)
    }

    /// The published report; `bad_units` and `pages` come from the check on the device.
    pub(crate) fn report(
        &self,
        bad_units: u64,
        pages: Vec<PageRun>,
        first_bad_offset: Option<u64>,
    ) -> Option<DamageReport> {
        let wrong = self.wrong();
        if wrong == 0 && bad_units == 0 {
            return None;
        }
        let hex = |bytes: [u8; 16]| u128::from_be_bytes(bytes);
        let (found, expected, at) = match self.first {
            Some(first) => {
                let different = first
                    .found
                    .iter()
                    .zip(first.expected)
                    .take_while(|(found, expected)| **found == *expected)
                    .count();
                let within = u64::try_from(different).unwrap_or(0);
                (
                    format!("{:032x}", hex(first.found)),
                    format!("{:032x}", hex(first.expected)),
                    first.index * UNIT + within,
                )
            }
            None => (String::new(), String::new(), first_bad_offset.unwrap_or(0)),
        };
        Some(DamageReport {
            // The kernel saw something that a copy did not: no class, so the weakest one.
            damage: self.damage().unwrap_or(Damage::Bits),
            first_bad_offset: first_bad_offset.map_or(at, |offset| offset.min(at)),
            bad_units: bad_units.max(wrong),
            pages,
            found,
            expected,
            step: String::new(),
            confirmed_by_copy: wrong > 0 && bad_units > 0,
        })
    }
}

/// Joins page numbers (rising) into runs; at most 64.
pub(crate) fn runs(pages: &[u64], page_bytes: u64, base: u64) -> Vec<PageRun> {
    let mut runs: Vec<PageRun> = Vec::new();
    for page in pages {
        let offset = base + page * page_bytes;
        let full = runs.len() == 64;
        match runs.last_mut() {
            Some(last) if last.offset + last.bytes == offset => last.bytes += page_bytes,
            _ if full => break,
            _ => runs.push(PageRun { offset, bytes: page_bytes }),
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAYLOAD: Header = Header::new(1, 1, 5);
    const POISON: Header = Header::new(1, 1, 4);
    const WHOLE: Expectation =
        Expectation { payload: PAYLOAD, poison: POISON, start: 0, end: 1 << 20 };

    /// Looks at 64 units, each made by `content`.
    fn check(content: impl Fn(u64) -> [u8; 16]) -> Option<Damage> {
        let mut tally = Tally::default();
        for index in 0..64 {
            tally.look(&WHOLE, index, content(index));
        }
        tally.damage()
    }

    #[test]
    fn each_class_is_known() {
        let flip = |index| {
            let mut unit = PAYLOAD.unit(index);
            if index == 9 {
                unit[13] ^= 0x40;
            }
            unit
        };
        assert_eq!(check(|index| PAYLOAD.unit(index)), None);
        assert_eq!(check(|index| POISON.unit(index)), Some(Damage::Dropped));
        assert_eq!(check(|_| [0; 16]), Some(Damage::Zeros));
        assert_eq!(check(|_| [0xff; 16]), Some(Damage::Ones));
        assert_eq!(check(|index| PAYLOAD.unit(index + (2 << 16))), Some(Damage::Aliased));
        assert_eq!(check(|index| Header::new(1, 1, 3).unit(index)), Some(Damage::Stale));
        assert_eq!(check(|index| Header::new(2, 1, 5).unit(index)), Some(Damage::Misrouted));
        assert_eq!(check(|index| Header::new(1, 7, 5).unit(index)), Some(Damage::Stale));
        assert_eq!(check(flip), Some(Damage::Bits));
    }

    #[test]
    fn a_wrapped_window_is_aliased_although_half_is_missing() {
        let wrapped = |index| match index {
            0..32 => PAYLOAD.unit(index + 32),
            _ => POISON.unit(index),
        };
        assert_eq!(check(wrapped), Some(Damage::Aliased));
    }

    #[test]
    fn bytes_beyond_the_range_must_stay() {
        let part = Expectation { start: 20, end: 36, ..WHOLE };
        let unit = part.unit(1);
        assert_eq!(unit[..4], POISON.unit(1)[..4]);
        assert_eq!(unit[4..], PAYLOAD.unit(1)[4..]);
        let mut tally = Tally::default();
        tally.look(&part, 1, unit);
        assert_eq!(tally.wrong(), 0);
        tally.look(&part, 2, PAYLOAD.unit(2));
        let report = tally.report(1, Vec::new(), None).unwrap();
        // Bytes 36 to 39 are the same in both headers.
        assert_eq!((report.first_bad_offset, report.damage), (40, Damage::Aliased));
    }

    #[test]
    fn pages_are_joined() {
        let joined = runs(&[0, 1, 2, 7], 4096, 8192);
        let expected = [(8192, 3 * 4096), (8192 + 7 * 4096, 4096)]
            .map(|(offset, bytes)| PageRun { offset, bytes });
        assert_eq!(joined, expected);
    }
}
