//! Test data that says where it belongs, and the name of the damage where it is wrong.
//!
//! Every word of eight bytes is a tag (magic, pair, round) over its own index, sent through a one-to-one
//! mixing so that all bits vary. A word that arrives can therefore be asked who it is.

use peerway_lab_protocol::Damage;

const MAGIC: u64 = 0x9e7a;
/// Multipliers and shifts of the 64-bit finaliser of `SplitMix64`, and the inverse multipliers.
const MIX: [u64; 2] = [0xbf58_476d_1ce4_e5b9, 0x94d0_49bb_1331_11eb];
const UNMIX: [u64; 2] = [0x96de_1b17_3f11_9089, 0x3196_42b2_d24d_8ec3];

/// Which copy a word belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tag {
    /// The pair: requester and target in one number.
    pub pair: u16,
    /// The round, so that a word of an earlier one is known as such.
    pub round: u16,
}

/// What a word is that was found where a word of a tag was expected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Word {
    Right,
    Poison,
    Zeros,
    Ones,
    OtherIndex,
    OtherRound,
    OtherPair,
    Garbage,
}

impl Tag {
    /// The word of this tag at an index.
    pub fn word(self, index: u32) -> u64 {
        let high = (MAGIC << 48) | (u64::from(self.pair) << 32);
        let low = (u64::from(self.round) << 20) | u64::from(index & 0xf_ffff);
        mix(high | (low & 0xffff_ffff))
    }

    fn judge(self, index: u32, found: u64, poison: u64) -> Word {
        if found == self.word(index) {
            return Word::Right;
        }
        match found {
            0 => return Word::Zeros,
            u64::MAX => return Word::Ones,
            _ if found == poison => return Word::Poison,
            _ => {}
        }
        let plain = unmix(found);
        if plain >> 48 != MAGIC {
            return Word::Garbage;
        }
        let round = (plain & 0xffff_ffff) >> 20;
        if (plain >> 32) & 0xffff != u64::from(self.pair) {
            Word::OtherPair
        } else if round != u64::from(self.round) & 0xfff {
            Word::OtherRound
        } else {
            Word::OtherIndex
        }
    }
}

/// What a range of the target's memory shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Judgement {
    /// Index of the first wrong word.
    pub first_bad: u32,
    /// How many words are wrong.
    pub bad: u32,
    /// What the wrong words have in common.
    pub damage: Damage,
}

/// Judges words against a tag; `poison` gives what was there before. `None` if every word is right.
pub fn judge(
    tag: Tag,
    words: impl Iterator<Item = u64>,
    poison: impl Fn(u32) -> u64,
) -> Option<Judgement> {
    let mut result: Option<Judgement> = None;
    for (index, found) in (0u32..).zip(words) {
        let damage = match tag.judge(index, found, poison(index)) {
            Word::Right => continue,
            Word::Poison => Damage::Dropped,
            Word::Zeros => Damage::Zeros,
            Word::Ones => Damage::Ones,
            Word::OtherIndex => Damage::Aliased,
            Word::OtherRound => Damage::Stale,
            Word::OtherPair => Damage::Misrouted,
            Word::Garbage => Damage::Bits,
        };
        result = Some(match result {
            None => Judgement { first_bad: index, bad: 1, damage },
            // Several kinds of damage at once have no name of their own.
            Some(so_far) => Judgement {
                bad: so_far.bad + 1,
                damage: if so_far.damage == damage { damage } else { Damage::Bits },
                ..so_far
            },
        });
    }
    result
}

fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(MIX[0]);
    x = (x ^ (x >> 27)).wrapping_mul(MIX[1]);
    x ^ (x >> 31)
}

fn unmix(mut x: u64) -> u64 {
    x = (x ^ (x >> 31) ^ (x >> 62)).wrapping_mul(UNMIX[1]);
    x = (x ^ (x >> 27) ^ (x >> 54)).wrapping_mul(UNMIX[0]);
    x ^ (x >> 30) ^ (x >> 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAG: Tag = Tag { pair: 0x0107, round: 3 };
    const OLD: Tag = Tag { pair: 0x0107, round: 2 };
    const OTHER: Tag = Tag { pair: 0x0201, round: 3 };
    const POISON: u64 = 0x5a5a_5a5a_5a5a_5a5a;

    fn check(change: impl Fn(u32, u64) -> u64, expected: Option<(u32, Damage)>) {
        let words = (0..512).map(|index| change(index, TAG.word(index)));
        let found = judge(TAG, words, |_| POISON);
        assert_eq!(found.map(|judgement| (judgement.first_bad, judgement.damage)), expected);
    }

    #[test]
    fn mixing_is_one_to_one() {
        for value in [0, 1, 42, u64::MAX, 0x1234_5678_9abc_def0] {
            assert_eq!(unmix(mix(value)), value);
        }
    }

    #[test]
    fn damage_is_named_by_what_arrived() {
        check(|_, word| word, None);
        check(|_, _| POISON, Some((0, Damage::Dropped)));
        check(|_, _| 0, Some((0, Damage::Zeros)));
        check(|_, _| u64::MAX, Some((0, Damage::Ones)));
        check(|index, _| TAG.word(index ^ 8), Some((0, Damage::Aliased)));
        check(|index, _| OLD.word(index), Some((0, Damage::Stale)));
        check(|index, _| OTHER.word(index), Some((0, Damage::Misrouted)));
        check(|index, word| if index == 300 { word ^ 4 } else { word }, Some((300, Damage::Bits)));
        check(|index, word| if index > 9 { POISON } else { word }, Some((10, Damage::Dropped)));
        check(|index, _| if index > 9 { POISON } else { 0 }, Some((0, Damage::Bits)));
    }
}
