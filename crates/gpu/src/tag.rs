//! The content that makes every 16-byte unit of a test unlike every other one.
//!
//! A unit holds a header (magic number, GPU that the data belongs to, process, generation) and
//! its own index, mixed by a bijection that depends on the header. So content has no period at any
//! power of two, a unit that arrives at the wrong place says where it belongs, and what an earlier
//! step left behind is known by its generation. `kernels.ptx` computes the same on the device.

/// Bytes of one unit.
pub(crate) const UNIT: u64 = 16;

const MAGIC: u64 = 0x5057;
const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// Indices above this are no index that a test can have used (2^44 units are 256 TiB).
const INDEX_LIMIT: u64 = 1 << 44;

/// The low half of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Header(u64);

impl Header {
    /// A header for data that belongs to `device`, of one process ([`run`]) and one fill.
    pub(crate) const fn new(device: u16, run: u16, generation: u16) -> Self {
        // Widening conversions in a constant function.
        let [d0, d1] = device.to_le_bytes();
        let [a0, a1] = run.to_le_bytes();
        let [g0, g1] = generation.to_le_bytes();
        let [m0, m1, ..] = MAGIC.to_le_bytes();
        Self(u64::from_le_bytes([g0, g1, a0, a1, d0, d1, m0, m1]))
    }

    /// The header as the device stores it.
    pub(crate) const fn word(self) -> u64 {
        self.0
    }

    /// The header that `word` is, if it is one.
    pub(crate) fn from_word(word: u64) -> Option<Self> {
        (word >> 48 == MAGIC).then_some(Self(word))
    }

    fn part(self, byte: usize) -> u16 {
        let bytes = self.0.to_le_bytes();
        let at = |index: usize| bytes.get(index).copied().unwrap_or(0);
        u16::from_le_bytes([at(byte), at(byte + 1)])
    }

    /// Generation: every fill of a test has its own.
    pub(crate) fn generation(self) -> u16 {
        self.part(0)
    }

    /// The process that wrote it; see [`run`].
    #[cfg(test)]
    fn run(self) -> u16 {
        self.part(2)
    }

    /// The GPU that the data belongs to.
    pub(crate) fn device(self) -> u16 {
        self.part(4)
    }

    /// The unit with this header and `index`, as bytes in memory.
    pub(crate) fn unit(self, index: u64) -> [u8; 16] {
        let low = u128::from(self.0);
        let high = u128::from(mix(index ^ self.0.wrapping_mul(GOLDEN)));
        (low | high << 64).to_le_bytes()
    }
}

/// A number of this process, so that what an earlier one left in memory is not taken for its own.
pub(crate) fn run() -> u16 {
    let [low, high, ..] = std::process::id().to_le_bytes();
    u16::from_le_bytes([low, high])
}

/// What stands in a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Content {
    /// All zeros.
    Zeros,
    /// All ones.
    Ones,
    /// A tag: whose, and which index it belongs to.
    Tag(Header, u64),
    /// Nothing that a test wrote.
    Other,
}

impl Content {
    /// Reads a unit.
    pub(crate) fn of(bytes: [u8; 16]) -> Self {
        let value = u128::from_le_bytes(bytes);
        if value == 0 {
            return Self::Zeros;
        }
        if value == u128::MAX {
            return Self::Ones;
        }
        let half = |value: u128| u64::try_from(value & u128::from(u64::MAX)).unwrap_or(0);
        let (low, high) = (half(value), half(value >> 64));
        let Some(header) = Header::from_word(low) else { return Self::Other };
        let index = unmix(high) ^ header.0.wrapping_mul(GOLDEN);
        if index < INDEX_LIMIT { Self::Tag(header, index) } else { Self::Other }
    }
}

/// The finalizer of `SplitMix64`: a bijection of 64-bit words.
pub(crate) fn mix(value: u64) -> u64 {
    let a = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let b = (a ^ a >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    b ^ b >> 31
}

/// The inverse of [`mix`]: the multipliers are the modular inverses.
fn unmix(value: u64) -> u64 {
    let a = (value ^ value >> 31 ^ value >> 62).wrapping_mul(0x3196_42b2_d24d_8ec3);
    let b = (a ^ a >> 27 ^ a >> 54).wrapping_mul(0x96de_1b17_3f11_9089);
    b ^ b >> 30 ^ b >> 60
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn mixing_can_be_undone(value: u64) {
            prop_assert_eq!(unmix(mix(value)), value);
        }

        #[test]
        fn a_unit_says_where_it_belongs(
            device: u16, process: u16, generation: u16, index in 0..INDEX_LIMIT
        ) {
            let header = Header::new(device, process, generation);
            prop_assert_eq!(Content::of(header.unit(index)), Content::Tag(header, index));
            prop_assert_eq!(
                (header.device(), header.run(), header.generation()),
                (device, process, generation)
            );
        }

        #[test]
        fn one_wrong_bit_is_never_a_tag_of_the_same_fill(
            generation: u16, index in 0_u64..1 << 30, bit in 0_u32..128
        ) {
            let header = Header::new(1, 2, generation);
            let damaged = u128::from_le_bytes(header.unit(index)) ^ 1 << bit;
            match Content::of(damaged.to_le_bytes()) {
                // A flipped high half names an index, but hardly ever a small one.
                Content::Tag(found, at) => prop_assert!(found != header && at >= 1 << 30),
                Content::Other => {}
                content => prop_assert!(false, "{content:?}"),
            }
        }
    }

    #[test]
    fn content_has_no_period() {
        let header = Header::new(0, 0, 1);
        for period in [1_u64 << 8, 1 << 12, 1 << 17, 1 << 25, 1 << 26] {
            for index in 0..64 {
                assert_ne!(header.unit(index), header.unit(index + period));
            }
        }
    }
}
