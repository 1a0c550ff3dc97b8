//! SME and SEV-SNP, each with what the answer rests on.
//!
//! Both decide about roads, and a wrong "no" would break another tenant, so that "no" needs
//! evidence of its own: what proves "yes" proves nothing by being missing.

use peerway_core::command_line;
use peerway_core::observed::Observed;
use peerway_core::snapshot::iommu::Iommu;
use peerway_core::snapshot::kernel::{Cpu, Established, Kernel, MemoryEncryption, Tristate};

use crate::root::Root;

const COMMAND_LINE: &str = "/proc/cmdline";
const FLAGS: &str = "/proc/cpuinfo";
const KVM_SNP: &str = "/sys/module/kvm_amd/parameters/sev_snp";
const LOG: &str = "kernel log";

/// Parts of boot lines after which SNP cannot be on (`drivers/iommu/amd/init.c`,
/// `iommu_snp_enable`; `arch/x86/virt/svm/sev.c`).
const SNP_REFUSED: [&str; 3] = [
    "SNP cannot be supported",
    "Memory for the RMP table has not been reserved by BIOS",
    "SEV-SNP: IOMMU is either disabled or configured in passthrough mode",
];

/// Parts of boot lines that say that SNP is on. The first is the IOMMU driver's own word, and
/// what decides whether untranslated device-table entries are legal.
const SNP_ON: [&str; 2] = ["AMD-Vi: IOMMU SNP support enabled", "kvm_amd: SEV-SNP enabled ("];

/// SME and SNP. `boot_log` holds this boot's kernel lines, or the ones among them that this
/// program takes for facts; empty if nobody looked. It counts as complete if it begins with the
/// kernel's first line, `Linux version`.
pub fn collect(
    root: &Root,
    kernel: &Kernel,
    cpu: &Cpu,
    iommu: &Iommu,
    boot_log: &[String],
) -> MemoryEncryption {
    MemoryEncryption {
        sme: sme(kernel, cpu, boot_log),
        snp: Snp { root, kernel, cpu, iommu, boot_log }.establish(),
    }
}

/// The ring loses its oldest lines first, so that the first line proves the rest.
fn is_complete(log: &[String]) -> bool {
    log.iter().any(|line| line.contains("Linux version "))
}

fn line_with<'log>(log: &'log [String], parts: &[&str]) -> Option<&'log str> {
    log.iter().find(|line| parts.iter().any(|part| line.contains(part))).map(|line| line.trim())
}

fn flag_evidence(cpu: &Cpu, flag: &str) -> (String, String) {
    let text = match cpu.has_flag(flag) {
        Observed::Known(true) => format!("flag {flag}"),
        Observed::Known(false) => format!("no flag {flag}"),
        Observed::Absent => "no flags".to_owned(),
        Observed::Unreadable(why) => format!("unknown ({why})"),
    };
    (FLAGS.to_owned(), text)
}

/// SME is active where `mem_encrypt=on` is given and the processor has it.
fn sme(kernel: &Kernel, cpu: &Cpu, log: &[String]) -> Established {
    let mut evidence = vec![flag_evidence(cpu, "sme")];
    let asked =
        kernel.command_line.known().map(|line| command_line::last_value(line, "mem_encrypt"));
    match &asked {
        Some(Some(value)) => {
            evidence.push((COMMAND_LINE.to_owned(), format!("mem_encrypt={value}")));
        }
        Some(None) => evidence.push((COMMAND_LINE.to_owned(), "no mem_encrypt=".to_owned())),
        None => evidence.push((COMMAND_LINE.to_owned(), kernel.command_line.to_string())),
    }
    let active = log.iter().find(|line| reports_sme(line));
    if let Some(line) = active {
        evidence.push((LOG.to_owned(), line.trim().to_owned()));
    } else if is_complete(log) {
        evidence.push((LOG.to_owned(), "complete, and does not report SME".to_owned()));
    }
    let flag = cpu.has_flag("sme");
    let asked = asked.flatten();
    let state = if active.is_some() {
        Tristate::Yes
    } else if flag == Observed::Known(false) {
        Tristate::No
    } else if asked.as_deref() == Some("on") {
        Tristate::from(flag)
    } else if asked.as_deref() == Some("off") || is_complete(log) {
        Tristate::No
    } else {
        Tristate::Unknown
    };
    Established { state, evidence }
}

