//! The three forms that fault storms consist of, read straight from the line: AMD page faults with
//! and without a device in front, and VT-d faults of 5.15 and later.
//!
//! A line that is any different (an envelope of another kind, a cut, two messages run together) is
//! left to the general parsers, which give the same for lines that both accept; a test holds them
//! to it.

use peerway_core::address::{BusAddress, PciAddress};

use crate::amd;
use crate::event::{Access, Direction, Event, Iommu, Kind, Reason, Requester, When};
use crate::notice::Fact;
use crate::{digits, host_line, text, vtd_reason};

/// Reads a whole event from the first line of a text into an event that only this function has
/// filled before: the fields that it never touches stay empty. Line and boot are left to the
/// caller. Gives the line's length with its line feed; `None` says that the event holds nothing.
#[inline]
pub(crate) fn event<'a>(text: &'a [u8], event: &mut Event<'a>) -> Option<usize> {
    let start = message_start(text)?;
    let message = text.get(start..)?;
    let rest = match message.first()? {
        b'D' => vtd_fields(message.strip_prefix(b"DMAR: [DMA ")?, event)?,
        b'A' => {
            let rest = message.strip_prefix(b"AMD-Vi: Event logged [IO_PAGE_FAULT device=")?;
            let (device, rest) = dotted_address(rest)?;
            event.requester = Requester::Pci(device);
            event.driver = None;
            amd_fields(rest.strip_prefix(b" ")?, event)?
        }
        b'a'..=b'z' => {
            let length = message.iter().take(32).take_while(|byte| text::is_name(**byte)).count();
            let (driver, rest) = message.split_at_checked(length)?;
            let (device, rest) = dotted_address(rest.strip_prefix(b" ")?)?;
            let rest = rest.strip_prefix(b": AMD-Vi: Event logged [IO_PAGE_FAULT ")?;
            event.driver = Some(std::str::from_utf8(driver).ok()?);
            event.requester = Requester::Pci(device);
            amd_fields(rest, event)?
        }
        _ => return None,
    };
    let feed = match rest.first() {
        Some(b'\n') => 1,
        None => 0,
        Some(_) => return None,
    };
    event.when = When::raw(text, start);
    event.text = message.get(..message.len() - rest.len())?;
    Some(text.len() - rest.len() + feed)
}

/// The function whose dropped messages were reported last: most reports of a log are of a few.
#[derive(Debug, Default)]
pub(crate) struct Limited {
    /// `function: `.
    head: String,
    iommu_events: bool,
}

impl Limited {
    /// The number in `function: N` if it is of the same function.
    #[inline]
    fn again(&self, message: &[u8]) -> Option<u64> {
        if self.head.is_empty() {
            return None;
        }
        let (count, []) = text::number(message.strip_prefix(self.head.as_bytes())?)? else {
            return None;
        };
        Some(count)
    }

    fn fact(&self, count: u64) -> Option<Fact<'_>> {
        let function = self.head.strip_suffix(": ")?;
        Some(Fact::Suppressed { function, count, iommu_events: self.iommu_events })
    }
}

/// Reads a line that is nothing but `function: N callbacks suppressed`, whose anchor stands at `at`,
/// from the front of a text: its length with its line feed, its time, its message and what it says.
#[inline]
pub(crate) fn suppressed<'a>(
    text: &'a [u8],
    at: usize,
    limited: &'a mut Limited,
) -> Option<(usize, When<'a>, &'a [u8], Fact<'a>)> {
    let end = at + b" callbacks suppressed".len();
    let feed = match text.get(end) {
        Some(b'\n') => 1,
        None => 0,
        Some(_) => return None,
    };
    let start = message_start(text)?;
    let message = text.get(start..end)?;
    let when = When::raw(text, start);
    if let Some(count) = limited.again(text.get(start..at)?) {
        return Some((end + feed, when, message, limited.fact(count)?));
    }
    let fact = host_line::suppressed(message, at.checked_sub(start)?)?;
    let Fact::Suppressed { function, iommu_events, .. } = fact else { return None };
    // Without an envelope that is the tag of one, and nothing stands in front of the function.
    if function == "kernel" {
        return None;
    }
    let (front, _) = text::last_word(text.get(start..at)?);
    if front.len() != function.len() + 1 {
        return None;
    }
    limited.head.clear();
    limited.head.push_str(function);
    limited.head.push_str(": ");
    limited.iommu_events = iommu_events;
    Some((end + feed, when, message, fact))
}

