//! Lines about the host as a whole: boot banners of the IOMMU, SNP and memory encryption, the
//! command line, the kernel's version, rate limits.

use peerway_core::address::PciAddress;

use crate::notice::{Acs, Banner, Fact, Lost, PeerDma, Platform};
use crate::{device_line, text};

/// Reads the message at the anchor `AMD-Vi` when it is no event.
pub(crate) fn amd(message: &[u8], at: usize) -> Option<Fact<'_>> {
    let body = message.get(at..)?.strip_prefix(b"AMD-Vi: ")?;
    let has = |needle: &[u8]| text::contains(body, needle);
    let starts = |needle: &[u8]| body.starts_with(needle);
    if starts(b"IOMMU SNP support enabled") {
        return Some(platform(Platform::SnpIommuEnabled));
    }
    if has(b"SNP cannot be supported") || starts(b"SEV-SNP: IOMMU") {
        return Some(platform(snp_refusal(body)));
    }
    if starts(b"Force to disable Virtual APIC due to SNP") {
        return Some(platform(Platform::SnpWithoutVirtualApic));
    }
    if starts(b"Extended features") {
        return Some(platform(Platform::AmdFeatures));
    }
    if has(b"Event log restarting") || has(b"event log restarting") {
        return Some(Fact::EventsLost(Lost::Restart));
    }
    if has(b"vent log overflow") {
        return Some(Fact::EventsLost(Lost::Overflow));
    }
    if has(b"PPR Log overflow") || has(b"PPR Log restarting") || has(b"PPR log restarting") {
        return Some(Fact::EventsLost(Lost::PageRequests));
    }
    if has(b"No event written to event log") {
        return Some(Fact::EventsLost(Lost::NotWritten));
    }
    if has(b"Completion-Wait loop timed out") || has(b"Command buffer timeout") {
        return Some(Fact::IommuStuck);
    }
    if starts(b"Unknown option - ") {
        return Some(Fact::Banner(Banner::AmdUnknownOption));
    }
    if starts(b"Initialized for Passthrough Mode") {
        return Some(Fact::Banner(Banner::AmdPassthrough));
    }
    if starts(b"Interrupt remapping enabled")
        || starts(b"X2APIC enabled")
        || starts(b"Virtual APIC enabled")
        || starts(b"Lazy IO/TLB flushing enabled")
        || starts(b"Using strict mode")
        || starts(b"V2 page table enabled")
    {
        return Some(Fact::Banner(Banner::AmdActive));
    }
    (starts(b"Found IOMMU") || has(b"performance counters supported"))
        .then_some(Fact::Banner(Banner::AmdFound))
}

const fn platform<'a>(state: Platform) -> Fact<'a> {
    Fact::Platform { state, device: None }
}

/// Why SNP was given up, in the wordings of 5.14 development kernels to 7.3.
fn snp_refusal(body: &[u8]) -> Platform {
    let has = |needle: &[u8]| text::contains(body, needle);
    if has(b"passthrough") {
        Platform::SnpOffPassthrough
    } else if has(b"V2 page table") || has(b"v2 page table") {
        Platform::SnpOffPageTables
    } else if has(b"RMP initialization failed") {
        Platform::SnpOffRmp
    } else if has(b"feature not enabled") || has(b"feature is not") {
        Platform::SnpOffFeature
    } else if has(b"IOMMU disabled") || has(b"IOMMU is disabled") {
        Platform::SnpOffIommuOff
    } else {
        Platform::SnpOffOther
    }
}

/// Reads the message at the anchor `DMAR` when it is no event.
pub(crate) fn dmar(message: &[u8]) -> Option<Fact<'_>> {
    let has = |needle: &[u8]| text::contains(message, needle);
    if has(b"PRQ overflow") || has(b"PPR overflow") {
        return Some(Fact::EventsLost(Lost::PageRequests));
    }
    let banner = if has(b"DMAR: IOMMU enabled") {
        Banner::VtdAskedFor
    } else if has(b"DMAR: IOMMU disabled") {
        Banner::VtdDisabled
    } else if has(b"force enabled due to platform opt in") {
        Banner::VtdForcedByPlatform
    } else if has(b"Virtualization Technology for Directed I/O") {
        Banner::VtdActive
    } else if has(b"Firmware forces DMA remapping off") {
        Banner::VtdForcedOff
    } else if has(b"DMAR-IR: Enabled IRQ remapping") {
        Banner::InterruptRemapping
    } else if has(b"DMAR: Unknown option - ") {
        Banner::VtdUnknownOption
    } else {
        return None;
    };
    Some(Fact::Banner(banner))
}

