//! AMD-Vi event lines (`drivers/iommu/amd/iommu.c`: `iommu_print_event`,
//! `amd_iommu_report_page_fault`, `amd_iommu_report_rmp_*`), from 2.6 to 7.3, and Xen's.

use peerway_core::address::{BusAddress, PciAddress};

use crate::event::{Access, Direction, Event, Iommu, Kind, Requester, amd_flags};
use crate::text;

/// What an AMD line holds.
#[expect(clippy::large_enum_variant, reason = "lives on the stack for the length of one line")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Amd<'a> {
    /// A whole event (or all that is left of it), and how far into the message it reaches.
    Event(Event<'a>, usize),
    /// `Event logged [` and nothing more: old kernels print the rest as a message of its own.
    Head,
    /// `Device not attached to domain properly]`: the device follows in a message of its own.
    Detached,
    /// `  device=… domain=…`, which follows that.
    DetachedDevice(PciAddress, Option<u32>),
    /// `DTE[n]: …` or `CMD[n]: …`: a word of the dump that follows an event.
    Dump { index: usize, value: u64 },
    /// `Control Reg : …`, part of the same dump.
    Control,
    /// Something else.
    Other,
}

const NAMES: [(&[u8], Kind); 12] = [
    (b"IO_PAGE_FAULT", Kind::IoPageFault),
    (b"INVALID_DEVICE_REQUEST", Kind::InvalidDeviceRequest),
    (b"ILLEGAL_DEV_TABLE_ENTRY", Kind::IllegalDevTableEntry),
    (b"DEV_TAB_HARDWARE_ERROR", Kind::DevTabHardwareError),
    (b"PAGE_TAB_HARDWARE_ERROR", Kind::PageTabHardwareError),
    (b"ILLEGAL_COMMAND_ERROR", Kind::IllegalCommandError),
    (b"COMMAND_HARDWARE_ERROR", Kind::CommandHardwareError),
    (b"IOTLB_INV_TIMEOUT", Kind::IotlbInvTimeout),
    (b"INVALID_PPR_REQUEST", Kind::InvalidPprRequest),
    (b"RMP_PAGE_FAULT", Kind::RmpPageFault),
    (b"RMP_HW_ERROR", Kind::RmpHwError),
    (b"UNKNOWN", Kind::AmdUnknown),
];

/// Reads the message at the anchor `AMD-Vi`, which stands at `at`.
pub(crate) fn parse(message: &[u8], at: usize) -> Amd<'_> {
    let Some((before, tail)) = message.split_at_checked(at) else { return Amd::Other };
    let Some(tail) = tail.strip_prefix(b"AMD-Vi: ") else { return Amd::Other };
    let Some(body) = tail.strip_prefix(b"Event logged [") else {
        return other(message, tail);
    };
    if text::trim_end(body).is_empty() {
        return Amd::Head;
    }
    if body.starts_with(b"Device not attached to domain") {
        return Amd::Detached;
    }
    match event(body) {
        Some((mut event, rest)) => {
            prefix(before, &mut event);
            event.text = message;
            Amd::Event(event, message.len() - rest.len())
        }
        None => Amd::Other,
    }
}

/// Reads a message that begins with an event's name: the second half of an event that an old
/// kernel printed in two, or one whose front was cut off.
pub(crate) fn parse_body(message: &[u8]) -> Amd<'_> {
    match event(text::trim_start(message)) {
        // Without a requester or an address it could be anything.
        Some((event, _)) if event.requester == Requester::Unknown && event.address.is_none() => {
            Amd::Other
        }
        Some((mut event, rest)) => {
            event.text = message;
            Amd::Event(event, message.len() - rest.len())
        }
        None => Amd::Other,
    }
}

/// Reads the rest of a cut event from the line after it. Whether it was one.
pub(crate) fn resume(line: &[u8], event: &mut Event<'_>) -> bool {
    let mut whole = *event;
    let mut rest = line;
    let mut words = whole.words.unwrap_or_default();
    let mut fields = 0_u32;
    loop {
        while let [b' ' | b',', tail @ ..] = rest {
            rest = tail;
        }
        match rest.first() {
            Some(b']') => break,
            None if fields > 0 => break,
            None => return false,
            Some(_) => {}
        }
        match field(rest, &mut whole, &mut words) {
            Some(Field::Complete(tail)) => rest = tail,
            Some(Field::Cut) | None => return false,
        }
        fields += 1;
    }
    whole.cut = false;
    finish(&mut whole);
    *event = whole;
    true
}

