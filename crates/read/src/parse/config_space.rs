//! Configuration space: the header and the capabilities that bear on peer access
//! (PCI Express Base Specification, chapter 7).
//!
//! Reads only the words it needs, through a closure, since each read reaches the device.

use peerway_core::observed::Observed;
use peerway_core::snapshot::pci::{Acs, Ats, ConfigFacts, LinkState, PortType, ResizableBar};

/// Reads `length` bytes at an offset; fewer at the end of what may be read.
pub type ReadAt<'a> = dyn FnMut(u16, usize) -> Result<Vec<u8>, String> + 'a;

/// First byte past what an unprivileged reader gets (`drivers/pci/pci-sysfs.c`,
/// `pci_read_config`).
const UNPRIVILEGED: u16 = 64;
/// Start of the extended capabilities.
const EXTENDED: u16 = 0x100;
/// Extended configuration space holds at most this many headers: (4096 - 256) / 4.
const MOST_EXTENDED: usize = 960;
/// Standard configuration space holds at most this many headers: (256 - 64) / 4.
const MOST_STANDARD: usize = 48;

/// Standard capability: PCI Express.
const CAP_EXPRESS: u8 = 0x10;
/// Extended capabilities by number.
const EXT_ACS: u16 = 0x000d;
const EXT_ATS: u16 = 0x000f;
const EXT_RESIZABLE: u16 = 0x0015;
const EXT_PASID: u16 = 0x001b;

/// Why words beyond the first 64 bytes are missing.
const NEEDS_PRIVILEGE: &str = "needs CAP_SYS_ADMIN";

/// What a function's configuration space says.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decoded {
    /// What bears on peer access.
    pub facts: ConfigFacts,
    /// The link, where the registers hold one: what sysfs shows in `current_link_*` and
    /// `max_link_*` (`drivers/pci/pci-sysfs.c` reads the same registers).
    pub link: Option<LinkState>,
}

/// Decodes a function's configuration space.
///
/// # Errors
/// The header could not be read.
pub fn decode(read: &mut ReadAt<'_>) -> Result<Decoded, String> {
    let header = read(0, 64)?;
    if header.len() < 64 {
        return Err(format!("only {} of 64 header bytes could be read", header.len()));
    }
    if header.iter().all(|byte| *byte == 0xff) {
        let facts = ConfigFacts { dead: true, ..ConfigFacts::default() };
        return Ok(Decoded { facts, link: None });
    }
    let mut link = None;
    let command = word(&header, 4);
    let mut facts = ConfigFacts {
        memory_enabled: command & 2 != 0,
        bus_master: command & 4 != 0,
        ..ConfigFacts::default()
    };
    let has_list = word(&header, 6) & 0x10 != 0;
    let first = header.get(0x34).copied().unwrap_or(0) & 0xfc;
    match find_express(read, has_list.then_some(first)) {
        Observed::Known(express) => {
            express_facts(read, express, &mut facts);
            link = link_at(read, express);
        }
        Observed::Absent => conventional(&mut facts),
        Observed::Unreadable(why) => {
            facts.port_type = Observed::Unreadable(why.clone());
            facts.max_payload = Observed::Unreadable(why.clone());
            unreadable_extended(&mut facts, &why);
        }
    }
    Ok(Decoded { facts, link })
}

/// Conventional PCI has no extended capabilities.
fn conventional(facts: &mut ConfigFacts) {
    facts.port_type = Observed::Absent;
    facts.max_payload = Observed::Absent;
    conventional_extended(facts);
}

fn unreadable_extended(facts: &mut ConfigFacts, why: &str) {
    facts.acs = Observed::Unreadable(why.to_owned());
    facts.ats = Observed::Unreadable(why.to_owned());
    facts.pasid = Observed::Unreadable(why.to_owned());
    facts.resizable = Observed::Unreadable(why.to_owned());
}

fn word(bytes: &[u8], at: usize) -> u16 {
    match bytes.get(at..at + 2) {
        Some([low, high]) => u16::from_le_bytes([*low, *high]),
        _ => 0,
    }
}

fn double_word(bytes: &[u8], at: usize) -> u32 {
    u32::from(word(bytes, at)) | u32::from(word(bytes, at + 2)) << 16
}

/// Reads exactly `length` bytes; what is missing is named.
fn exactly(read: &mut ReadAt<'_>, offset: u16, length: usize) -> Result<Vec<u8>, String> {
    let bytes = read(offset, length)?;
    if bytes.len() == length {
        return Ok(bytes);
    }
    Err(if offset >= UNPRIVILEGED { NEEDS_PRIVILEGE } else { "cut short" }.to_owned())
}