/// `Adding device 0000:41:00.0 to group 7`, up to 5.3.
fn old_group(rest: &[u8]) -> Option<Fact<'_>> {
    let joins = rest.strip_prefix(b"Adding device ");
    let tail = joins.or_else(|| rest.strip_prefix(b"Removing device "))?;
    let (device, tail) = PciAddress::parse_prefix(tail)?;
    let tail = tail.strip_prefix(b" to group ").or_else(|| tail.strip_prefix(b" from group "))?;
    let (group, _) = text::number(tail)?;
    Some(if joins.is_some() {
        Fact::GroupJoined { device, group }
    } else {
        Fact::GroupLeft { device, group }
    })
}

/// Reads the message at the anchor `iommu` or `IOMMU`.
pub(crate) fn iommu(message: &[u8]) -> Option<Fact<'_>> {
    if let Some(rest) = message.strip_prefix(b"iommu: ") {
        if let Some(fact) = old_group(rest) {
            return Some(fact);
        }
        if let Some(rest) = rest.strip_prefix(b"Default domain type: ") {
            let asked = text::contains(rest, b"(set via kernel command line)");
            let banner = match (rest.starts_with(b"Passthrough"), asked) {
                (true, true) => Banner::DefaultPassthroughByCommandLine,
                (true, false) => Banner::DefaultPassthrough,
                (false, true) => Banner::DefaultTranslatedByCommandLine,
                (false, false) => Banner::DefaultTranslated,
            };
            return Some(Fact::Banner(banner));
        }
        if let Some(rest) = rest.strip_prefix(b"DMA domain TLB invalidation policy: ") {
            let lazy = rest.starts_with(b"lazy");
            return Some(Fact::Banner(if lazy { Banner::Lazy } else { Banner::Strict }));
        }
        if rest.starts_with(b"Memory encryption detected") {
            return Some(Fact::Banner(Banner::PassthroughOffByEncryption));
        }
        let why = device_line::domain_refusal(rest)?;
        return Some(Fact::DomainRefused { device: None, why });
    }
    if message.starts_with(b"perf/amd_iommu: Detected AMD IOMMU") {
        return Some(Fact::Banner(Banner::AmdFound));
    }
    None
}

/// Reads the message at the anchor `GART`.
pub(crate) fn gart(message: &[u8]) -> Option<Fact<'_>> {
    let says = message.starts_with(b"PCI-DMA: using GART IOMMU");
    says.then_some(Fact::Banner(Banner::Gart))
}

/// Reads the message at one of the anchors of encryption.
pub(crate) fn encryption(message: &[u8]) -> Option<Fact<'_>> {
    let has = |needle: &[u8]| text::contains(message, needle);
    if let Some(body) = message.strip_prefix(b"SEV-SNP: ") {
        return reverse_map(body).map(platform);
    }
    let state = if let Some(body) = message.strip_prefix(b"kvm_amd: ") {
        let on = text::contains(body, b"enabled");
        match (body.starts_with(b"SEV-SNP "), body.starts_with(b"SEV"), on) {
            (true, _, true) => Platform::KvmSnpEnabled,
            (true, _, false) => Platform::KvmSnpDisabled,
            (false, true, true) => Platform::KvmSev,
            (false, true, false) => Platform::KvmSevDisabled,
            (false, false, _) => return None,
        }
    } else if message.starts_with(b"SEV supported: ")
        || message.starts_with(b"SEV-ES supported: ")
        || message.starts_with(b"SEV enabled (ASIDs")
        || message.starts_with(b"SEV-ES enabled (ASIDs")
    {
        Platform::KvmSev
    } else if has(b"emory Encryption Features active") {
        if has(b"TDX") {
            Platform::TdxGuest
        } else if has(b"SEV") {
            Platform::SevGuest
        } else if has(b"SME") {
            Platform::SmeActive
        } else {
            return None;
        }
    } else if has(b"memory encryption not enabled by BIOS") {
        Platform::SmeOffInFirmware
    } else if has(b"TSME enabled") || has(b"Both TSME and SME are active") {
        Platform::TsmeActive
    } else if message.starts_with(b"iommu: ") {
        return iommu(message);
    } else {
        return None;
    };
    Some(platform(state))
}