/// Where the message begins in a first line of `dmesg`, of a system log in either date form, or
/// without an envelope; `None` for anything else. What is skipped holds no line feed.
#[inline]
fn message_start(text: &[u8]) -> Option<usize> {
    let tagged = match text.first()? {
        b'[' => return stamp_end(text, 0),
        b'a'..=b'z' => return Some(0),
        // "Nov 30 16:52:04 host kernel: "
        b'A'..=b'Z' if text.get(3) == Some(&b' ') => {
            let colons = (text.get(9), text.get(12), text.get(15));
            if colons != (Some(&b':'), Some(&b':'), Some(&b' ')) || has_feed::<16>(text) {
                return None;
            }
            16
        }
        b'A'..=b'Z' => return Some(0),
        // "2026-11-30T16:52:04.123456+00:00 host kernel: "
        b'0'..=b'9' if text.get(4) == Some(&b'-') && text.get(10) == Some(&b'T') => {
            if has_feed::<19>(text) {
                return None;
            }
            // With microseconds and an offset; else wherever the date ends.
            if text.get(32) == Some(&b' ') && !has_feed::<32>(text) {
                33
            } else {
                19 + word(text.get(19..)?, 17)? + 1
            }
        }
        _ => return None,
    };
    let tag = tagged + word(text.get(tagged..)?, 64)? + 1;
    if !text.get(tag..)?.starts_with(b"kernel: ") {
        return None;
    }
    let start = tag + 8;
    match text.get(start) {
        Some(b'[') => stamp_end(text, start),
        _ => Some(start),
    }
}

/// Whether there is a line feed in the first bytes, or fewer than so many.
#[inline]
fn has_feed<const N: usize>(text: &[u8]) -> bool {
    // Without a way out in between: that is a few instructions.
    let feeds = |bytes: &[u8; N]| bytes.iter().fold(0, |any, byte| any | u8::from(*byte == b'\n'));
    text.first_chunk().map_or(1, feeds) != 0
}

/// Length of the word at the front, up to the space that has to follow within `most` bytes.
#[inline]
fn word(text: &[u8], most: usize) -> Option<usize> {
    let length = text.iter().take(most).position(|byte| *byte <= b' ')?;
    (text.get(length) == Some(&b' ')).then_some(length)
}

/// After `[   12.345678] `, which begins at `start`.
#[inline]
fn stamp_end(text: &[u8], start: usize) -> Option<usize> {
    let stamp = text.get(start..)?;
    // Up to 99,999 seconds have the same width.
    let close = if stamp.get(13) == Some(&b']') && !has_feed::<13>(stamp) {
        13
    } else {
        stamp.iter().take(32).position(|byte| matches!(*byte, b']' | b'\n'))?
    };
    (stamp.get(close) == Some(&b']') && stamp.get(close + 1) == Some(&b' '))
        .then_some(start + close + 2)
}

/// `dddd:bb:dd.f`; other widths are left to the general parsers.
#[inline]
fn dotted_address(input: &[u8]) -> Option<(PciAddress, &[u8])> {
    let (front, rest) = input.split_first_chunk::<8>()?;
    let ([tens, ones, dot, function], rest) = rest.split_first_chunk::<4>()?;
    // A further digit would make it another number.
    if *dot != b'.' || rest.first().is_some_and(u8::is_ascii_hexdigit) {
        return None;
    }
    let front = digits::all_eight(digits::without_separators(*front, *b"\0\0\0\0:\0\0:")?)?;
    let device = digits::four([b'0', *tens, *ones, *function])?;
    let [_, _, bus, _] = (front << 4).to_be_bytes();
    Some((function_of(front >> 16, bus, device)?, rest))
}