/// `Memory Encryption Features active: AMD SME`; 5.15 has the maker before it
/// (`arch/x86/mm/mem_encrypt.c`, `print_mem_encrypt_feature_info`).
fn reports_sme(line: &str) -> bool {
    line.split_once("Memory Encryption Features active:")
        .is_some_and(|(_, rest)| rest.split_ascii_whitespace().any(|word| word == "SME"))
}

struct Snp<'a> {
    root: &'a Root,
    kernel: &'a Kernel,
    cpu: &'a Cpu,
    iommu: &'a Iommu,
    boot_log: &'a [String],
}

impl Snp<'_> {
    fn establish(&self) -> Established {
        let mut evidence = Vec::new();
        // Order matters: proof of "on" outranks every sign of "off".
        let on = [self.kvm(&mut evidence), self.log(&mut evidence)];
        let off =
            [self.flag(&mut evidence), self.units(&mut evidence), self.command_line(&mut evidence)];
        let state = if on.contains(&Tristate::Yes) {
            Tristate::Yes
        } else if on.contains(&Tristate::No) || off.contains(&true) {
            Tristate::No
        } else {
            Tristate::Unknown
        };
        Established { state, evidence }
    }

    /// `Y` proves that SNP is on; `N` or no file proves nothing.
    fn kvm(&self, evidence: &mut Vec<(String, String)>) -> Tristate {
        let seen = self.root.observe(KVM_SNP);
        evidence.push((KVM_SNP.to_owned(), seen.to_string()));
        match seen.known().map(String::as_str) {
            Some("Y" | "1") => Tristate::Yes,
            _ => Tristate::Unknown,
        }
    }

    fn log(&self, evidence: &mut Vec<(String, String)>) -> Tristate {
        let mut found = |parts: &[&str], state| {
            line_with(self.boot_log, parts).map(|line| {
                evidence.push((LOG.to_owned(), line.to_owned()));
                state
            })
        };
        if let Some(state) =
            found(&SNP_ON, Tristate::Yes).or_else(|| found(&SNP_REFUSED, Tristate::No))
        {
            return state;
        }
        if is_complete(self.boot_log) {
            evidence.push((LOG.to_owned(), "complete, and does not report SNP".to_owned()));
            return Tristate::No;
        }
        Tristate::Unknown
    }

    /// Whether the processor rules SNP out. The kernel clears the flag without a reserved RMP.
    fn flag(&self, evidence: &mut Vec<(String, String)>) -> bool {
        evidence.push(flag_evidence(self.cpu, "sev_snp"));
        self.cpu.has_flag("sev_snp") == Observed::Known(false)
    }

    /// Whether the IOMMU rules SNP out: none is active, or one has the feature switched off.
    fn units(&self, evidence: &mut Vec<(String, String)>) -> bool {
        const PLACE: &str = "/sys/class/iommu";
        let units = match &self.iommu.units {
            Observed::Known(units) => units.as_slice(),
            Observed::Absent => &[],
            Observed::Unreadable(_) => return false,
        };
        if units.is_empty() {
            // Groups without units contradict: then the copy is partial, and proves nothing.
            let groups = self.root.list("/sys/kernel/iommu_groups");
            let none = groups.map_or_else(|error| error.is_absent(), |names| names.is_empty());
            if none {
                evidence.push((PLACE.to_owned(), "no IOMMU is active".to_owned()));
            }
            return none;
        }
        let mut off = false;
        for unit in units {
            if let Observed::Known(capable) = unit.snp_capable() {
                let bit = u8::from(capable);
                evidence.push((
                    format!("{PLACE}/{}/amd-iommu/features", unit.name),
                    format!("EFR bit 63 (SNP) is {bit}"),
                ));
                off |= !capable;
            }
        }
        off
    }

    /// Whether a word of the command line rules SNP out.
    fn command_line(&self, evidence: &mut Vec<(String, String)>) -> bool {
        let Some(line) = self.kernel.command_line.known() else { return false };
        let mut off = false;
        for (key, value) in command_line::split(line) {
            let value = value.unwrap_or_default();
            let mut items = value.split(',');
            let mut has = |wanted: &str| items.any(|item| item == wanted);
            let found = match key.replace('-', "_").as_str() {
                "sev" => has("nosnp"),
                "amd_iommu" => has("off"),
                "iommu" => items.any(|item| item == "off" || (item == "pt" && self.needs_mode())),
                "iommu.passthrough" => {
                    command_line::switch(&value) == Some(true) && self.needs_mode()
                }
                _ => false,
            };
            if found {
                evidence.push((COMMAND_LINE.to_owned(), format!("{key}={value}")));
                off = true;
            }
        }
        off
    }

    /// Pass-through ends SNP unless every unit allows untranslated entries under it (EFR2 bit 13),
    /// whatever the kernel's version: vendors carry the support back.
    fn needs_mode(&self) -> bool {
        self.iommu.units.known().is_some_and(|units| {
            units.iter().any(|unit| unit.snp_page_mode_zero() == Observed::Known(false))
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use peerway_core::snapshot::iommu::{IommuUnit, IommuVendor};

    use super::*;
    use crate::host_file;

    /// A host in the few words that bear on memory encryption.
    struct Host<'a> {
        flags: Option<&'a str>,
        line: &'a str,
        log: &'a [&'a str],
        efr: u64,
        efr2: u64,
        kvm: Option<&'a str>,
    }

    const EPYC: Host<'_> = Host {
        flags: Some("sme sev sev_es sev_snp svm"),
        line: "root=/dev/sda1 quiet",
        log: &[],
        efr: 1 << 63,
        efr2: 0,
        kvm: None,
    };

    const FIRST: &str = "[    0.000000] Linux version 6.14.5 (build@host)";

    impl Host<'_> {
        fn look(&self) -> MemoryEncryption {
            let kvm = self.kvm.map_or(String::new(), |word| format!("//- {KVM_SNP}\n{word}\n"));
            let count = kvm.matches("//- ").count();
            let text = format!("peerway-host 1\n{kvm}//- end {count}\n");
            let root = Root::recorded(Arc::new(host_file::parse(&text).unwrap()));
            let kernel =
                Kernel { command_line: Observed::Known(self.line.to_owned()), ..Kernel::default() };
            let flags = self.flags.map_or_else(
                || Observed::Unreadable("permission denied".to_owned()),
                |flags| Observed::Known(flags.split_whitespace().map(str::to_owned).collect()),
            );
            let unit = IommuUnit {
                name: "ivhd0".to_owned(),
                vendor: IommuVendor::Amd,
                amd_efr: Observed::Known(self.efr),
                amd_efr2: Observed::Known(self.efr2),
                intel_cap: Observed::Absent,
                intel_ecap: Observed::Absent,
            };
            let log: Vec<String> = self.log.iter().map(|line| (*line).to_owned()).collect();
            collect(
                &root,
                &kernel,
                &Cpu { flags, ..Cpu::default() },
                &Iommu { units: Observed::Known(vec![unit]) },
                &log,
            )
        }
    }

    #[track_caller]
    fn check_sme(host: &Host<'_>, expected: Tristate) {
        let seen = host.look().sme;
        assert_eq!(seen.state, expected, "{:?}", seen.evidence);
        assert!(!seen.evidence.is_empty());
    }

    #[test]
    fn sme_is_active_where_asked_for_and_there() {
        let on = "mem_encrypt=on";
        check_sme(&Host { line: on, ..EPYC }, Tristate::Yes);
        check_sme(&Host { line: on, flags: None, ..EPYC }, Tristate::Unknown);
        check_sme(&Host { line: on, flags: Some("svm"), ..EPYC }, Tristate::No);
        check_sme(&Host { line: "mem_encrypt=on mem_encrypt=off", ..EPYC }, Tristate::No);
        check_sme(&EPYC, Tristate::Unknown);
        check_sme(
            &Host { log: &["AMD-Vi: Interrupt remapping enabled"], ..EPYC },
            Tristate::Unknown,
        );
        check_sme(&Host { log: &[FIRST], ..EPYC }, Tristate::No);
        let active = "[    0.2] Memory Encryption Features active: AMD SME";
        check_sme(&Host { log: &[active], ..EPYC }, Tristate::Yes);
        let older = "AMD Memory Encryption Features active: SME";
        check_sme(&Host { log: &[FIRST, older], ..EPYC }, Tristate::Yes);
        let guest = "Memory Encryption Features active: AMD SEV SEV-ES SEV-SNP";
        check_sme(&Host { log: &[FIRST, guest], ..EPYC }, Tristate::No);
    }

    #[track_caller]
    fn check_snp(host: &Host<'_>, expected: Tristate) {
        let seen = host.look().snp;
        assert_eq!(seen.state, expected, "{:?}", seen.evidence);
        assert!(!seen.evidence.is_empty());
    }

    #[test]
    fn snp_is_on_by_proof() {
        check_snp(&Host { kvm: Some("Y"), ..EPYC }, Tristate::Yes);
        check_snp(&Host { kvm: Some("Y"), line: "sev=nosnp", efr: 0, ..EPYC }, Tristate::Yes);
        check_snp(
            &Host { log: &["[    1.2] AMD-Vi: IOMMU SNP support enabled."], ..EPYC },
            Tristate::Yes,
        );
        check_snp(
            &Host { log: &["kvm_amd: SEV-SNP enabled (ASIDs 1 - 99)"], ..EPYC },
            Tristate::Yes,
        );
    }

    #[test]
    fn snp_is_unknown_without_evidence() {
        check_snp(&EPYC, Tristate::Unknown);
        check_snp(&Host { kvm: Some("N"), ..EPYC }, Tristate::Unknown);
        check_snp(&Host { flags: None, ..EPYC }, Tristate::Unknown);
        check_snp(&Host { line: "iommu=pt", efr2: 1 << 13, ..EPYC }, Tristate::Unknown);
        check_snp(
            &Host { log: &["kvm_amd: SEV enabled (ASIDs 100 - 509)"], ..EPYC },
            Tristate::Unknown,
        );
    }

    #[test]
    fn snp_is_off_on_evidence() {
        check_snp(&Host { flags: Some("sme sev"), ..EPYC }, Tristate::No);
        check_snp(&Host { efr: 0, ..EPYC }, Tristate::No);
        check_snp(&Host { log: &[FIRST], kvm: Some("N"), ..EPYC }, Tristate::No);
        check_snp(&Host { line: "iommu=pt", ..EPYC }, Tristate::No);
        check_snp(&Host { line: "iommu.passthrough=1", ..EPYC }, Tristate::No);
        check_snp(
            &Host { line: "iommu.passthrough=0 amd_iommu=on iommu=nopt", ..EPYC },
            Tristate::Unknown,
        );
        check_snp(&Host { line: "sev=debug,nosnp", ..EPYC }, Tristate::No);
        check_snp(&Host { line: "amd_iommu=off", ..EPYC }, Tristate::No);
        let refused = "AMD-Vi: SNP: IOMMU disabled or configured in passthrough mode, SNP cannot be supported.";
        check_snp(&Host { log: &[refused], ..EPYC }, Tristate::No);
    }
}
