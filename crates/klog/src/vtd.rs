//! Intel VT-d fault lines (`drivers/iommu/intel/dmar.c`: `dmar_fault_do_one`, `qi_check_fault`),
//! from 3.x to 7.3, and Xen's (`xen/drivers/passthrough/vtd/iommu.c: iommu_page_fault_do_one`).

use peerway_core::address::{BusAddress, PciAddress};

use crate::event::{Access, Direction, Event, Iommu, Kind, Reason, Requester};
use crate::text;

/// What a VT-d line holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Vtd<'a> {
    /// An event with all its parts, and how far into the message it reaches.
    Event(Event<'a>, usize),
    /// The front of an event whose address or reason follows in messages of their own.
    Open {
        event: Event<'a>,
        end: usize,
        /// The address ends with the line where its kernel goes on: it may lack digits.
        address_may_be_cut: bool,
    },
    /// `[fault reason 06] …`, perhaps with the address before it: the rest of such an event.
    Rest(Rest<'a>),
    /// Something else.
    Other,
}

/// The rest of an event that was printed in several messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rest<'a> {
    pub(crate) address: Option<u64>,
    pub(crate) reason: Option<Reason<'a>>,
}

/// Where `Request device [` stands if the anchor `DMAR` at `at` begins a fault:
/// `DMAR: [DMA Write NO_PASID] Request device […`.
pub(crate) fn request_after(message: &[u8], at: usize) -> Option<usize> {
    let rest = message.get(at..)?.strip_prefix(b"DMAR:")?;
    let rest = text::trim_start(rest);
    if !rest.starts_with(b"[DMA ") && !rest.starts_with(b"[INTR-REMAP]") {
        return None;
    }
    let (_, rest) = text::until(rest, |byte| byte == b']');
    let rest = rest.strip_prefix(b"] ")?;
    rest.starts_with(b"Request device [").then(|| message.len() - rest.len())
}

/// Reads the event around `Request device [`, which stands at `at`.
pub(crate) fn parse_request(message: &[u8], at: usize) -> Vtd<'_> {
    request(message, at).unwrap_or(Vtd::Other)
}

fn request(message: &[u8], at: usize) -> Option<Vtd<'_>> {
    let (before, rest) = message.split_at_checked(at)?;
    // The longest front is "DMAR: [DMA Write PASID 0xfffff] ".
    let before = text::tail(before, 48);
    let rest = rest.strip_prefix(b"Request device [")?;
    // Old kernels printed "[[" in front of the source of an interrupt.
    let rest = rest.strip_prefix(b"[").unwrap_or(rest);
    let (requester, rest) = text::pci_address(rest)?;
    let mut rest = rest.strip_prefix(b"]")?;
    let mut event = operation(before);
    event.requester = Requester::Pci(requester);
    event.text = message;

    rest = text::trim_start(rest);
    if let Some(tail) = rest.strip_prefix(b"PASID ") {
        let (pasid, _, tail) = text::prefixed_hex(tail).or_else(|| text::hex(tail))?;
        // All ones: the request had none.
        event.pasid = u32::try_from(pasid).ok().filter(|pasid| *pasid != u32::MAX);
        rest = text::trim_start(tail);
    }
    let mut address_may_be_cut = false;
    if let Some(tail) = rest.strip_prefix(b"fault addr ") {
        let (address, _, tail) = number(tail)?;
        event.address = Some(BusAddress(address));
        // Kernels before 4.3 print "DMAR:[" and end their line here, after a space.
        address_may_be_cut = tail.is_empty() && !text::contains(before, b"DMAR:[");
        rest = tail;
    } else if let Some(tail) = rest.strip_prefix(b"fault index ") {
        event.kind = Kind::InterruptRemapFault;
        event.access = Access::certain(Direction::Interrupt);
        rest = number(tail)?.2;
    } else if !text::trim_end(rest).is_empty() {
        // Neither an address nor the end of a line that goes on in the next. A cut word of either
        // is still the front of an event.
        let cut = [&b"fault addr "[..], b"fault index "].iter().any(|word| word.starts_with(rest));
        if !cut {
            return None;
        }
        event.cut = true;
        return Some(Vtd::Event(event, message.len()));
    }
    // Xen: ",iommu reg = ffff82c…" and the like.
    if rest.starts_with(b",") {
        rest = &[];
    }
    rest = text::trim_start(rest);
    match reason(rest) {
        Some((reason, tail)) => {
            event.reason = Some(reason);
            let end = message.len() - tail.len();
            let whole = event.address.is_some() || event.kind == Kind::InterruptRemapFault;
            Some(if whole {
                Vtd::Event(event, end)
            } else {
                Vtd::Open { event, end, address_may_be_cut }
            })
        }
        None if text::trim_end(rest).is_empty() || rest.starts_with(b"DMAR:") => {
            let end = message.len() - rest.len();
            Some(Vtd::Open { event, end, address_may_be_cut })
        }
        // Cut inside the reason.
        None => {
            event.cut = true;
            Some(Vtd::Event(event, message.len()))
        }
    }
}

