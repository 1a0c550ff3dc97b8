//! What the boot says: SNP, the command line.

use peerway_core::diagnose::assessment::Assessment;
use peerway_core::snapshot::kernel::Tristate;
use peerway_klog::notice::Platform;

use super::{Assessed, Case, rank};

/// Lines that state something about SNP, or about SEV where SNP is not mentioned.
const ABOUT_SNP: [Platform; 20] = [
    Platform::SnpIommuEnabled,
    Platform::SnpOffPassthrough,
    Platform::SnpOffIommuOff,
    Platform::SnpOffPageTables,
    Platform::SnpOffFeature,
    Platform::SnpOffRmp,
    Platform::SnpOffOther,
    Platform::RmpReserved,
    Platform::RmpNotReserved,
    Platform::RmpTooSmall,
    Platform::RmpInvalid,
    Platform::RmpUnmapped,
    Platform::SnpInitFailed,
    Platform::SnpFirmware,
    Platform::SevFirmware,
    Platform::SevEnabled,
    Platform::KvmSnpEnabled,
    Platform::KvmSnpDisabled,
    Platform::KvmSev,
    Platform::SnpWithoutVirtualApic,
];

pub(super) fn check(case: &Case<'_>) -> Vec<Assessed> {
    let mut found = Vec::new();
    found.extend(snp(case));
    found.extend(command_line(case));
    found
}

fn snp(case: &Case<'_>) -> Option<Assessed> {
    let said = case
        .report()
        .is_some_and(|report| ABOUT_SNP.iter().any(|state| report.platform.contains_key(state)));
    let parameters =
        case.material.parameters.keys().any(|name| {
            name.starts_with("sev") || name.starts_with("SNP") || name.starts_with("RMP")
        });
    if !said && !parameters {
        return None;
    }
    let why = match case.snapshot.memory_encryption.snp.state {
        Tristate::Yes => {
            "SEV-SNP is active on this host: the IOMMU stays on and translates, whatever else is \
             planned"
        }
        Tristate::No => "SEV-SNP is not active on this host, and the log says why",
        Tristate::Unknown => "the files speak of SEV, and not of whether SNP is active",
    };
    let processors = case
        .events("platform", &[])
        .iter()
        .filter_map(|event| event.device)
        .map(|device| device.to_string())
        .collect::<Vec<_>>();
    // A device that VFIO keeps is somebody's.
    let held = case.snapshot.devices.iter().filter(|device| device.is_vfio());
    Some(
        Assessed::new(Assessment::SnpHostState, rank::SNP, why)
            .about(processors)
            .about(held.map(|device| device.address)),
    )
}

fn command_line(case: &Case<'_>) -> Option<Assessed> {
    let line = case.snapshot.kernel.command_line.known()?;
    let telling = [
        "iommu=",
        "intel_iommu=",
        "amd_iommu=",
        "iommu.passthrough=",
        "iommu.strict=",
        "pcie_acs_override",
        "pci=",
        "mem_encrypt=",
        "kvm_amd.",
    ];
    let words: Vec<&str> = line
        .split_whitespace()
        .filter(|word| telling.iter().any(|front| word.starts_with(front)))
        .collect();
    if words.is_empty() {
        return None;
    }
    let why = format!("words of the command line that bear on this: {}", words.join(" "));
    Some(Assessed::new(Assessment::Cmdline, rank::COMMAND_LINE, why))
}
