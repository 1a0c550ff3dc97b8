//! Lines of NVIDIA's driver (`NVRM: …`, `nvidia-nvswitchN: …`).

use peerway_core::address::{BusAddress, PciAddress};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::notice::{BarState, Fact, NvidiaState, coded};
use crate::text;

coded! {
    /// A stage of a GPU's initialisation, in the order in which they run. The stage that failed
    /// first decides which causes are possible.
    Stage {
        /// Blackwell's BAR firewall stays up after a reset.
        BarFirewall = "bar-firewall",
        /// The chip does not answer, or is not supported.
        Attach = "attach",
        /// The device could not be set up for DMA.
        DmaSetup = "dma-setup",
        /// No firmware file for this driver version.
        FirmwareFile = "firmware-file",
        /// The board's own firmware (GFW) did not finish; Turing to Ada.
        GfwBoot = "gfw-boot",
        /// The security processor (FSP) never came up; Hopper and later.
        FspSecureBoot = "fsp-secure-boot",
        /// A fuse check of the FSP failed.
        FspFuse = "fsp-fuse",
        /// The FSP's preparation for the boot command failed.
        FspPrepare = "fsp-prepare",
        /// The FSP's queues never drained.
        FspQueue = "fsp-queue",
        /// The FSP did not carry out the boot command: the first stage that reads system memory.
        FspBootCommand = "fsp-boot-command",
        /// Dump of the FSP's state, printed after a failure.
        FspState = "fsp-state",
        /// The GSP did not start from the FSP.
        GspViaFsp = "gsp-via-fsp",
        /// The GSP reports a lockdown instead of being ready.
        GspLockdown = "gsp-lockdown",
        /// The protected region WPR2 is up already: no reset since the last load, or a follow-up.
        Wpr2 = "wpr2",
        /// The GSP firmware could not be started.
        GspFirmware = "gsp-firmware",
        /// A later step failed.
        StateInit = "state-init",
        /// Registers or memory could not be mapped.
        Mapping = "mapping",
        /// The summary of the opening process.
        Open = "open",
    }
}

impl Stage {
    /// Whether the stage needs the GPU to reach system memory, so that an IOMMU can break it.
    /// `None` for summaries and dumps, which say nothing about that.
    pub const fn needs_system_memory(self) -> Option<bool> {
        match self {
            Self::BarFirewall
            | Self::Attach
            | Self::FirmwareFile
            | Self::GfwBoot
            | Self::FspSecureBoot
            | Self::FspFuse
            | Self::FspPrepare
            | Self::FspQueue
            | Self::Wpr2
            | Self::Mapping => Some(false),
            Self::FspBootCommand
            | Self::GspViaFsp
            | Self::GspLockdown
            | Self::GspFirmware
            | Self::StateInit => Some(true),
            Self::DmaSetup | Self::FspState | Self::Open => None,
        }
    }

    /// What a failure of the stage points at.
    pub const fn reading(self) -> &'static str {
        match self {
            Self::BarFirewall => "the board was not ready after its reset",
            Self::Attach => "the chip does not answer or the driver does not support it",
            Self::DmaSetup => "the platform gives the device no usable DMA set-up",
            Self::FirmwareFile => "the firmware file of this driver version is missing",
            Self::GfwBoot => "the board's own firmware did not finish: reset, power or board",
            Self::FspSecureBoot => {
                "the security processor never came up: reset, power or board; not the IOMMU"
            }
            Self::FspFuse => "hardware",
            Self::FspPrepare => "follows a failure of the security processor",
            Self::FspQueue => "the security processor is busy or hung: needs a real reset",
            Self::FspBootCommand => {
                "the security processor could not fetch its image from system memory: the first \
                 stage that an IOMMU can break"
            }
            Self::FspState => "state of the security processor after a failure",
            Self::GspViaFsp => "the GSP could not be started: firmware, or access to system memory",
            Self::GspLockdown => "the GSP locked itself: link, firmware or access to system memory",
            Self::Wpr2 => {
                "the GPU was not reset since the last load, or another failure came first"
            }
            Self::GspFirmware => "the GSP firmware did not start: look for the line before it",
            Self::StateInit => "a later step of the initialisation failed",
            Self::Mapping => "registers or memory could not be mapped",
            Self::Open => "a process could not open the GPU: look for the lines before it",
        }
    }
}

