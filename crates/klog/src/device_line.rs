//! Lines of the form `driver 0000:bb:dd.f: …`: PCI enumeration, BARs, ACS, errors, resets, VFIO,
//! group membership, GPU errors.

use peerway_core::address::{BusAddress, PciAddress, VendorDevice};

use crate::notice::{
    Acs, BarState, DeviceState, DomainRefusal, Fact, GpuError, PcieError, PeerDma, Platform,
};
use crate::text;

/// The front of such a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Front<'a> {
    pub(crate) driver: &'a str,
    pub(crate) device: PciAddress,
    /// What follows the device and its colon.
    pub(crate) body: &'a [u8],
}

/// Reads the front: a driver's name, an address, perhaps an interface name, a colon.
pub(crate) fn front(message: &[u8]) -> Option<Front<'_>> {
    let (driver, rest) = text::until(message, |byte| byte == b' ');
    let driver = text::name(driver)?;
    let (device, rest) = PciAddress::parse_prefix(rest.strip_prefix(b" ")?)?;
    let body = match rest {
        [b':', tail @ ..] => tail,
        // "ixgbe 0000:03:00.0 enp3s0: …"
        [b' ', tail @ ..] => {
            let (name, tail) = text::until(tail, |byte| byte == b':' || byte == b' ');
            text::name(name)?;
            tail.strip_prefix(b":")?
        }
        _ => return None,
    };
    Some(Front { driver, device, body: text::trim_start(body) })
}

/// What such a line says. At least that the driver holds, or held, the device.
pub(crate) fn parse<'a>(front: &Front<'a>) -> Fact<'a> {
    enumeration(front)
        .or_else(|| group(front))
        .or_else(|| peer_dma(front))
        .or_else(|| acs(front))
        .or_else(|| pcie_error(front))
        .or_else(|| device_state(front))
        .or_else(|| security_processor(front))
        .or_else(|| gpu(front))
        .unwrap_or(Fact::DriverSeen { device: front.device })
}

fn enumeration<'a>(front: &Front<'a>) -> Option<Fact<'a>> {
    let Front { device, body, .. } = *front;
    if let Some(rest) = body.strip_prefix(b"[")
        && let Some((vendor, 4, rest)) = text::hex(rest)
        && let Some((id, 4, rest)) = rest.strip_prefix(b":").and_then(text::hex)
        && let Some((class, 6, _)) = text::after(rest, b" class ").and_then(text::prefixed_hex)
    {
        let id =
            VendorDevice { vendor: u16::try_from(vendor).ok()?, device: u16::try_from(id).ok()? };
        return Some(Fact::DeviceFound { device, id, class: u32::try_from(class).ok()? });
    }
    bar(device, body)
}

/// `BAR 1 [mem 0x…-0x… 64bit pref]: assigned`, `BAR 1: no space for [mem size 0x…]`,
/// `reg 0x14: [mem 0x…-0x…]`. Virtual functions' BARs and bridge windows are no BARs of a device.
fn bar(device: PciAddress, body: &[u8]) -> Option<Fact<'_>> {
    let (index, rest) = if let Some(rest) = body.strip_prefix(b"BAR ") {
        text::number::<u64>(rest)?
    } else {
        let (register, _, rest) = text::prefixed_hex(body.strip_prefix(b"reg ")?)?;
        (register.checked_sub(0x10)? / 4, rest)
    };
    let index = u8::try_from(index).ok().filter(|index| *index < 6)?;
    let inner = text::split_once(text::after(rest, b"[mem ")?, b"]");
    let (inner, after) = inner?;
    let what = |needle: &[u8]| text::contains(rest, needle);
    let state = if what(b"no space") {
        BarState::NoSpace
    } else if what(b"failed to assign") {
        BarState::Failed
    } else if what(b"can't reserve") || what(b"can't claim") || what(b"conflict") {
        BarState::Conflict
    } else if rest.starts_with(b": assigned") || after.starts_with(b": assigned") {
        BarState::Assigned
    } else if rest.starts_with(b": [mem") || (rest.starts_with(b" [mem") && after.is_empty()) {
        BarState::Found
    } else {
        // Released, restored: says nothing that lasts.
        return None;
    };
    if let Some((size, ..)) = inner.strip_prefix(b"size ").and_then(text::prefixed_hex) {
        return Some(Fact::Bar { device, index, state, start: None, size: Some(size) });
    }
    let (start, _, rest) = text::prefixed_hex(inner)?;
    let (end, ..) = text::prefixed_hex(rest.strip_prefix(b"-")?)?;
    let size = end.checked_sub(start)?.checked_add(1)?;
    Some(Fact::Bar { device, index, state, start: Some(BusAddress(start)), size: Some(size) })
}