/// Walks the standard list for the PCI Express capability.
fn find_express(read: &mut ReadAt<'_>, first: Option<u8>) -> Observed<u16> {
    let mut next = match first {
        Some(first) if first >= 0x40 => u16::from(first),
        _ => return Observed::Absent,
    };
    for _ in 0..MOST_STANDARD {
        let header = match exactly(read, next, 2) {
            Ok(header) => header,
            Err(why) => return Observed::Unreadable(why),
        };
        let [id, pointer] = word(&header, 0).to_le_bytes();
        match id {
            CAP_EXPRESS => return Observed::Known(next),
            0xff => return Observed::Unreadable("the capability list reads as ones".to_owned()),
            _ => {}
        }
        match pointer & 0xfc {
            0..0x40 => return Observed::Absent,
            pointer => next = u16::from(pointer),
        }
    }
    Observed::Unreadable("the capability list runs in a circle".to_owned())
}

fn express_facts(read: &mut ReadAt<'_>, express: u16, facts: &mut ConfigFacts) {
    // Capabilities register at +2; device control at +8, with the payload size in bits 7 to 5.
    match exactly(read, express, 0x0a) {
        Ok(bytes) => {
            facts.port_type = Observed::Known(port_type(word(&bytes, 2)));
            facts.max_payload = match word(&bytes, 8) >> 5 & 7 {
                code @ 0..=5 => Observed::Known(128 << code),
                code => Observed::Unreadable(format!("reserved payload code {code}")),
            };
        }
        Err(why) => {
            facts.port_type = Observed::Unreadable(why.clone());
            facts.max_payload = Observed::Unreadable(why);
        }
    }
    extended(read, facts);
}

fn port_type(flags: u16) -> PortType {
    match u8::try_from(flags >> 4 & 0xf).unwrap_or(u8::MAX) {
        0 | 1 => PortType::Endpoint,
        4 => PortType::RootPort,
        5 => PortType::Upstream,
        6 => PortType::Downstream,
        7 | 8 => PortType::PciBridge,
        9 => PortType::RootComplexIntegrated,
        10 => PortType::EventCollector,
        other => PortType::Reserved(other),
    }
}

/// Link capabilities at +0x0c and link status at +0x12: speed codes in bits 3 to 0, lanes in bits 9
/// to 4 (7.5.3.6, 7.5.3.8). `None` where there is no link, or no sensible one.
fn link_at(read: &mut ReadAt<'_>, express: u16) -> Option<LinkState> {
    let registers = exactly(read, express.checked_add(0x0c)?, 8).ok()?;
    let (capabilities, status) = (word(&registers, 0), word(&registers, 6));
    let lanes = |register: u16| {
        let lanes = u32::from(register >> 4 & 0x3f);
        (1..=32).contains(&lanes).then_some(lanes)
    };
    Some(LinkState {
        speed: speed(status & 0xf)?,
        width: lanes(status)?,
        max_speed: speed(capabilities & 0xf)?,
        max_width: lanes(capabilities)?,
    })
}

/// Speed of a code, in units of 0.1 GT/s.
fn speed(code: u16) -> Option<u32> {
    Some(match code {
        1 => 25,
        2 => 50,
        3 => 80,
        4 => 160,
        5 => 320,
        6 => 640,
        _ => return None,
    })
}

/// Walks the extended list. A header of number 0 with a next pointer is a capability that a
/// hypervisor hides: the walk goes on behind it. What was found stays when the list cannot be
/// finished; whatever was not found is then unknown.
fn extended(read: &mut ReadAt<'_>, facts: &mut ConfigFacts) {
    conventional_extended(facts);
    let mut seen = [false; MOST_EXTENDED];
    let mut next = EXTENDED;
    let broken = loop {
        match seen.get_mut(usize::from((next - EXTENDED) / 4)) {
            Some(seen) if !*seen => *seen = true,
            _ => break "the extended capability list runs in a circle".to_owned(),
        }
        let header = match exactly(read, next, 4) {
            Ok(header) => double_word(&header, 0),
            Err(why) => break why,
        };
        if header == 0 {
            return;
        }
        // A device that answers has an empty list, and not ones, where it has no capabilities.
        if header == u32::MAX {
            break "the extended capabilities read as ones".to_owned();
        }
        match u16::try_from(header & 0xffff).unwrap_or(0) {
            EXT_ACS => facts.acs = acs_at(read, next),
            EXT_ATS => facts.ats = ats_at(read, next),
            EXT_PASID => facts.pasid = Observed::Known(true),
            EXT_RESIZABLE => facts.resizable = resizable_at(read, next),
            _ => {}
        }
        match u16::try_from(header >> 20).unwrap_or(0) & 0xffc {
            0 => return,
            pointer @ 1..EXTENDED => break format!("a capability points back to {pointer:#x}"),
            pointer => next = pointer,
        }
    };
    not_found_is_unknown(facts, &broken);
}

