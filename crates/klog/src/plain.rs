//! The three forms that fault storms consist of, read straight from the line: AMD page faults with
//! and without a device in front, and VT-d faults of 5.15 and later.
//!
//! A line that is any different (an envelope of another kind, a cut, two messages run together) is
//! left to the general parsers, which give the same for lines that both accept; a test holds them
//! to it.

use peerway_core::address::{BusAddress, PciAddress};

use crate::amd;
use crate::event::{Access, Direction, Event, Iommu, Kind, Reason, Requester, When};
use crate::{text, vtd_reason};

/// Reads a whole event from a whole line without its line feed into an event that only this
/// function has filled before: the fields that it never touches stay empty. Line and boot are left
/// to the caller. `None` says that the event holds nothing.
#[inline]
pub(crate) fn event<'a>(line: &'a [u8], event: &mut Event<'a>) -> Option<()> {
    let start = message_start(line)?;
    let (front, message) = line.split_at_checked(start)?;
    match message.first()? {
        b'D' => vtd_fields(message.strip_prefix(b"DMAR: [DMA ")?, event)?,
        b'A' => {
            let rest = message.strip_prefix(b"AMD-Vi: Event logged [IO_PAGE_FAULT device=")?;
            let (device, rest) = dotted_address(rest)?;
            event.requester = Requester::Pci(device);
            event.driver = None;
            amd_fields(rest.strip_prefix(b" ")?, event)?;
        }
        b'a'..=b'z' => {
            let length = message.iter().take(32).take_while(|byte| text::is_name(**byte)).count();
            let (driver, rest) = message.split_at_checked(length)?;
            let (device, rest) = dotted_address(rest.strip_prefix(b" ")?)?;
            let rest = rest.strip_prefix(b": AMD-Vi: Event logged [IO_PAGE_FAULT ")?;
            event.driver = Some(std::str::from_utf8(driver).ok()?);
            event.requester = Requester::Pci(device);
            amd_fields(rest, event)?;
        }
        _ => return None,
    }
    event.when = When::raw(front);
    event.text = message;
    Some(())
}

/// Where the message begins in a line of `dmesg`, of a system log in either date form, or without
/// an envelope; `None` for anything else.
#[inline]
fn message_start(line: &[u8]) -> Option<usize> {
    let tagged = match line.first()? {
        b'[' => return stamp_end(line, 0),
        b'a'..=b'z' => return Some(0),
        // "Nov 30 16:52:04 host kernel: "
        b'A'..=b'Z' if line.get(3) == Some(&b' ') => {
            let colons = (line.get(9), line.get(12), line.get(15));
            if colons != (Some(&b':'), Some(&b':'), Some(&b' ')) {
                return None;
            }
            16
        }
        b'A'..=b'Z' => return Some(0),
        // "2026-11-30T16:52:04.123456+00:00 host kernel: "
        b'0'..=b'9' if line.get(4) == Some(&b'-') && line.get(10) == Some(&b'T') => {
            // With microseconds and an offset; else wherever the date ends.
            if line.get(32) == Some(&b' ') {
                33
            } else {
                19 + line.get(19..36)?.iter().position(|byte| *byte == b' ')? + 1
            }
        }
        _ => return None,
    };
    let host = line.get(tagged..)?.iter().take(64).position(|byte| *byte == b' ')?;
    let tag = tagged + host + 1;
    if !line.get(tag..)?.starts_with(b"kernel: ") {
        return None;
    }
    let start = tag + 8;
    match line.get(start) {
        Some(b'[') => stamp_end(line, start),
        _ => Some(start),
    }
}

/// After `[   12.345678] `, which begins at `start`.
#[inline]
fn stamp_end(line: &[u8], start: usize) -> Option<usize> {
    // Up to 99,999 seconds have the same width.
    let close = if line.get(start + 13) == Some(&b']') {
        13
    } else {
        line.get(start..)?.iter().take(32).position(|byte| *byte == b']')?
    };
    let end = start + close + 2;
    (line.get(end - 1) == Some(&b' ')).then_some(end)
}

/// `dddd:bb:dd.f`; other widths are left to the general parsers.
#[inline]
fn dotted_address(input: &[u8]) -> Option<(PciAddress, &[u8])> {
    let (domain, rest) = input.split_first_chunk::<4>()?;
    let [high @ .., _, _] = domain;
    let [_, _, low @ ..] = domain;
    let (found, rest) = short_address(rest.strip_prefix(b":")?)?;
    if rest.first().is_some_and(u8::is_ascii_hexdigit) {
        return None;
    }
    let domain = u32::from(pair(*high)?) << 8 | u32::from(pair(*low)?);
    Some((PciAddress::new(domain, found.bus(), found.device(), found.function())?, rest))
}

#[inline]
fn pair([high, low]: [u8; 2]) -> Option<u8> {
    Some(text::nibble(high)? << 4 | text::nibble(low)?)
}

/// `domain=0x0018 address=0x24000000000 flags=0x0020]` and the end of the line.
#[inline]
fn amd_fields(input: &[u8], event: &mut Event<'_>) -> Option<()> {
    let (domain, _, rest) = text::hex(input.strip_prefix(b"domain=0x")?)?;
    let (address, _, rest) = text::hex(rest.strip_prefix(b" address=0x")?)?;
    let (flags, _, rest) = text::hex(rest.strip_prefix(b" flags=0x")?)?;
    if rest != b"]" {
        return None;
    }
    event.iommu = Iommu::AmdVi;
    event.kind = Kind::IoPageFault;
    event.domain = Some(u32::try_from(domain).ok()?);
    event.address = Some(BusAddress(address));
    let flags = u32::try_from(flags).ok()?;
    event.flags = Some(flags);
    event.access = amd::access(flags);
    event.reason = None;
    Some(())
}

/// `Write NO_PASID] Request device [01:00.0] fault addr 0xfd000000 [fault reason 0x05] PTE …` and
/// the end of the line.
#[inline]
fn vtd_fields<'a>(input: &'a [u8], event: &mut Event<'a>) -> Option<()> {
    event.iommu = Iommu::VtD;
    event.kind = Kind::DmaFault;
    let (direction, rest) = match input.strip_prefix(b"Write ") {
        Some(rest) => (Direction::Write, rest),
        None => (Direction::Read, input.strip_prefix(b"Read ")?),
    };
    event.access = Access::certain(direction);
    let rest = rest.strip_prefix(b"NO_PASID] Request device [")?;
    let (device, rest) = short_address(rest).or_else(|| dotted_address(rest))?;
    event.requester = Requester::Pci(device);
    let (address, _, rest) = text::hex(rest.strip_prefix(b"] fault addr 0x")?)?;
    event.address = Some(BusAddress(address));
    let (code, 2, rest) = text::hex(rest.strip_prefix(b" [fault reason 0x")?)? else { return None };
    let code = u32::try_from(code).ok()?;
    let known = vtd_reason::text(code)?;
    if rest.strip_prefix(b"] ")? != known.as_bytes() {
        return None;
    }
    event.reason = Some(Reason { code, text: known });
    event.domain = None;
    event.flags = None;
    event.driver = None;
    Some(())
}

/// `bb:dd.f]`.
#[inline]
fn short_address(input: &[u8]) -> Option<(PciAddress, &[u8])> {
    let (bus, rest) = input.split_first_chunk::<2>()?;
    let (device, rest) = rest.strip_prefix(b":")?.split_first_chunk::<2>()?;
    let (function, rest) = rest.strip_prefix(b".")?.split_first()?;
    Some((PciAddress::new(0, pair(*bus)?, pair(*device)?, text::nibble(*function)?)?, rest))
}