/// Lines with the prefix `AMD-Vi: ` that are no `Event logged`.
fn other<'a>(message: &'a [u8], tail: &'a [u8]) -> Amd<'a> {
    let body = text::trim_start(tail);
    if let Some(rest) = body.strip_prefix(b"DTE[").or_else(|| body.strip_prefix(b"CMD[")) {
        let read = || {
            let (index, rest) = text::number::<usize>(rest)?;
            let (value, _, _) = text::hex(rest.strip_prefix(b"]: ")?)?;
            Some(Amd::Dump { index, value })
        };
        return read().unwrap_or(Amd::Other);
    }
    if body.starts_with(b"Control Reg :") {
        return Amd::Control;
    }
    if let Some(rest) = body.strip_prefix(b"device=")
        && body.len() < tail.len()
        && let Some((device, rest)) = PciAddress::parse_prefix(rest)
    {
        let domain = rest.strip_prefix(b" domain=").and_then(text::prefixed_hex);
        let domain = domain.and_then(|(value, _, _)| u32::try_from(value).ok());
        return Amd::DetachedDevice(device, domain);
    }
    if let Some(rest) = body.strip_prefix(b"IO_PAGE_FAULT: ")
        && let Some(mut event) = xen(rest)
    {
        event.text = message;
        return Amd::Event(event, message.len());
    }
    Amd::Other
}

/// The name and the fields of an event. `None` where something stands that no kernel prints, so
/// that a quotation (`address=0x...`) is not taken for a fault.
fn event(body: &[u8]) -> Option<(Event<'_>, &[u8])> {
    let (name, mut rest) = text::until(body, |byte| !(byte.is_ascii_uppercase() || byte == b'_'));
    let (_, kind) = NAMES.iter().find(|(known, _)| *known == name)?;
    let mut event = Event::new(Iommu::AmdVi, *kind);
    let mut fields = 0_u32;
    let mut words = [0_u64; 4];
    loop {
        while let [b' ' | b',', tail @ ..] = rest {
            rest = tail;
        }
        match rest.first() {
            Some(b']') => {
                rest = rest.get(1..).unwrap_or_default();
                break;
            }
            None | Some(b'\r' | b'\n') => {
                event.cut = *kind != Kind::AmdUnknown;
                break;
            }
            Some(_) => {}
        }
        match field(rest, &mut event, &mut words)? {
            Field::Complete(tail) => rest = tail,
            Field::Cut => {
                event.cut = true;
                rest = &[];
                break;
            }
        }
        fields += 1;
    }
    if *kind == Kind::AmdUnknown {
        event.words = Some(words);
    }
    finish(&mut event);
    // The name alone is a cut line of an event only where `Event logged` stood before it, and then
    // at least one field shows.
    if fields == 0 { None } else { Some((event, rest)) }
}

enum Field<'a> {
    Complete(&'a [u8]),
    /// The line ends inside the field.
    Cut,
}

/// One `key=value`.
#[inline]
fn field<'a>(input: &'a [u8], event: &mut Event<'_>, words: &mut [u64; 4]) -> Option<Field<'a>> {
    let Some(equals) = input.iter().take(12).position(|byte| *byte == b'=') else {
        // A cut key; anything but the letters of one is no event.
        let is_key = input.len() < 12 && input.iter().all(|byte| is_key(*byte));
        return if is_key { Some(Field::Cut) } else { None };
    };
    let (key, value) = input.split_at_checked(equals)?;
    let value = value.get(1..)?;
    if key == b"device" {
        return match PciAddress::parse_prefix(value) {
            Some((address, rest)) => {
                event.requester = Requester::Pci(address);
                Some(Field::Complete(rest))
            }
            None if value
                .iter()
                .all(|byte| byte.is_ascii_hexdigit() || matches!(byte, b':' | b'.')) =>
            {
                Some(Field::Cut)
            }
            None => None,
        };
    }
    let Some((number, digits, rest)) = text::prefixed_hex(value) else {
        return if value.is_empty() || value == b"0" || value == b"0x" {
            Some(Field::Cut)
        } else {
            None
        };
    };
    match rest.first() {
        Some(b' ' | b',' | b']') => {}
        // The value ends with the line: whole only if it has all the digits the kernel prints.
        None | Some(b'\r' | b'\n') => {
            let full = match key {
                b"address" => digits == 16,
                b"flags" | b"domain" | b"flags_rmp" | b"vmg_tag" => digits >= 4,
                _ => digits >= 5,
            };
            if !full {
                return Some(Field::Cut);
            }
        }
        Some(_) => return None,
    }
    let small = || u32::try_from(number).ok();
    match key {
        b"address" | b"gpa" | b"spa" => event.address = Some(BusAddress(number)),
        b"flags" => event.flags = Some(small()?),
        b"domain" => event.domain = Some(small()?),
        b"pasid" => event.pasid = Some(small()?),
        b"flags_rmp" => event.rmp_flags = Some(small()?),
        b"vmg_tag" | b"tag" | b"type" => {}
        [b'e', b'v', b'e', b'n', b't', b'[', digit, b']'] => {
            let slot = words.get_mut(usize::from(digit.checked_sub(b'0')?))?;
            *slot = number;
        }
        _ => return None,
    }
    Some(Field::Complete(rest))
}