/// `SEV-SNP: …` (`arch/x86/virt/svm/sev.c`).
fn reverse_map(body: &[u8]) -> Option<Platform> {
    const TEXTS: [(&[u8], Platform); 14] = [
        (b"RMP table physical range [", Platform::RmpReserved),
        (b"RMP table physical address ", Platform::RmpReserved),
        (b"Segmented RMP base table physical range [", Platform::RmpReserved),
        (b"Memory for the RMP table has not been reserved", Platform::RmpNotReserved),
        (b"does not cover full system RAM", Platform::RmpTooSmall),
        (b"RMP configuration not valid", Platform::RmpInvalid),
        (b"is not within advertised bounds", Platform::RmpInvalid),
        (b"Invalid RMP size", Platform::RmpInvalid),
        (b"Invalid RMP segment base address", Platform::RmpInvalid),
        (b"Failed to map RMP", Platform::RmpUnmapped),
        (b"SNP init failed", Platform::SnpInitFailed),
        (b"RMPEntry", Platform::RmpEntry),
        (b"dump_rmpentry", Platform::RmpEntry),
        (b"IOMMU is either disabled or configured in passthrough", Platform::SnpOffPassthrough),
    ];
    TEXTS.iter().find(|(needle, _)| text::contains(body, needle)).map(|(_, state)| *state)
}

/// Reads the message at the anchor `ommand line: `.
pub(crate) fn command_line(message: &[u8]) -> Option<Fact<'_>> {
    let rest = message
        .strip_prefix(b"Command line: ")
        .or_else(|| message.strip_prefix(b"Kernel command line: "))?;
    Some(Fact::CommandLine { parameters: std::str::from_utf8(text::trim_end(rest)).ok()? })
}

/// Reads the message at the anchor `Linux version `.
pub(crate) fn version(message: &[u8]) -> Option<Fact<'_>> {
    let rest = message.strip_prefix(b"Linux version ")?;
    let (release, _) = text::until(rest, |byte| byte == b' ');
    Some(Fact::Boot { release: text::name(release)? })
}

/// Reads the message at the anchor `ACS overrides`.
pub(crate) fn acs_override(message: &[u8]) -> Option<Fact<'_>> {
    let says = text::contains(message, b"PCIe ACS overrides enabled");
    says.then_some(Fact::Acs { what: Acs::OverridePretends, device: None })
}

/// Reads QEMU's words about a peer's BAR that could not be mapped for a guest.
pub(crate) fn qemu(message: &[u8]) -> Option<Fact<'_>> {
    text::contains(message, b"PCI peer-to-peer transactions on BARs are not supported").then(|| {
        Fact::PeerDma {
            what: PeerDma::VfioMapFailed,
            client: text::addresses(message).next(),
            provider: None,
        }
    })
}

/// Reads the message at the anchor ` callbacks suppressed`, which stands at `at`.
pub(crate) fn suppressed(message: &[u8], at: usize) -> Option<Fact<'_>> {
    let before = message.get(..at)?;
    let (head, count) = text::last_word(before);
    let (count, []) = text::number::<u64>(count)? else { return None };
    let function = text::name(text::last_word(head.strip_suffix(b":")?).1)?;
    Some(Fact::Suppressed { function, count, iommu_events: drops_events(function) })
}

/// Functions whose dropped messages were IOMMU events. `amd_iommu_int_thread` drops overflow
/// messages, not events.
fn drops_events(function: &str) -> bool {
    const EVENTS: [&str; 9] = [
        "amd_iommu_report_page_fault",
        "iommu_print_event",
        "iommu_poll_events",
        "dmar_fault",
        "dmar_fault_do_one",
        "qi_check_fault",
        "arm_smmu_evtq_thread",
        "arm_smmu_dump_event",
        "arm_smmu_handle_event",
    ];
    EVENTS.contains(&function)
        || function.starts_with("amd_iommu_report_rmp")
        || (function.contains("smmu_") && function.contains("fault"))
}