/// What marks a stage in the body of a line. The first that occurs decides.
const STAGES: [(&[u8], Stage); 31] = [
    (b"failed to wait for bar firewall to lower", Stage::BarFirewall),
    (b"*** Cannot attach gpu", Stage::Attach),
    (b"*** Cannot attach bc gpu", Stage::Attach),
    (b"*** cannot allocate GPU lock", Stage::Attach),
    (b"*** Cannot get valid gpu instance", Stage::Attach),
    (b"Cannot configure the device for DMA", Stage::DmaSetup),
    (b"No firmware image found", Stage::FirmwareFile),
    (b"GFW_BOOT", Stage::GfwBoot),
    (b"GFW boot complete", Stage::GfwBoot),
    (b"polling for FSP boot complete", Stage::FspSecureBoot),
    (b"fuse error", Stage::FspFuse),
    (b"FSP secure boot partition timed out", Stage::FspPrepare),
    (b"FSP secure boot GSP prechecks failed", Stage::FspPrepare),
    (b"Preparing FSP boot cmds failed", Stage::FspPrepare),
    (b"Timed out waiting for FSP", Stage::FspQueue),
    (b"kfspDumpDebugState", Stage::FspState),
    (b"kfspSendBootCommands", Stage::FspBootCommand),
    (b"FSP command timed out", Stage::FspBootCommand),
    (b"FSP response reported error", Stage::FspBootCommand),
    (b"FSP boot cmds failed", Stage::FspBootCommand),
    (b"waiting for GSP target mask release", Stage::GspViaFsp),
    (b"waiting for lockdown release", Stage::GspViaFsp),
    (b"GSP-FMC", Stage::GspViaFsp),
    (b"kgspSendInitRpcs failed", Stage::GspViaFsp),
    (b"GSP_LOCKDOWN_NOTICE", Stage::GspLockdown),
    (b"WPR2 already up", Stage::Wpr2),
    (b"Cannot initialize GSP firmware RM", Stage::GspFirmware),
    (b"GSP-RM proxy boot command failed", Stage::GspFirmware),
    (b"RmInitNvDevice failed", Stage::StateInit),
    (b"osInitNvMapping failed", Stage::Mapping),
    (b"rm_init_adapter failed", Stage::Open),
];

/// What marks another state.
const STATES: [(&[u8], NvidiaState); 14] = [
    (b"left-over mappings in IOVAS", NvidiaState::CleanupNoise),
    (b"pIOVAS != NULL", NvidiaState::CleanupNoise),
    (b"fallen off the bus", NvidiaState::FellOffBus),
    (b"NV_ERR_GPU_IS_LOST", NvidiaState::Lost),
    (b"API_GPU_ATTACHED_SANITY_CHECK failed", NvidiaState::Lost),
    (b"is already bound to", NvidiaState::AlreadyBound),
    (b"probe routine was not called", NvidiaState::ProbeNotCalled),
    (b"probe routine failed for", NvidiaState::ProbeFailed),
    (b"The peer DMA address 0x", NvidiaState::PeerAlignment),
    (b"IOMMU mapping failed from GPU", NvidiaState::PeerMapFailed),
    (b"is not addressable by GPU", NvidiaState::NotAddressable),
    (b"with non-zero usage count", NvidiaState::UnbindWaits),
    (b"Continuing with GPU removal", NvidiaState::UnbindContinues),
    (b"Failed removal of device", NvidiaState::UnbindFailed),
];

