//! The three forms that fault storms consist of, read straight from the line: AMD page faults with
//! and without a device in front, and VT-d faults of 5.15 and later.
//!
//! A line that is any different (an envelope of another kind, a cut, two messages run together) is
//! left to the general parsers, which give the same for lines that both accept; a test holds them
//! to it.

use peerway_core::address::{BusAddress, PciAddress};

use crate::amd;
use crate::anchors::{Family, Hit};
use crate::event::{Access, Direction, Event, Iommu, Kind, Reason, Requester, When};
use crate::{text, vtd_reason};

/// Reads a whole event from a whole line.
#[inline]
pub(crate) fn event(line: &[u8], hit: Hit, number: u64, boot: u32) -> Option<Event<'_>> {
    let (family, at) = hit;
    if !is_plain(line) {
        return None;
    }
    let (before, rest) = line.split_at_checked(at)?;
    let mut event = Event::new(Iommu::AmdVi, Kind::IoPageFault);
    let front = match family {
        Family::Device => {
            let start = before.iter().rposition(|byte| *byte == b' ').map_or(0, |at| at + 1);
            let (front, driver) = before.split_at_checked(start)?;
            let (device, rest) = address(rest.get(1..)?)?;
            event.driver = Some(text::name(driver)?);
            event.requester = Requester::Pci(device);
            amd_fields(rest.strip_prefix(b": AMD-Vi: Event logged [IO_PAGE_FAULT ")?, &mut event)?;
            front
        }
        Family::Amd => {
            let rest = rest.strip_prefix(b"AMD-Vi: Event logged [IO_PAGE_FAULT device=")?;
            let (device, rest) = address(rest)?;
            event.requester = Requester::Pci(device);
            amd_fields(rest.strip_prefix(b" ")?, &mut event)?;
            before
        }
        Family::Dmar => {
            vtd_fields(rest.strip_prefix(b"DMAR: [DMA ")?, &mut event)?;
            before
        }
        _ => return None,
    };
    // Nothing but an envelope may stand in front.
    if !front.is_empty() && !front.ends_with(b"] ") && !front.ends_with(b"kernel: ") {
        return None;
    }
    event.line = number;
    event.boot = boot;
    event.when = When::raw(front);
    event.text = line.get(front.len()..)?;
    Some(event)
}

/// Whether a line begins like `dmesg`, a system log, or a bare message: no JSON, no colours, no
/// `/dev/kmsg`, no indentation.
#[inline]
fn is_plain(line: &[u8]) -> bool {
    match line.first() {
        Some(b'[' | b'a'..=b'z' | b'A'..=b'Z') => true,
        // A date, and not the head of a record.
        Some(b'0'..=b'9') => line.get(4) == Some(&b'-'),
        _ => false,
    }
}

/// `dddd:bb:dd.f`; other widths are left to the general parsers.
#[inline]
fn address(input: &[u8]) -> Option<(PciAddress, &[u8])> {
    let (head, rest) = input.split_first_chunk::<12>()?;
    let [a, b, c, d, b':', e, f, b':', g, h, b'.', i] = *head else { return None };
    if rest.first().is_some_and(u8::is_ascii_hexdigit) {
        return None;
    }
    let domain = pair(a, b)? << 8 | pair(c, d)?;
    let bus = u8::try_from(pair(e, f)?).ok()?;
    let device = u8::try_from(pair(g, h)?).ok()?;
    let found = PciAddress::new(domain, bus, device, text::nibble(i)?)?;
    Some((found, rest))
}

#[inline]
fn pair(high: u8, low: u8) -> Option<u32> {
    Some(u32::from(text::nibble(high)?) << 4 | u32::from(text::nibble(low)?))
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
    event.domain = Some(u32::try_from(domain).ok()?);
    event.address = Some(BusAddress(address));
    let flags = u32::try_from(flags).ok()?;
    event.flags = Some(flags);
    event.access = amd::access(flags);
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
    let (device, rest) = short_address(rest).or_else(|| self::address(rest))?;
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
    Some(())
}

/// `bb:dd.f]`.
#[inline]
fn short_address(input: &[u8]) -> Option<(PciAddress, &[u8])> {
    let (head, rest) = input.split_first_chunk::<7>()?;
    let [a, b, b':', c, d, b'.', e] = *head else { return None };
    let bus = u8::try_from(pair(a, b)?).ok()?;
    let device = u8::try_from(pair(c, d)?).ok()?;
    Some((PciAddress::new(0, bus, device, text::nibble(e)?)?, rest))
}
