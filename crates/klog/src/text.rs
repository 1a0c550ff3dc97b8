//! Readers over bytes: each takes what it understands from the front (or the back) and hands back
//! the rest, without allocating.

use peerway_core::address::PciAddress;

/// What [`NIBBLES`] holds for a byte that is no digit.
const NO_DIGIT: u8 = 0xff;

/// Value of each byte as a hexadecimal digit. A table, since random digits make any branch on
/// their kind a coin toss.
static NIBBLES: [u8; 256] = {
    let mut table = [NO_DIGIT; 256];
    let digits = *b"0123456789abcdef";
    let mut value = 0;
    #[expect(
        clippy::indexing_slicing,
        clippy::as_conversions,
        clippy::cast_possible_truncation,
        reason = "evaluated by the compiler, on constants"
    )]
    while value < digits.len() {
        table[digits[value] as usize] = value as u8;
        table[digits[value].to_ascii_uppercase() as usize] = value as u8;
        value += 1;
    }
    table
};

/// Value of a hexadecimal digit.
#[inline]
pub(crate) fn nibble(byte: u8) -> Option<u8> {
    NIBBLES.get(usize::from(byte)).copied().filter(|value| *value != NO_DIGIT)
}

/// One to sixteen hexadecimal digits: value, how many, rest. `None` without a digit or with more.
#[inline]
pub(crate) fn hex(text: &[u8]) -> Option<(u64, usize, &[u8])> {
    let mut value = 0_u64;
    let mut digits = 0_usize;
    for byte in text {
        let nibble = NIBBLES.get(usize::from(*byte)).copied().unwrap_or(NO_DIGIT);
        if nibble == NO_DIGIT {
            break;
        }
        value = value << 4 | u64::from(nibble);
        digits += 1;
        if digits > 16 {
            return None;
        }
    }
    if digits == 0 { None } else { Some((value, digits, text.get(digits..)?)) }
}

/// `0x` and one to sixteen hexadecimal digits: value, how many digits, rest.
#[inline]
pub(crate) fn prefixed_hex(text: &[u8]) -> Option<(u64, usize, &[u8])> {
    hex(text.strip_prefix(b"0x")?)
}

/// Decimal digits: value, how many, rest. `None` without a digit or above 64 bits.
#[inline]
pub(crate) fn decimal(text: &[u8]) -> Option<(u64, usize, &[u8])> {
    let mut value = 0_u64;
    let mut digits = 0_usize;
    for byte in text {
        if !byte.is_ascii_digit() {
            break;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(byte - b'0'))?;
        digits += 1;
    }
    if digits == 0 { None } else { Some((value, digits, text.get(digits..)?)) }
}

/// A decimal number that fits the type asked for, and the rest.
#[inline]
pub(crate) fn number<T: TryFrom<u64>>(text: &[u8]) -> Option<(T, &[u8])> {
    let (value, _, rest) = decimal(text)?;
    Some((T::try_from(value).ok()?, rest))
}

/// Exactly `count` decimal digits and the rest; a further digit makes it another number.
#[inline]
pub(crate) fn digits(text: &[u8], count: usize) -> Option<(u64, &[u8])> {
    let (value, seen, rest) = decimal(text)?;
    if seen == count { Some((value, rest)) } else { None }
}

/// Without spaces and tabs at the front.
#[inline]
pub(crate) fn trim_start(text: &[u8]) -> &[u8] {
    let mut rest = text;
    while let [b' ' | b'\t', tail @ ..] = rest {
        rest = tail;
    }
    rest
}

/// Without white space and carriage returns at the end.
#[inline]
pub(crate) fn trim_end(text: &[u8]) -> &[u8] {
    let mut rest = text;
    while let [head @ .., b' ' | b'\t' | b'\r' | b'\n'] = rest {
        rest = head;
    }
    rest
}

/// How far a text is searched. The kernel's messages are no longer (`LOG_LINE_MAX`,
/// `kernel/printk/printk.c`), and what stands further away belongs to another; without a bound, a
/// long line full of anchors would take the square of its length.
const MESSAGE: usize = 1024;