/// The state before the walk: nothing found.
fn conventional_extended(facts: &mut ConfigFacts) {
    facts.acs = Observed::Absent;
    facts.ats = Observed::Absent;
    facts.pasid = Observed::Known(false);
    facts.resizable = Observed::Absent;
}

fn not_found_is_unknown(facts: &mut ConfigFacts, why: &str) {
    if facts.acs.is_absent() {
        facts.acs = Observed::Unreadable(why.to_owned());
    }
    if facts.ats.is_absent() {
        facts.ats = Observed::Unreadable(why.to_owned());
    }
    if facts.pasid == Observed::Known(false) {
        facts.pasid = Observed::Unreadable(why.to_owned());
    }
    if facts.resizable.is_absent() {
        facts.resizable = Observed::Unreadable(why.to_owned());
    }
}

fn acs_at(read: &mut ReadAt<'_>, at: u16) -> Observed<Acs> {
    match exactly(read, at + 4, 4) {
        Ok(bytes) => Observed::Known(Acs { capability: word(&bytes, 0), control: word(&bytes, 2) }),
        Err(why) => Observed::Unreadable(why),
    }
}

fn ats_at(read: &mut ReadAt<'_>, at: u16) -> Observed<Ats> {
    match exactly(read, at + 4, 4) {
        Ok(bytes) => Observed::Known(Ats { enabled: word(&bytes, 2) >> 15 == 1 }),
        Err(why) => Observed::Unreadable(why),
    }
}