fn group<'a>(front: &Front<'a>) -> Option<Fact<'a>> {
    let Front { device, body, .. } = *front;
    if let Some(rest) = body.strip_prefix(b"Adding to iommu group ") {
        let (group, _) = text::number(rest)?;
        return Some(Fact::GroupJoined { device, group });
    }
    if let Some(rest) = body.strip_prefix(b"Removing from iommu group ") {
        let (group, _) = text::number(rest)?;
        return Some(Fact::GroupLeft { device, group });
    }
    let why = domain_refusal(body)?;
    Some(Fact::DomainRefused { device: Some(device), why })
}

/// The kernel's refusals of a domain type, with or without a device in front.
pub(crate) fn domain_refusal(body: &[u8]) -> Option<DomainRefusal> {
    const TEXTS: [(&[u8], DomainRefusal); 6] = [
        (b"Device is still bound to driver", DomainRefusal::DriverBound),
        (b"Group has more than one device", DomainRefusal::SeveralDevices),
        (b"Group not assigned to default domain", DomainRefusal::NotDefaultDomain),
        (b"Device cannot be in ", DomainRefusal::DeviceDemands),
        (b"Failed to allocate default IOMMU domain of type", DomainRefusal::FellBack),
        (b"Firmware has requested this device have a 1:1 IOMMU", DomainRefusal::FirmwareRegion),
    ];
    TEXTS.iter().find(|(needle, _)| text::contains(body, needle)).map(|(_, why)| *why)
}

fn peer_dma<'a>(front: &Front<'a>) -> Option<Fact<'a>> {
    const TEXTS: [(&[u8], PeerDma); 3] = [
        (b"cannot be used for peer-to-peer DMA", PeerDma::NoSharedBridge),
        (b"ACS redirect is set between the client and provider", PeerDma::AcsRedirect),
        (b"Host bridge not in P2PDMA whitelist", PeerDma::HostBridgeNotListed),
    ];
    let (_, what) = TEXTS.iter().find(|(needle, _)| text::contains(front.body, needle))?;
    let provider = text::addresses(front.body).next();
    Some(Fact::PeerDma { what: *what, client: Some(front.device), provider })
}

fn acs<'a>(front: &Front<'a>) -> Option<Fact<'a>> {
    let body = front.body;
    let what = if body.starts_with(b"disabled ACS redirect") {
        Acs::RedirectDisabled
    } else if body.starts_with(b"cannot disable ACS redirect") {
        Acs::NoCapability
    } else if body.starts_with(b"Configured ACS to ") {
        Acs::Configured
    } else {
        return None;
    };
    Some(Fact::Acs { what, device: Some(front.device) })
}

fn pcie_error<'a>(front: &Front<'a>) -> Option<Fact<'a>> {
    let body = front.body;
    let has = |needle: &[u8]| text::contains(body, needle);
    let what = if has(b"ACSViol") {
        PcieError::AcsViolation
    } else if has(b"CmpltTO") {
        PcieError::CompletionTimeout
    } else if body.starts_with(b"DPC: containment event") {
        PcieError::Contained
    } else if body.starts_with(b"pciehp: ") && (has(b"Link Down") || has(b"Card not present")) {
        PcieError::LinkDown
    } else if has(b"PCIe Bus Error: severity=Corrected") {
        PcieError::Corrected
    } else if has(b"PCIe Bus Error: severity=Uncorrect") {
        if has(b"(Non-Fatal)") { PcieError::NonFatal } else { PcieError::Fatal }
    } else {
        return None;
    };
    Some(Fact::PcieError { what, device: Some(front.device) })
}