fn find(text: &[u8], needle: &[u8]) -> Option<usize> {
    memchr::memmem::find(text.get(..MESSAGE).unwrap_or(text), needle)
}

/// What stands between the start and `needle`, and what follows it.
pub(crate) fn split_once<'a>(text: &'a [u8], needle: &[u8]) -> Option<(&'a [u8], &'a [u8])> {
    let at = find(text, needle)?;
    Some((text.get(..at)?, text.get(at + needle.len()..)?))
}

/// What follows the first `needle`.
pub(crate) fn after<'a>(text: &'a [u8], needle: &[u8]) -> Option<&'a [u8]> {
    split_once(text, needle).map(|(_, rest)| rest)
}

/// The start of the nearest of several texts, or how far was searched.
pub(crate) fn nearest(text: &[u8], needles: &[&[u8]]) -> usize {
    let nearest = needles.iter().filter_map(|needle| find(text, needle)).min();
    nearest.unwrap_or(text.len().min(MESSAGE))
}

/// The last bytes of a text, as many as are asked for.
pub(crate) fn tail(text: &[u8], count: usize) -> &[u8] {
    text.get(text.len().saturating_sub(count)..).unwrap_or(text)
}

/// Whether `needle` occurs.
pub(crate) fn contains(text: &[u8], needle: &[u8]) -> bool {
    find(text, needle).is_some()
}

/// The longest word that is looked for: names, paths and fields of records are shorter.
const WORD: usize = 256;

/// The text up to the first byte that `stop` accepts, and the rest from that byte on. A word that
/// does not end within [`WORD`] bytes ends there.
pub(crate) fn until(text: &[u8], stop: impl Fn(u8) -> bool) -> (&[u8], &[u8]) {
    let near = text.get(..WORD).unwrap_or(text);
    let at = near.iter().position(|byte| stop(*byte)).unwrap_or(near.len());
    text.split_at_checked(at).unwrap_or((text, &[]))
}

/// Which bytes can stand in a name.
static NAME_BYTES: [bool; 256] = {
    let mut table = [false; 256];
    let mut byte = 0_u8;
    #[expect(
        clippy::indexing_slicing,
        clippy::as_conversions,
        reason = "by the compiler, in bounds"
    )]
    while byte < 128 {
        table[byte as usize] =
            byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.' | b'@' | b'+');
        byte += 1;
    }
    table
};

/// Whether a byte can stand in the name of a driver, a module or a device.
#[inline]
pub(crate) fn is_name(byte: u8) -> bool {
    NAME_BYTES.get(usize::from(byte)).copied().unwrap_or(false)
}

/// The bytes as text if they are a plain name (letters, digits, `_`, `-`, `.`), of 1 to 64 bytes.
#[inline]
pub(crate) fn name(text: &[u8]) -> Option<&str> {
    if text.is_empty() || text.len() > 64 || !text.iter().all(|byte| is_name(*byte)) {
        return None;
    }
    std::str::from_utf8(text).ok()
}

/// Splits off the last word: what stands before it (without the space) and the word. A word longer
/// than [`WORD`] is cut.
#[inline]
pub(crate) fn last_word(text: &[u8]) -> (&[u8], &[u8]) {
    let near = tail(text, WORD);
    match near.iter().rposition(|byte| matches!(*byte, b' ' | b'\t')) {
        Some(at) => {
            let word = near.get(at + 1..).unwrap_or_default();
            (text.get(..text.len() - word.len() - 1).unwrap_or_default(), word)
        }
        None => (&[], near),
    }
}