/// A number with or without `0x`; both are hexadecimal here.
fn number(input: &[u8]) -> Option<(u64, usize, &[u8])> {
    text::prefixed_hex(input).or_else(|| text::hex(input))
}

/// `[DMA Write PASID 0x2] ` in front of the request.
#[inline]
fn operation(before: &[u8]) -> Event<'_> {
    let mut event = Event::new(Iommu::VtD, Kind::DmaFault);
    let before = text::trim_end(before);
    let Some(inner) = before.strip_suffix(b"]") else {
        if before.ends_with(b"INTR-REMAP:") {
            event.kind = Kind::InterruptRemapFault;
            event.access = Access::certain(Direction::Interrupt);
        }
        return event;
    };
    let start = inner.iter().rposition(|byte| *byte == b'[').map_or(0, |at| at + 1);
    let inner = inner.get(start..).unwrap_or_default();
    if inner == b"INTR-REMAP" {
        event.kind = Kind::InterruptRemapFault;
        event.access = Access::certain(Direction::Interrupt);
        return event;
    }
    let rest = if let Some(rest) = inner.strip_prefix(b"DMA Read") {
        event.access = Access::certain(Direction::Read);
        rest
    } else if let Some(rest) = inner.strip_prefix(b"DMA Write") {
        event.access = Access::certain(Direction::Write);
        rest
    } else {
        return event;
    };
    if let Some((pasid, _, _)) = rest.strip_prefix(b" PASID ").and_then(number) {
        event.pasid = u32::try_from(pasid).ok();
    }
    event
}

/// `[fault reason 0x05] PTE Write access is not set`; before 5.14 the number is decimal.
fn reason(input: &[u8]) -> Option<(Reason<'_>, &[u8])> {
    let rest = input.strip_prefix(b"[fault reason ")?;
    let (code, rest) = if let Some((code, _, rest)) = text::prefixed_hex(rest) {
        (code, rest)
    } else {
        let (code, _, tail) = text::decimal(rest)?;
        match tail {
            // Xen prints hexadecimal with an "h" behind it.
            [b'h', tail @ ..] => (text::hex(rest)?.0, tail),
            _ => (code, tail),
        }
    };
    let rest = rest.strip_prefix(b"]")?;
    Some(named(u32::try_from(code).ok()?, text::trim_start(rest)))
}

/// The meaning of a code: from the table, or what the log says where the table has none.
fn named(code: u32, rest: &[u8]) -> (Reason<'_>, &[u8]) {
    if let Some(known) = crate::vtd_reason::text(code) {
        let tail = rest.strip_prefix(known.as_bytes());
        // Where the texts differ, the text of the log goes on to the end of its line.
        return (Reason { code, text: known }, tail.unwrap_or_default());
    }
    let logged = text::trim_end(rest);
    (Reason { code, text: std::str::from_utf8(logged).unwrap_or("Unknown") }, &[])
}

/// Reads the message at the anchor `fault reason`: what is left of an event in several messages.
pub(crate) fn parse_rest(message: &[u8]) -> Vtd<'_> {
    let read = || {
        let mut rest = text::trim_start(message);
        for tag in [&b"[VT-D]"[..], b"DMAR:", b"INTR-REMAP:"] {
            rest = text::trim_start(rest.strip_prefix(tag).unwrap_or(rest));
        }
        let mut found = Rest::default();
        if let Some(tail) = rest.strip_prefix(b"fault addr ") {
            let (address, _, tail) = number(tail)?;
            found.address = Some(address);
            rest = text::trim_start(tail);
        }
        if let Some(tail) = rest.strip_prefix(b"reason ") {
            // Xen: "reason 06 - PTE Read access is not set".
            let (code, _, tail) = text::hex(tail)?;
            let tail = tail.strip_prefix(b" - ")?;
            found.reason = Some(named(u32::try_from(code).ok()?, tail).0);
        } else if let Some((reason, _)) = reason(rest) {
            found.reason = Some(reason);
        }
        (found != Rest::default()).then_some(Vtd::Rest(found))
    };
    read().unwrap_or(Vtd::Other)
}

/// Reads the message at the anchor `DMAR`: an error of the invalidation queue.
pub(crate) fn parse_queue(message: &[u8]) -> Option<Event<'_>> {
    let rest = text::after(message, b"VT-d detected ")?;
    let (kind, rest) = if let Some(rest) = rest.strip_prefix(b"Invalidation Queue Error") {
        (Kind::InvalidationQueueError, rest)
    } else if let Some(rest) = rest.strip_prefix(b"Invalidation Time-out Error") {
        (Kind::InvalidationTimeout, rest)
    } else {
        (Kind::InvalidationCompletionError, rest.strip_prefix(b"Invalidation Completion Error")?)
    };
    let mut event = Event::new(Iommu::VtD, kind);
    event.text = message;
    if let Some((code, _, _)) = text::after(rest, b"Reason ").and_then(number) {
        event.flags = u32::try_from(code).ok();
    }
    if let Some((source, _, _)) = text::after(rest, b"SID ").and_then(number)
        && let Ok(source) = u16::try_from(source)
    {
        event.requester = Requester::Pci(PciAddress::from_requester_id(0, source));
    }
    Some(event)
}