/// Reads the message at the anchor `NVRM`, which stands at `at`.
pub(crate) fn parse(message: &[u8], at: usize) -> Option<Fact<'_>> {
    let body = text::trim_start(message.get(at..)?.strip_prefix(b"NVRM:")?);
    // Another message may follow on the same line.
    let body = text::split_once(body, b"NVRM: ").map_or(body, |(first, _)| first);
    if let Some(rest) = body.strip_prefix(b"Xid (") {
        return xid(rest);
    }
    if let Some(rest) = body.strip_prefix(b"loading NVIDIA UNIX") {
        return driver(rest);
    }
    if let Some(rest) = body.strip_prefix(b"BAR") {
        return invalid_bar(rest);
    }
    if let Some((before, rest)) = text::split_once(body, b"RmInitAdapter failed! (") {
        return summary(before, rest);
    }
    let device = device(body);
    if let Some((needle, what)) = STATES.iter().find(|(needle, _)| text::contains(body, needle)) {
        let address = match what {
            NvidiaState::PeerAlignment => text::after(body, needle).and_then(text::hex),
            NvidiaState::NotAddressable => text::after(body, b": ").and_then(text::prefixed_hex),
            NvidiaState::FellOffBus
            | NvidiaState::Lost
            | NvidiaState::AlreadyBound
            | NvidiaState::ProbeNotCalled
            | NvidiaState::ProbeFailed
            | NvidiaState::PeerMapFailed
            | NvidiaState::UnbindWaits
            | NvidiaState::UnbindContinues
            | NvidiaState::UnbindFailed
            | NvidiaState::CleanupNoise
            | NvidiaState::Assertion => None,
        };
        let address = address.map(|(address, ..)| BusAddress(address));
        return Some(Fact::Nvidia { what: *what, device, address });
    }
    if let Some((_, stage)) = STAGES.iter().find(|(needle, _)| text::contains(body, needle)) {
        return Some(Fact::NvidiaInit { stage: *stage, device });
    }
    if text::contains(body, b"*** Cannot ") {
        return Some(Fact::NvidiaInit { stage: Stage::StateInit, device });
    }
    if text::contains(body, b"[NV_ERR_") || text::contains(body, b"Assertion failed") {
        return Some(Fact::Nvidia { what: NvidiaState::Assertion, device, address: None });
    }
    device.map(|device| Fact::DriverSeen { device })
}

/// The GPU that a line names, in one of the driver's spellings.
fn device(body: &[u8]) -> Option<PciAddress> {
    [&b"GPU "[..], b"PCI:", b"device "]
        .iter()
        .filter_map(|word| text::after(body, word))
        .find_map(text::nvidia_address)
        .map(|(device, _)| device)
}

/// `PCI:0000:41:00 GPU-I:05): 31, pid=…, …`.
fn xid(rest: &[u8]) -> Option<Fact<'_>> {
    let rest = rest.strip_prefix(b"PCI:").unwrap_or(rest);
    let (device, rest) = text::nvidia_address(rest)?;
    let (number, rest) = text::number(text::after(rest, b"): ")?)?;
    let address = text::after(rest, b" @ 0x").and_then(grouped_hex);
    Some(Fact::Xid { device, number, address })
}

/// Hexadecimal digits that the driver groups with underscores (`7ffc_52f8b000`).
fn grouped_hex(input: &[u8]) -> Option<BusAddress> {
    let mut value = 0_u64;
    let mut digits = 0;
    for byte in input {
        match char::from(*byte).to_digit(16) {
            Some(digit) => {
                value = value.checked_mul(16)?.checked_add(u64::from(digit))?;
                digits += 1;
            }
            None if *byte == b'_' => {}
            None => break,
        }
    }
    (digits > 0).then_some(BusAddress(value))
}

