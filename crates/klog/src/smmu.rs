//! Arm SMMU event lines: version 3 (`arm-smmu-v3.c: arm_smmu_dump_event`, raw words and, since
//! 6.14, decoded) and version 1 and 2 (`arm-smmu.c: arm_smmu_context_fault`,
//! `arm_smmu_global_fault`).

use peerway_core::address::{BusAddress, PciAddress};

use crate::event::{Access, Class, Direction, Event, Iommu, Kind, Requester};
use crate::notice::{Fact, Lost};
use crate::text;

/// What an SMMU line holds. All but the last name the unit that reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Smmu<'a> {
    /// Version 3: `event 0x10 received:`, the head of a record.
    Head { unit: &'a str, id: u32 },
    /// Version 3: one of the four words after it.
    Word { unit: &'a str, value: u64 },
    /// Version 3: `event: F_TRANSLATION client: …`.
    Decoded { unit: &'a str, event: Event<'a>, goes_on: bool },
    /// Version 3: `unpriv data write s1 "…" stag: …`, which ends a decoded fault.
    Attributes { unit: &'a str, access: Access },
    /// Version 2: a whole fault.
    Fault(Event<'a>),
    /// Version 2: a fault outside every context; its registers follow.
    GlobalHead { unit: &'a str, event: Event<'a> },
    /// Version 2: `GFSR 0x…, GFSYNR0 …`, those registers.
    Registers { unit: &'a str, status: u32, stream: u32 },
    /// Something else.
    Other,
}

/// Event numbers of version 3 that the kernel names.
const NAMES: [(u32, &[u8], Kind); 12] = [
    (0x02, b"C_BAD_STREAMID", Kind::CBadStreamId),
    (0x03, b"F_STE_FETCH", Kind::FSteFetch),
    (0x04, b"C_BAD_STE", Kind::CBadSte),
    (0x06, b"F_STREAM_DISABLED", Kind::FStreamDisabled),
    (0x08, b"C_BAD_SUBSTREAMID", Kind::CBadSubstreamId),
    (0x09, b"F_CD_FETCH", Kind::FCdFetch),
    (0x0a, b"C_BAD_CD", Kind::CBadCd),
    (0x10, b"F_TRANSLATION", Kind::FTranslation),
    (0x11, b"F_ADDR_SIZE", Kind::FAddrSize),
    (0x12, b"F_ACCESS", Kind::FAccess),
    (0x13, b"F_PERMISSION", Kind::FPermission),
    (0x25, b"F_VMS_FETCH", Kind::FVmsFetch),
];

/// The kind of a version 3 event by its number.
pub(crate) fn kind(id: u32) -> Kind {
    NAMES.iter().find(|(known, ..)| *known == id).map_or(Kind::SmmuOther, |(.., kind)| *kind)
}

/// Reads the message at the anchor `arm-smmu`, which stands at `at`.
pub(crate) fn parse(message: &[u8], at: usize) -> Smmu<'_> {
    read(message, at).unwrap_or(Smmu::Other)
}

fn read(message: &[u8], at: usize) -> Option<Smmu<'_>> {
    let rest = message.get(at..)?;
    // "arm-smmu-v3 fc900000.iommu: body", in old kernels also "arm-smmu fd800000.smmu: body".
    let (driver, rest) = text::until(rest, |byte| byte == b' ');
    let (unit, rest) = text::until(rest.strip_prefix(b" ")?, |byte| byte == b':');
    let unit = text::name(unit)?;
    let body = rest.strip_prefix(b":")?;
    let body = text::trim_start(body);
    match driver {
        b"arm-smmu-v3" => version_3(message, unit, body),
        b"arm-smmu" => version_2(message, unit, body),
        _ => None,
    }
}

fn version_3<'a>(message: &'a [u8], unit: &'a str, body: &'a [u8]) -> Option<Smmu<'a>> {
    if let Some(rest) = body.strip_prefix(b"event 0x") {
        let (id, _, rest) = text::hex(rest)?;
        if !rest.starts_with(b" received") {
            return None;
        }
        return Some(Smmu::Head { unit, id: u32::try_from(id).ok()? });
    }
    if let Some((value, 16, rest)) = text::prefixed_hex(body) {
        return text::trim_end(rest).is_empty().then_some(Smmu::Word { unit, value });
    }
    if let Some(rest) = body.strip_prefix(b"event: ") {
        return decoded(message, unit, rest);
    }
    let mut words = body.split(|byte| *byte == b' ');
    let privilege = words.next()?;
    let what = words.next()?;
    if !matches!(privilege, b"priv" | b"unpriv") || !matches!(what, b"inst" | b"data") {
        return None;
    }
    let access = match (what, words.next()?) {
        (b"inst", _) => Access::certain(Direction::Execute),
        (_, b"read") => Access::certain(Direction::Read),
        (_, b"write") => Access::certain(Direction::Write),
        _ => return None,
    };
    Some(Smmu::Attributes { unit, access })
}