fn device_state<'a>(front: &Front<'a>) -> Option<Fact<'a>> {
    let Front { device, body, driver } = *front;
    let has = |needle: &[u8]| text::contains(body, needle);
    let starts = |needle: &[u8]| body.starts_with(needle);
    let what = if starts(b"Unable to change power state from D3cold")
        || starts(b"can't change power state from D3cold")
        || has(b"refused to change power state")
        || has(b"Refused to change power state")
    {
        DeviceState::StuckInD3Cold
    } else if starts(b"not ready ") {
        if has(b"giving up") { DeviceState::ResetFailed } else { DeviceState::NotReady }
    } else if starts(b"timed out waiting for pending transaction") {
        DeviceState::PendingTransaction
    } else if starts(b"resetting") || has(b"xen_pciback: reset device") {
        DeviceState::Resetting
    } else if starts(b"reset done") {
        DeviceState::ResetDone
    } else if starts(b"Relaying device request to user") {
        DeviceState::VfioReleaseAsked
    } else if starts(b"No device request channel registered")
        || starts(b"Device is currently in use, task")
    {
        DeviceState::VfioReleaseBlocked
    } else if starts(b"probe with driver ") && has(b" failed with error") {
        DeviceState::ProbeFailed
    } else if driver == "vfio-pci" && (starts(b"vfio_bar_restore") || has(b"Invalid PCI ROM")) {
        DeviceState::VfioTrouble
    } else {
        return None;
    };
    Some(Fact::DeviceState { what, device: Some(device) })
}

/// The driver that a line is about: the one in front, unless the probe of another failed.
pub(crate) fn driver<'a>(front: &Front<'a>) -> &'a str {
    front
        .body
        .strip_prefix(b"probe with driver ")
        .and_then(|rest| text::name(text::until(rest, |byte| byte == b' ').0))
        .unwrap_or(front.driver)
}

/// `nvidia: probe of 0000:01:00.0 failed with error -1` (up to 6.1).
pub(crate) fn old_probe(message: &[u8]) -> Option<(&str, Fact<'_>)> {
    let (driver, rest) = text::split_once(message, b": probe of ")?;
    let driver = text::name(text::last_word(driver).1)?;
    let (device, rest) = PciAddress::parse_prefix(rest)?;
    if !rest.starts_with(b" failed with error") {
        return None;
    }
    let what = DeviceState::ProbeFailed;
    Some((driver, Fact::DeviceState { what, device: Some(device) }))
}

/// Lines of the security processor's driver, `ccp`.
fn security_processor<'a>(front: &Front<'a>) -> Option<Fact<'a>> {
    if front.driver != "ccp" {
        return None;
    }
    let body = front.body;
    let state = if body.starts_with(b"sev enabled") {
        Platform::SevEnabled
    } else if body.starts_with(b"SEV-SNP API:") {
        Platform::SnpFirmware
    } else if body.starts_with(b"SEV API:") {
        Platform::SevFirmware
    } else if body.starts_with(b"psp: TSME enabled") {
        Platform::TsmeActive
    } else if body.starts_with(b"SEV-SNP: ") && text::contains(body, b"failed") {
        Platform::SnpInitFailed
    } else if body.starts_with(b"SEV: memory encryption not enabled by BIOS") {
        Platform::SmeOffInFirmware
    } else {
        return None;
    };
    Some(Fact::Platform { state, device: Some(front.device) })
}

/// Errors of a GPU's own memory management, which read like IOMMU faults and are none.
fn gpu<'a>(front: &Front<'a>) -> Option<Fact<'a>> {
    let Front { device, body, driver } = *front;
    if !matches!(driver, "amdgpu" | "xe" | "i915" | "nouveau" | "radeon") {
        return None;
    }
    let has = |needle: &[u8]| text::contains(body, needle);
    let mut address = None;
    let what = if has(b"page starting at address 0x") || has(b"at page 0x") {
        let rest = text::after(body, b"address ").or_else(|| text::after(body, b"at page "));
        address = rest.and_then(text::prefixed_hex).map(|(address, ..)| BusAddress(address));
        GpuError::MmuFaultAddress
    } else if has(b"page fault")
        || has(b"Fault response")
        || has(b"GPU fault detected")
        || has(b"fifo: fault ")
    {
        GpuError::MmuFault
    } else if has(b"SDMA gets an ")
        || has(b"Illegal instruction in command stream")
        || has(b"Illegal opcode in command stream")
    {
        GpuError::CopyEngine
    } else if (has(b"ring ") && has(b" timeout")) || has(b"Engine reset") || has(b"GPU HANG") {
        GpuError::Timeout
    } else {
        return None;
    };
    Some(Fact::Gpu { what, device: Some(device), address })
}