/// A PCI address at the front, with or without a domain. Also the form of one 5.14 kernel
/// (`0x04:0x00.0`, `drivers/iommu/intel/dmar.c`).
pub(crate) fn pci_address(text: &[u8]) -> Option<(PciAddress, &[u8])> {
    if let Some(found) = PciAddress::parse_prefix(text) {
        return Some(found);
    }
    let (bus, bus_digits, rest) = prefixed_hex(text)?;
    let (device, device_digits, rest) = prefixed_hex(rest.strip_prefix(b":")?)?;
    let (function, rest) = rest.strip_prefix(b".")?.split_first()?;
    if bus_digits > 2 || device_digits > 2 || rest.first().is_some_and(u8::is_ascii_hexdigit) {
        return None;
    }
    let address = PciAddress::new(
        0,
        u8::try_from(bus).ok()?,
        u8::try_from(device).ok()?,
        u8::try_from(char::from(*function).to_digit(8)?).ok()?,
    )?;
    Some((address, rest))
}

/// A PCI device as NVIDIA's driver often prints it, without a function (`0000:c1:00`), or with
/// one: function 0 is meant in the first case.
pub(crate) fn nvidia_address(text: &[u8]) -> Option<(PciAddress, &[u8])> {
    if let Some(found) = PciAddress::parse_prefix(text) {
        return Some(found);
    }
    let (domain, digits, rest) = hex(text)?;
    let (bus, bus_digits, rest) = hex(rest.strip_prefix(b":")?)?;
    let (device, device_digits, rest) = hex(rest.strip_prefix(b":")?)?;
    if !(4..=8).contains(&digits) || bus_digits != 2 || device_digits != 2 {
        return None;
    }
    let address = PciAddress::new(
        u32::try_from(domain).ok()?,
        u8::try_from(bus).ok()?,
        u8::try_from(device).ok()?,
        0,
    )?;
    Some((address, rest))
}

/// Every PCI address in a text, from left to right, where it does not continue a longer word.
pub(crate) fn addresses(text: &[u8]) -> impl Iterator<Item = PciAddress> + '_ {
    let mut rest = text;
    let mut inside_word = false;
    let mut previous = b' ';
    std::iter::from_fn(move || {
        while let Some((first, tail)) = rest.split_first() {
            if !inside_word
                && first.is_ascii_hexdigit()
                && let Some((address, after)) = PciAddress::parse_prefix(rest)
            {
                rest = after;
                inside_word = true;
                return Some(address);
            }
            // After "PCI:" an address may begin, after "1:" it cannot.
            inside_word = first.is_ascii_alphanumeric()
                || matches!(*first, b'.' | b'_')
                || (*first == b':' && previous.is_ascii_hexdigit());
            previous = *first;
            rest = tail;
        }
        None
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_end_where_their_digits_end() {
        assert_eq!(hex(b"ff9bc000 x"), Some((0xff9b_c000, 8, &b" x"[..])));
        assert_eq!(hex(b"12345678901234567"), None, "more than 64 bits");
        assert_eq!(hex(b"x"), None);
        assert_eq!(decimal(b"113]"), Some((113, 3, &b"]"[..])));
        assert_eq!(decimal(b"99999999999999999999"), None);
    }

    #[test]
    fn addresses_with_and_without_their_parts() {
        let read = |text: &str| pci_address(text.as_bytes()).map(|(found, _)| found.to_string());
        assert_eq!(read("04:00.0]").as_deref(), Some("0000:04:00.0"));
        assert_eq!(read("0x04:0x1f.7]").as_deref(), Some("0000:04:1f.7"));
        assert_eq!(read("0x04:0x20.0"), None);
        assert_eq!(read("10000:e1:00.0").as_deref(), Some("10000:e1:00.0"));
        let nvidia = |text: &str| nvidia_address(text.as_bytes()).map(|(at, _)| at.to_string());
        assert_eq!(nvidia("0000:c1:00): 79").as_deref(), Some("0000:c1:00.0"));
        assert_eq!(nvidia("0000:02:00.0").as_deref(), Some("0000:02:00.0"));
        assert_eq!(nvidia("c1:00"), None);
    }

    #[test]
    fn every_address_of_a_line() {
        let all: Vec<_> =
            addresses(b"xe 0000:07:00.0: peer (PCI:0000:03:00.0) 0x12:34:56.7 usb1:01:00.0")
                .map(|found| found.to_string())
                .collect();
        assert_eq!(all, ["0000:07:00.0", "0000:03:00.0"]);
    }
}