/// Reads the message at the anchor `SXid`: `SXid (PCI:0000:02:00.0): 22013, Non-fatal, …`.
pub(crate) fn parse_sxid(message: &[u8], at: usize) -> Option<Fact<'_>> {
    let rest = message.get(at..)?.strip_prefix(b"SXid (PCI:")?;
    let (device, rest) = text::nvidia_address(rest)?;
    let (number, rest) = text::number(rest.strip_prefix(b"): ")?)?;
    let fatal = if rest.starts_with(b", Non-fatal") {
        Some(false)
    } else if rest.starts_with(b", Fatal") {
        Some(true)
    } else {
        None
    };
    Some(Fact::Sxid { device, number, fatal })
}

/// ` Open Kernel Module for x86_64  595.71.05  Release Build …`, or
/// ` x86_64 Kernel Module  535.129.03  Thu …`.
fn driver(rest: &[u8]) -> Option<Fact<'_>> {
    let open = rest.starts_with(b" Open ");
    let version = rest.split(|byte| *byte == b' ').find(|word| {
        word.first().is_some_and(u8::is_ascii_digit)
            && word.contains(&b'.')
            && word.iter().all(|byte| byte.is_ascii_digit() || *byte == b'.')
    })?;
    Some(Fact::NvidiaDriver { version: std::str::from_utf8(version).ok()?, open })
}

/// `1 is 0M @ 0x0 (PCI:0000:c1:00.0)`.
fn invalid_bar(rest: &[u8]) -> Option<Fact<'_>> {
    let (index, rest) = text::number::<u8>(rest)?;
    let (size, _, rest) = text::decimal(rest.strip_prefix(b" is ")?)?;
    let rest = rest.strip_prefix(b"M @ ")?;
    let (start, _, rest) = text::prefixed_hex(rest)?;
    let (device, _) = text::nvidia_address(text::after(rest, b"PCI:")?)?;
    Some(Fact::Bar {
        device,
        index,
        state: BarState::Invalid,
        start: Some(BusAddress(start)),
        size: size.checked_mul(1 << 20),
    })
}

/// `GPU 0000:98:00.0: ` before and `0x62:0x65:1792)` after the words.
fn summary<'a>(before: &'a [u8], rest: &'a [u8]) -> Option<Fact<'a>> {
    let device = device(before)?;
    let (stage, _, rest) = text::prefixed_hex(rest)?;
    let (status, _, _) = text::prefixed_hex(rest.strip_prefix(b":")?)?;
    Some(Fact::NvidiaInitFailed {
        device,
        stage: u32::try_from(stage).ok()?,
        status: u32::try_from(status).ok()?,
    })
}

/// What the first number of `RmInitAdapter failed! (a:b:c)` names (`osinit.c`).
pub const fn init_code(stage: u32) -> Option<&'static str> {
    Some(match stage {
        0x10 => "register setup",
        0x11 => "system environment",
        0x20 => "GPU allocation",
        0x21 => "device creation",
        0x22 => "attaching the GPU",
        0x23 => "pre-initialisation",
        0x24 => "state initialisation",
        0x25 => "state load",
        0x26 => "DMA configuration",
        0x27 => "expanded visibility",
        0x30 | 0x31 => "video BIOS",
        0x32 => "x86 emulation",
        0x40 => "scalability",
        0x41 => "watchdog",
        0x42 => "BAR1 map information",
        0x43 => "GPU database",
        0x44 | 0x45 => "resource manager interface",
        0x60 => "firmware policy",
        0x61 => "firmware file",
        0x62 => "firmware start (GSP, FSP)",
        _ => return None,
    })
}

/// What the second number names (`nvstatuscodes.h`), for the values seen in reports.
pub const fn status_code(status: u32) -> Option<&'static str> {
    Some(match status {
        0x0f => "GPU is lost",
        0x1a => "insufficient resources",
        0x1e => "invalid address",
        0x1f => "invalid argument",
        0x40 => "invalid state",
        0x56 => "not supported",
        0x62 => "reset required",
        0x65 => "timeout",
        _ => return None,
    })
}