/// `bb:dd.f]`, without the last.
#[inline]
fn short_address(input: &[u8]) -> Option<(PciAddress, &[u8])> {
    let all = digits::without_separators(*input.first_chunk()?, *b"\0\0:\0\0.\0]")?;
    // bb0dd0f0
    let all = digits::all_eight(all)?;
    let [bus, ..] = all.to_be_bytes();
    Some((function_of(0, bus, all >> 8 & 0xff0 | all >> 4 & 0xf)?, input.get(7..)?))
}

/// From domain, bus, and device and function as three digits.
#[inline]
fn function_of(domain: u32, bus: u8, device: u32) -> Option<PciAddress> {
    let [_, _, _, function] = (device & 0xf).to_be_bytes();
    PciAddress::new(domain, bus, u8::try_from(device >> 4).ok()?, function)
}

/// `domain=0x0018 address=0x24000000000 flags=0x0020]`. Gives what follows.
#[inline]
fn amd_fields<'a>(input: &'a [u8], event: &mut Event<'_>) -> Option<&'a [u8]> {
    let (domain, rest) = input.strip_prefix(b"domain=0x")?.split_first_chunk()?;
    let (address, rest) = digits::number(rest.strip_prefix(b" address=0x")?)?;
    let (flags, rest) = rest.strip_prefix(b" flags=0x")?.split_first_chunk()?;
    let rest = rest.strip_prefix(b"]")?;
    event.iommu = Iommu::AmdVi;
    event.kind = Kind::IoPageFault;
    let both = u64::from(u32::from_be_bytes(*domain)) << 32 | u64::from(u32::from_be_bytes(*flags));
    let both = digits::all_eight(both.to_be_bytes())?;
    let (domain, flags) = (both >> 16, both & 0xffff);
    event.domain = Some(domain);
    event.address = Some(BusAddress(address));
    event.flags = Some(flags);
    event.access = amd::access(flags);
    event.reason = None;
    Some(rest)
}

/// `Write NO_PASID] Request device [01:00.0] fault addr 0xfd000000 [fault reason 0x05] PTE …`.
/// Gives what follows.
#[inline]
fn vtd_fields<'a>(input: &'a [u8], event: &mut Event<'a>) -> Option<&'a [u8]> {
    event.iommu = Iommu::VtD;
    event.kind = Kind::DmaFault;
    // Which of the two is a coin toss in a storm, and nothing branches on it.
    let writes = input.first() == Some(&b'W');
    let (direction, head) =
        if writes { (Direction::Write, *b"Write") } else { (Direction::Read, *b"Read ") };
    event.access = Access::certain(direction);
    let rest = input.get(4 + usize::from(writes)..)?;
    if *input.first_chunk::<5>()? != head {
        return None;
    }
    let rest = rest.strip_prefix(b" NO_PASID] Request device [")?;
    let (device, rest) = short_address(rest).or_else(|| dotted_address(rest))?;
    event.requester = Requester::Pci(device);
    let (address, rest) = digits::number(rest.strip_prefix(b"] fault addr 0x")?)?;
    event.address = Some(BusAddress(address));
    let ([tens, ones], rest) = rest.strip_prefix(b" [fault reason 0x")?.split_first_chunk()?;
    let code = u32::from(text::nibble(*tens)? << 4 | text::nibble(*ones)?);
    let known = vtd_reason::text(code)?;
    let rest = rest.strip_prefix(b"] ")?.strip_prefix(known.as_bytes())?;
    event.reason = Some(Reason { code, text: known });
    event.domain = None;
    event.flags = None;
    event.driver = None;
    Some(rest)
}
