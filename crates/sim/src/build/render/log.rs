//! The kernel log: the boot lines that follow from the host's state, then those of the
//! description.

use super::super::kmsg::{INFO, Kmsg, NOTICE, WARNING};
use super::super::layout::{Kind, Placed};
use super::super::{HostBuilder, Iommu};
use super::{kernel, nvidia};

pub(super) fn render(host: &HostBuilder, placed: &[Placed]) -> String {
    let mut log = Kmsg::default();
    // A ring that was overwritten begins with a later number.
    let first = if host.iommu_boot_lines {
        boot(host, placed, &mut log);
        0
    } else {
        48_211
    };
    log.append(&host.log);
    log.text(first)
}

fn boot(host: &HostBuilder, placed: &[Placed], log: &mut Kmsg) {
    log.line(NOTICE, kernel::version_line(host));
    log.line(INFO, format!("Command line: {}", kernel::command_line(host)));
    if let Some((_, board)) = host.dmi.iter().find(|(name, _)| *name == "board_name") {
        log.line(INFO, format!("DMI: {board}"));
    }
    encryption(host, log);
    log.at(1_480_000);
    iommu(host, log);
    for one in placed {
        if let Some(group) = one.group {
            let text = format!("Adding to iommu group {group}");
            log.device(INFO, "pci", one.address, text);
        }
    }
    late_encryption(host, placed, log);
    if let Some(driver) = &host.nvidia {
        log.at(9_800_000);
        let line = nvidia::version_line(driver).replace("NVRM version: ", "NVRM: loading ");
        log.line(NOTICE, line);
    }
    for one in placed.iter().filter(|one| one.driver() == Some("vfio-pci")) {
        if let Kind::Function(function) = &one.kind {
            let text = match function.model.class >> 8 {
                0x0300 => "vgaarb: VGA decodes changed: olddecodes=io+mem,decodes=none:owns=none",
                _ => "enabling device (0000 -> 0002)",
            };
            log.at(31_000_000).device(INFO, "vfio-pci", one.address, text);
        }
    }
}

fn encryption(host: &HostBuilder, log: &mut Kmsg) {
    if host.cpu.vendor != "AuthenticAMD" {
        return;
    }
    if host.encryption.snp {
        log.line(
            INFO,
            "SEV-SNP: RMP table physical range [0x0000005fb7400000 - 0x0000005ff77fffff]",
        );
    }
    if host.encryption.sme {
        let words = if host.version().at_least(5, 19) {
            "Memory Encryption Features active: AMD SME"
        } else {
            "AMD Memory Encryption Features active: SME"
        };
        log.line(INFO, words);
    }
}

fn iommu(host: &HostBuilder, log: &mut Kmsg) {
    let passthrough = host.domain == "identity";
    let by_command = ["iommu=pt", "iommu=nopt", "iommu.passthrough="]
        .iter()
        .any(|word| host.command_line.contains(word));
    let suffix = if by_command { " (set via kernel command line)" } else { "" };
    let kind = if passthrough { "Passthrough" } else { "Translated" };
    // Kernels to 6.4 put a blank before the suffix even where there is none.
    let blank = if host.version().at_least(6, 5) { "" } else { " " };
    if host.command_line.contains("amd_iommu=on") && host.cpu.vendor == "AuthenticAMD" {
        log.line(NOTICE, "AMD-Vi: Unknown option - 'on'");
    }
    log.line(INFO, format!("iommu: Default domain type: {kind}{blank}{suffix}"));
    if !passthrough {
        let policy = if host.domain == "DMA-FQ" { "lazy" } else { "strict" };
        log.line(INFO, format!("iommu: DMA domain TLB invalidation policy: {policy} mode{blank}"));
    }
    match host.iommu {
        Iommu::Amd { efr, efr2 } => {
            if host.encryption.sme && !by_command {
                let text =
                    "iommu: Memory encryption detected - Disabling default IOMMU Passthrough";
                log.line(INFO, text);
            }
            let snp = if efr >> 63 == 1 { " SNP" } else { "" };
            log.line(
                INFO,
                format!(
                    "AMD-Vi: Extended features ({efr:#x}, {efr2:#x}): \
                     PPR NX GT IA GA PC GA_vAPIC{snp}"
                ),
            );
            if host.encryption.snp && host.version().at_least(6, 9) {
                log.line(INFO, "AMD-Vi: IOMMU SNP support enabled.");
                log.line(INFO, "AMD-Vi: Force to disable Virtual APIC due to SNP");
            }
            log.line(INFO, "AMD-Vi: Interrupt remapping enabled");
        }
        Iommu::Intel { .. } => {
            if host.command_line.contains("intel_iommu=on") {
                log.line(INFO, "DMAR: IOMMU enabled");
            }
            log.line(INFO, "DMAR: Host address width 52");
            log.line(INFO, "DMAR: No RMRR found");
            log.line(INFO, "DMAR: Intel(R) Virtualization Technology for Directed I/O");
        }
        Iommu::Smmu => {
            log.line(INFO, "arm-smmu-v3 arm-smmu-v3.0.auto: ias 48-bit, oas 48-bit");
        }
        Iommu::Off => {}
    }
}

fn late_encryption(host: &HostBuilder, placed: &[Placed], log: &mut Kmsg) {
    let psp = placed.iter().find(|one| one.driver() == Some("ccp"));
    if let Some(psp) = psp.filter(|_| host.encryption.sev) {
        log.at(5_900_000);
        log.device(INFO, "ccp", psp.address, "SEV API:1.55 build:54");
        if host.encryption.snp {
            log.device(INFO, "ccp", psp.address, "SEV-SNP API:1.55 build:54");
        }
    }
    if host.encryption.sev {
        log.at(6_100_000).line(INFO, "kvm_amd: SEV enabled (ASIDs 509 - 1006)");
        log.line(INFO, "kvm_amd: SEV-ES enabled (ASIDs 1 - 508)");
        let snp = if host.encryption.snp { "enabled (ASIDs 1 - 508)" } else { "disabled" };
        if host.version().at_least(6, 11) {
            log.line(INFO, format!("kvm_amd: SEV-SNP {snp}"));
        }
    } else if host.cpu.vendor == "AuthenticAMD" && host.cpu.has_sme && !host.cpu.guest {
        log.line(WARNING, "SEV: memory encryption not enabled by BIOS");
    }
}
