//! Hexadecimal digits read eight at a time, without a branch for each: the addresses of a storm
//! are most of what is in it to be read.

/// One bit for each byte.
const HIGH: u64 = 0x8080_8080_8080_8080;
/// A byte in each place.
const fn each(byte: u8) -> u64 {
    u64::from_ne_bytes([byte; 8])
}

/// How many of eight bytes are digits before the first that is none, and the value of all eight
/// as if they were.
#[inline]
const fn eight(bytes: [u8; 8]) -> (u32, u64) {
    let text = u64::from_be_bytes(bytes);
    let low = text & !HIGH;
    // Adding what is missing to 0x80 sets a byte's highest bit where it is that large.
    let digit = (low + each(0x80 - b'0')) & !(low + each(0x7f - b'9'));
    let lower = low | each(0x20);
    let letter = (lower + each(0x80 - b'a')) & !(lower + each(0x7f - b'f'));
    let wrong = (!(digit | letter) | text) & HIGH;
    // The low half of a letter, which has bit 6 set, begins with 1 for ten.
    let mut value = ((text & each(0x0f)) + 9 * (text >> 6 & each(0x01))) & each(0x0f);
    value = (value | value >> 4) & 0x00ff_00ff_00ff_00ff;
    value = (value | value >> 8) & 0x0000_ffff_0000_ffff;
    value = (value | value >> 16) & 0xffff_ffff;
    (wrong.leading_zeros() / 8, value)
}

/// The value of eight digits.
#[inline]
pub(crate) fn all_eight(bytes: [u8; 8]) -> Option<u32> {
    let (count, value) = eight(bytes);
    if count == 8 { u32::try_from(value).ok() } else { None }
}

/// The value of four digits.
#[inline]
pub(crate) fn four([a, b, c, d]: [u8; 4]) -> Option<u32> {
    all_eight([b'0', b'0', b'0', b'0', a, b, c, d])
}

/// One to sixteen digits at the front of a text: value and rest. `None` also where the text ends
/// before the longest number could.
#[inline]
pub(crate) fn number(text: &[u8]) -> Option<(u64, &[u8])> {
    let (front, back) = text.first_chunk::<16>()?.split_first_chunk::<8>()?;
    let (count, value) = eight(*front);
    if count == 0 {
        return None;
    }
    if count < 8 {
        return Some((value >> (4 * (8 - count)), text.get(usize::try_from(count).ok()?..)?));
    }
    let (more, low) = eight(*back.first_chunk()?);
    let value = (u128::from(value) << 32 | u128::from(low)) >> (4 * (8 - more));
    let rest = text.get(usize::try_from(8 + more).ok()?..)?;
    Some((u64::try_from(value).ok()?, rest))
}

/// Replaces the separators in a text of digits by zeros: `None` if others stand there.
///
/// `pattern` holds the separators, and 0 where digits are.
#[inline]
pub(crate) fn without_separators(bytes: [u8; 8], pattern: [u8; 8]) -> Option<[u8; 8]> {
    let (text, pattern) = (u64::from_ne_bytes(bytes), u64::from_ne_bytes(pattern));
    // All bits of a place that holds a separator; no separator has its highest bit set.
    let places = ((pattern + each(0x7f)) & HIGH) / 0x80 * 0xff;
    if text & places != pattern {
        return None;
    }
    Some((text & !places | each(b'0') & places).to_ne_bytes())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::text;

    #[test]
    fn every_byte_is_a_digit_or_none() {
        for byte in 0..=255_u8 {
            for place in 0..8 {
                let mut bytes = *b"00000000";
                bytes[place] = byte;
                let expected = text::nibble(byte).map(|digit| u32::from(digit) << (28 - 4 * place));
                assert_eq!(all_eight(bytes), expected, "{bytes:?}");
            }
        }
        assert_eq!(four(*b"1aF0"), Some(0x1af0));
        assert_eq!(four(*b"1a-0"), None);
    }

    #[test]
    fn separators_stand_where_they_should() {
        let pattern = *b"\0\0\0\0:\0\0:";
        assert_eq!(without_separators(*b"0000:41:", pattern), Some(*b"00000410"));
        assert_eq!(without_separators(*b"0000:41.", pattern), None);
        assert_eq!(without_separators(*b"00000:1:", pattern), None);
    }

    proptest! {
        #[test]
        fn numbers_as_the_plain_reader_reads_them(value: u64, rest in "[ \\]gG:/@`\u{e9}][ -~]{16}") {
            let text = format!("{value:x}{rest}");
            let (expected, _, after) = text::hex(text.as_bytes()).unwrap();
            prop_assert_eq!(number(text.as_bytes()), Some((expected, after)));
        }

        #[test]
        fn any_bytes(bytes: [u8; 20]) {
            let expected = text::hex(&bytes).map(|(value, _, rest)| (value, rest));
            // A seventeenth digit is the caller's to refuse.
            let seen = number(&bytes).filter(|(_, rest)| {
                rest.len() > 4 || !rest.first().is_some_and(u8::is_ascii_hexdigit)
            });
            prop_assert_eq!(seen, expected);
        }
    }
}