/// Entries of eight bytes: capability (sizes from bit 4, 1 MiB), control (index 2:0, number of
/// entries 7:5 in the first, current size code 13:8).
fn resizable_at(read: &mut ReadAt<'_>, at: u16) -> Observed<Vec<ResizableBar>> {
    let mut entries = Vec::new();
    let mut count = 1;
    let mut index = 0;
    while index < count && index < 6 {
        let bytes = match exactly(read, at + 4 + index * 8, 8) {
            Ok(bytes) => bytes,
            Err(why) => return Observed::Unreadable(why),
        };
        let (sizes, control) = (double_word(&bytes, 0) >> 4, double_word(&bytes, 4));
        if index == 0 {
            count = u16::try_from(control >> 5 & 7).unwrap_or(1);
        }
        let largest = 31_u32.saturating_sub(sizes.leading_zeros());
        entries.push(ResizableBar {
            index: u8::try_from(control & 7).unwrap_or(0),
            current: (1_u64 << 20) << (control >> 8 & 0x1f),
            largest: if sizes == 0 { 0 } else { (1_u64 << 20) << largest },
        });
        index += 1;
    }
    Observed::Known(entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A function with PCI Express at 0x60 and the extended capabilities given.
    fn space(kind: u8, extended: &[(u16, u16, &[u8])]) -> Vec<u8> {
        let mut bytes = vec![0_u8; 4096];
        bytes[..4].copy_from_slice(&[0xde, 0x10, 0xb5, 0x2b]);
        bytes[4] = 6;
        bytes[6] = 0x10;
        bytes[0x34] = 0x40;
        bytes[0x40..0x42].copy_from_slice(&[0x05, 0x60]);
        bytes[0x60..0x64].copy_from_slice(&[0x10, 0x00, kind << 4 | 2, 0x00]);
        bytes[0x68] = 0x20;
        let mut at = 0x100_usize;
        for (index, (id, next, body)) in extended.iter().enumerate() {
            let header = u32::from(*id) | 1 << 16 | u32::from(*next) << 20;
            bytes[at..at + 4].copy_from_slice(&header.to_le_bytes());
            bytes[at + 4..at + 4 + body.len()].copy_from_slice(body);
            if index + 1 < extended.len() {
                at = usize::from(*next);
            }
        }
        bytes
    }

    fn decode_bytes(bytes: &[u8]) -> Result<ConfigFacts, String> {
        let mut reads = 0;
        let decoded = decode(&mut |offset, length| {
            reads += 1;
            let start = usize::from(offset).min(bytes.len());
            Ok(bytes[start..(start + length).min(bytes.len())].to_vec())
        });
        assert!(reads < 1100, "the walk must be bounded");
        decoded.map(|decoded| decoded.facts)
    }

    #[track_caller]
    fn check_link(capabilities: u16, status: u16, expected: Option<(u32, u32, u32, u32)>) {
        let mut bytes = space(0, &[]);
        bytes[0x6c..0x6e].copy_from_slice(&capabilities.to_le_bytes());
        bytes[0x72..0x74].copy_from_slice(&status.to_le_bytes());
        let decoded = decode(&mut |offset, length| {
            let start = usize::from(offset);
            Ok(bytes[start..start + length].to_vec())
        });
        let link = decoded.unwrap().link;
        let seen = link.map(|link| (link.speed, link.width, link.max_speed, link.max_width));
        assert_eq!(seen, expected);
    }

    #[test]
    fn links() {
        // ASPM and other bits above, training and clock bits beside.
        check_link(0x0d05, 0x1101, Some((25, 16, 320, 16)));
        check_link(0x0104, 0x0044, Some((160, 4, 160, 16)));
        check_link(0x0206, 0x0206, Some((640, 32, 640, 32)));
        // No link: nothing below, reserved codes, ones.
        check_link(0x0105, 0x0001, None);
        check_link(0x0105, 0x0100, None);
        check_link(0x0107, 0x0101, None);
        check_link(0xffff, 0xffff, None);
    }

    #[test]
    fn a_downstream_port_with_redirect() {
        let bytes = space(6, &[(1, 0x148, &[]), (EXT_ACS, 0, &[0x5f, 0, 0x1d, 0])]);
        let facts = decode_bytes(&bytes).unwrap();
        assert_eq!(facts.port_type, Observed::Known(PortType::Downstream));
        assert_eq!(facts.max_payload, Observed::Known(256));
        let acs = facts.acs.known().unwrap();
        assert!(acs.redirects());
        assert_eq!(acs.words(), "SrcValid ReqRedir CmpltRedir UpstreamFwd");
        assert_eq!(facts.ats, Observed::Absent);
        assert_eq!(facts.pasid, Observed::Known(false));
    }

    #[test]
    fn hidden_capabilities_do_not_end_the_list() {
        let bytes =
            space(0, &[(0, 0x140, &[]), (EXT_ATS, 0x150, &[0, 0, 0, 0x80]), (EXT_PASID, 0, &[])]);
        let facts = decode_bytes(&bytes).unwrap();
        assert_eq!(facts.ats, Observed::Known(Ats { enabled: true }));
        assert_eq!(facts.pasid, Observed::Known(true));
        assert_eq!(facts.acs, Observed::Absent);
    }

    #[test]
    fn resizable_bars() {
        // Sizes 64 MiB to 128 GiB (bits 6 to 17, from bit 4), index 2, one entry, current 2^17 MiB.
        let sizes: u32 = ((1 << 18) - (1 << 6)) << 4;
        let control: u32 = 2 | 1 << 5 | 17 << 8;
        let body = [sizes.to_le_bytes(), control.to_le_bytes()].concat();
        let facts = decode_bytes(&space(0, &[(EXT_RESIZABLE, 0, &body)])).unwrap();
        let expected = ResizableBar { index: 2, current: 128 << 30, largest: 128 << 30 };
        assert_eq!(facts.resizable, Observed::Known(vec![expected]));
    }

    #[test]
    fn without_privilege_the_rest_is_unknown() {
        let facts = decode_bytes(&space(6, &[(EXT_ACS, 0, &[0, 0, 0, 0])])[..64]).unwrap();
        assert_eq!(facts.acs, Observed::Unreadable("needs CAP_SYS_ADMIN".to_owned()));
        assert_eq!(facts.port_type, Observed::Unreadable("needs CAP_SYS_ADMIN".to_owned()));
    }

    #[test]
    fn a_dead_device_and_a_stub() {
        assert!(decode_bytes(&[0xff; 4096]).unwrap().dead);
        assert_eq!(decode_bytes(&[0; 10]).unwrap_err(), "only 10 of 64 header bytes could be read");
    }

    #[test]
    fn ones_where_capabilities_should_be() {
        let why = "the extended capabilities read as ones";
        for at in [0x100, 0x140] {
            let mut bytes = space(6, &[(1, 0x140, &[])]);
            bytes[at..].fill(0xff);
            let facts = decode_bytes(&bytes).unwrap();
            assert_eq!(facts.acs, Observed::Unreadable(why.to_owned()));
            assert_eq!(facts.pasid, Observed::Unreadable(why.to_owned()));
        }
    }

    #[test]
    fn circles_are_seen() {
        let facts = decode_bytes(&space(6, &[(1, 0x140, &[]), (2, 0x100, &[])])).unwrap();
        let why = "the extended capability list runs in a circle";
        assert_eq!(facts.acs, Observed::Unreadable(why.to_owned()));
        let mut bytes = space(6, &[]);
        bytes[0x40..0x42].copy_from_slice(&[0x05, 0x40]);
        let facts = decode_bytes(&bytes).unwrap();
        let why = "the capability list runs in a circle";
        assert_eq!(facts.port_type, Observed::Unreadable(why.to_owned()));
    }

    proptest! {
        #[test]
        fn any_bytes_end(bytes in proptest::collection::vec(any::<u8>(), 0..4096)) {
            if let Ok(facts) = decode_bytes(&bytes) {
                prop_assert!(facts.dead == (bytes.len() >= 64 && bytes[..64].iter().all(|b| *b == 0xff)));
            }
        }
    }
}