const fn is_key(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte == b'_'
}

/// What the flags say about the access.
fn finish(event: &mut Event<'_>) {
    let Some(flags) = event.flags else { return };
    let has_direction = matches!(
        event.kind,
        Kind::IoPageFault | Kind::RmpPageFault | Kind::RmpHwError | Kind::PageTabHardwareError
    );
    if !has_direction {
        return;
    }
    event.access = access(flags);
}

/// The direction of a page fault.
#[inline]
pub(crate) const fn access(flags: u32) -> Access {
    if flags & amd_flags::INTERRUPT != 0 {
        return Access::certain(Direction::Interrupt);
    }
    let direction = if flags & amd_flags::WRITE != 0 { Direction::Write } else { Direction::Read };
    Access { direction, certain: flags & amd_flags::PRESENT != 0 }
}

/// `nvidia 0000:41:00.0: ` or `iommu ivhd1: ` in front of the anchor.
#[inline]
fn prefix<'a>(before: &'a [u8], event: &mut Event<'a>) {
    let Some(before) = before.strip_suffix(b": ") else { return };
    let (head, device) = text::last_word(before);
    let (_, driver) = text::last_word(head);
    // Another message may end right in front of the driver's name.
    let driver = driver.rsplit(|byte| *byte == b']').next().unwrap_or(driver);
    match PciAddress::parse_prefix(device) {
        // Where the event names a device itself, the one in front may be the IOMMU's own function.
        Some((address, [])) if event.requester == Requester::Unknown => {
            event.requester = Requester::Pci(address);
            event.driver = text::name(driver);
        }
        Some((address, [])) if event.requester == Requester::Pci(address) => {
            event.driver = text::name(driver);
        }
        Some(_) => event.unit = text::name(device),
        None if device.starts_with(b"ivhd") => event.unit = text::name(device),
        None if event.requester == Requester::Unknown && text::name(driver).is_some() => {
            event.requester = text::name(device).map_or(Requester::Unknown, Requester::Named);
            event.driver = text::name(driver);
        }
        None => {}
    }
}

/// Xen: `0000:01:00.0 d0 addr 00000000fdf80000 flags 0x8 I`, and before 4.11
/// `domain = 0, device id = 0xa1, fault address = 0xfdf8000020, flags = 0x08`
/// (`xen/drivers/passthrough/amd/iommu_init.c: parse_event_log_entry`).
fn xen(input: &[u8]) -> Option<Event<'_>> {
    let mut event = Event::new(Iommu::AmdVi, Kind::IoPageFault);
    let flags;
    if let Some((address, rest)) = PciAddress::parse_prefix(input) {
        event.requester = Requester::Pci(address);
        let rest = text::after(rest, b" addr ")?;
        let (fault, _, rest) = text::hex(rest)?;
        event.address = Some(BusAddress(fault));
        flags = text::prefixed_hex(text::after(rest, b"flags ")?)?.0;
    } else {
        let rest = input.strip_prefix(b"domain = ")?;
        let (domain, rest) = text::number::<u32>(rest)?;
        event.domain = Some(domain);
        let (device, _, rest) = text::prefixed_hex(text::after(rest, b"device id = ")?)?;
        let device = PciAddress::from_requester_id(0, u16::try_from(device).ok()?);
        event.requester = Requester::Pci(device);
        let (fault, _, rest) = text::prefixed_hex(text::after(rest, b"fault address = ")?)?;
        event.address = Some(BusAddress(fault));
        flags = text::prefixed_hex(text::after(rest, b"flags = ")?)?.0;
    }
    event.flags = Some(u32::try_from(flags).ok()?);
    finish(&mut event);
    Some(event)
}