/// `F_TRANSLATION client: 0002:21:00.0 sid: 0x2100 ssid: 0x0 iova: 0x100 ipa: 0x0`.
fn decoded<'a>(message: &'a [u8], unit: &'a str, body: &'a [u8]) -> Option<Smmu<'a>> {
    let (name, rest) = text::until(body, |byte| byte == b' ');
    let known = NAMES.iter().find(|(_, known, _)| *known == name);
    if known.is_none() && name != b"UNKNOWN" {
        return None;
    }
    let kind = known.map_or(Kind::SmmuOther, |(.., kind)| *kind);
    let mut event = Event::new(Iommu::SmmuV3, kind);
    event.unit = Some(unit);
    event.text = message;
    let client = rest.strip_prefix(b" client: ")?;
    let (client, rest) = text::split_once(client, b" sid: ")?;
    let (stream, _, mut rest) = text::prefixed_hex(rest)?;
    event.requester = match PciAddress::parse_prefix(client) {
        Some((address, [])) => Requester::Pci(address),
        _ => match text::name(client) {
            Some(name) => Requester::Named(name),
            None => Requester::Stream(u32::try_from(stream).ok()?),
        },
    };
    while let Some((key, value)) = text::split_once(rest, b": 0x") {
        let Some((number, _, tail)) = text::hex(value) else { break };
        match text::last_word(key).1 {
            // 0 is what the kernel prints where the request had none.
            b"ssid" => event.pasid = u32::try_from(number).ok().filter(|pasid| *pasid != 0),
            b"iova" => event.address = Some(BusAddress(number)),
            _ => {}
        }
        rest = tail;
    }
    let goes_on = event.class() == Class::Translation;
    event.cut = goes_on && event.address.is_none();
    Some(Smmu::Decoded { unit, event, goes_on })
}

/// Fills an event from the four raw words (SMMUv3 specification, "event queue").
pub(crate) fn from_words(event: &mut Event<'_>, words: &[u64]) {
    let [first, second, address, last, ..] = words else { return };
    event.words = Some([*first, *second, *address, *last]);
    if event.requester == Requester::Unknown
        && let Ok(stream) = u32::try_from(*first >> 32)
    {
        event.requester = Requester::Stream(stream);
    }
    if event.pasid.is_none() && first & 1 << 11 != 0 {
        event.pasid = u32::try_from(*first >> 12 & 0xf_ffff).ok();
    }
    if event.class() == Class::Translation {
        if event.address.is_none() {
            event.address = Some(BusAddress(*address));
        }
        if event.access == Access::UNKNOWN {
            event.access = Access::certain(match (second >> 34 & 1, second >> 35 & 1) {
                (1, _) => Direction::Execute,
                (_, 1) => Direction::Read,
                _ => Direction::Write,
            });
        }
    }
}

fn version_2<'a>(message: &'a [u8], unit: &'a str, body: &'a [u8]) -> Option<Smmu<'a>> {
    let blank = |kind| {
        let mut event = Event::new(Iommu::SmmuV2, kind);
        event.unit = Some(unit);
        event.text = message;
        event
    };
    if let Some(rest) = body.strip_prefix(b"Unhandled context fault: ") {
        let mut event = blank(Kind::ContextFault);
        for field in rest.split(|byte| *byte == b',') {
            let Some((key, value)) = text::split_once(text::trim_start(field), b"=") else {
                continue;
            };
            let Some((number, _, _)) = text::prefixed_hex(value) else { continue };
            match key {
                b"fsr" => event.flags = u32::try_from(number).ok(),
                b"iova" => event.address = Some(BusAddress(number)),
                b"fsynr" => {
                    // WNR, "write not read", is bit 4.
                    event.access = Access::certain(if number & 0x10 == 0 {
                        Direction::Read
                    } else {
                        Direction::Write
                    });
                }
                // The low half is the stream id.
                b"cbfrsynra" => {
                    event.requester = Requester::Stream(u32::try_from(number & 0xffff).ok()?);
                }
                _ => {}
            }
        }
        event.cut = event.address.is_none();
        return Some(Smmu::Fault(event));
    }
    if body.starts_with(b"Unexpected global fault") {
        return Some(Smmu::GlobalHead { unit, event: blank(Kind::GlobalFault) });
    }
    if let Some(rest) = body.strip_prefix(b"Blocked unknown Stream ID ") {
        let mut event = blank(Kind::GlobalFault);
        event.requester = Requester::Stream(u32::try_from(text::prefixed_hex(rest)?.0).ok()?);
        return Some(Smmu::GlobalHead { unit, event });
    }
    if let Some(rest) = body.strip_prefix(b"GFSR ") {
        let status = u32::try_from(text::prefixed_hex(rest)?.0).ok()?;
        let (stream, _, _) = text::prefixed_hex(text::after(rest, b"GFSYNR1 ")?)?;
        return Some(Smmu::Registers {
            unit,
            status,
            stream: u32::try_from(stream & 0xffff).ok()?,
        });
    }
    None
}

/// Lines of an SMMU that are no events.
pub(crate) fn notice(message: &[u8], at: usize) -> Option<Fact<'_>> {
    let rest = message.get(at..)?;
    let has = |needle: &[u8]| text::contains(rest, needle);
    if has(b"EVTQ overflow detected") || has(b"EVTQ write aborted") {
        Some(Fact::EventsLost(Lost::Overflow))
    } else if has(b"PRIQ overflow detected") || has(b"PRIQ write aborted") {
        Some(Fact::EventsLost(Lost::PageRequests))
    } else if has(b"CMD_SYNC timeout") || has(b"Service Failure Mode") {
        Some(Fact::IommuStuck)
    } else {
        None
    }
}
