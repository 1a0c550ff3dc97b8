//! PW0403: SNP was possible and is off.

use super::boot;
use super::support;
use crate::code::SNP_OFF;
use crate::command_line::Effect;
use crate::diagnose::finding::{Finding, Severity};
use crate::diagnose::{Context, Rule};
use crate::judge::Confidence;
use crate::observed::Observed;
use crate::snapshot::Snapshot;
use crate::snapshot::kernel::Tristate;

pub(super) const RULE: Rule = Rule {
    code: SNP_OFF,
    title: "SEV-SNP was possible or asked for, and is off",
    page: "\
Something on this host points to SEV-SNP (the processor's flag, lines of the boot log, a tenant that
is configured as an SNP guest), and the kernel runs without it. The boot log usually says why:

- `SNP: IOMMU disabled or configured in passthrough mode, SNP cannot be supported.` The command line
  passes devices through. (With the IOMMU off altogether no such line is printed: then there are RMP
  lines, no AMD-Vi line at all, and `kvm_amd: SEV-SNP disabled`.)
- `SNP: IOMMU is configured with V2 page table mode` is `amd_iommu=pgtbl_v2`.
- `SNP: IOMMU SNP feature not enabled` reads like an IOMMU fault and is a firmware setting: look for
  `SEV-SNP Support`, whose `Auto` may be off.
- `Memory for the RMP table has not been reserved by BIOS` is the firmware's RMP coverage, off or
  hidden.
- `Memory reserved for the RMP table does not cover full system RAM`: coverage on `Custom`, or
  memory added later.
- `SNP: RMP initialization failed` follows one of the above.
- `SNP init failed: not all CPUs online` (7.3): a processor was offline.

How it was seen: the lines and words are in the evidence.

Why it matters, both ways. For confidential guests: they do not start. For peer access: without SNP,
identity domains for single groups are legal, so a road is open that SNP would close. Whoever turns
SNP on later closes it.

What helps: decide which of the two the host is for. Each of these settings needs a reboot.

What not to believe: the EFR bit of the IOMMU or the processor's flag as \"SNP is on\". They are
conditions.

Sources: `drivers/iommu/amd/init.c`, `iommu_snp_enable`; `arch/x86/virt/svm/sev.c`. Read in source
and in public boot logs.",
    check,
};

/// Lines after which SNP is off.
const REFUSALS: [&str; 6] = [
    "SNP cannot be supported",
    "Memory for the RMP table has not been reserved by BIOS",
    "does not cover full system RAM",
    "RMP configuration not valid",
    "SNP init failed",
    "kvm_amd: SEV-SNP disabled",
];

fn check(context: &Context<'_>) -> Vec<Finding> {
    let snapshot = context.snapshot;
    let snp = &snapshot.memory_encryption.snp;
    if snp.state != Tristate::No || snapshot.is_guest() == Tristate::Yes {
        return Vec::new();
    }
    let lines = support::log_lines(snapshot, &REFUSALS);
    let flag = snapshot.cpu.has_flag("sev_snp") == Observed::Known(true);
    let wanted = support::confidential(snapshot);
    if lines.is_empty() && !flag && wanted.is_empty() {
        return Vec::new();
    }
    let severity = if wanted.is_empty() { Severity::Info } else { Severity::Warning };
    let finding = Finding::new(
        RULE.code,
        severity,
        if lines.is_empty() { Confidence::Probable } else { Confidence::Certain },
        support::title(&format!("SEV-SNP is off: {}", why(snapshot, &lines))),
    )
    .about("host");
    let mut finding = support::with_log(finding, &lines);
    finding = boot::with_words(finding, &boot::with_effect(snapshot, &[Effect::DisablesSnp]));
    finding = support::with_established(finding, &snp.evidence);
    if flag {
        finding = finding.seen("/proc/cpuinfo (flags)", "sev_snp");
    }
    for tenant in wanted.iter().take(4) {
        finding = finding.seen(
            format!("tenant {}", support::tenant_text(tenant)),
            format!("confidential, running: {}", tenant.running),
        );
    }
    vec![finding]
}

fn why(snapshot: &Snapshot, lines: &[&str]) -> String {
    const REASONS: [(&str, &str); 7] = [
        ("passthrough mode", "devices are passed through by default"),
        ("V2 page table mode", "the IOMMU uses version 2 page tables"),
        ("SNP feature not enabled", "firmware has SEV-SNP Support off (NBIO options)"),
        ("has not been reserved by BIOS", "firmware reserved no RMP table (RMP coverage)"),
        ("does not cover full system RAM", "the RMP table does not cover all memory"),
        ("not all CPUs online", "a processor was offline"),
        ("RMP", "the RMP table could not be set up"),
    ];
    let logged = REASONS
        .iter()
        .find(|(part, _)| lines.iter().any(|line| line.contains(part)))
        .map(|(_, reason)| (*reason).to_owned());
    logged.unwrap_or_else(|| {
        let words = boot::with_effect(snapshot, &[Effect::DisablesSnp]);
        match words.last() {
            Some(word) => {
                let text: String = word.text.chars().take(40).collect();
                format!("{text} on the command line rules it out")
            }
            None => "why was not seen in the boot log".to_owned(),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::testing::{Host, fires, silent};

    #[test]
    fn the_boot_log_says_why() {
        let host = Host::amd()
            .logged("AMD-Vi: SNP: IOMMU SNP feature not enabled, SNP cannot be supported.");
        let finding = fires(&RULE, &host);
        assert_eq!(finding.confidence, Confidence::Certain);
        assert!(finding.title.contains("SEV-SNP Support off"));
        let host = Host::amd()
            .logged("SEV-SNP: Memory for the RMP table has not been reserved by BIOS")
            .logged("AMD-Vi: SNP: RMP initialization failed, SNP cannot be supported.");
        assert!(fires(&RULE, &host).title.contains("reserved no RMP table"));
    }

    #[test]
    fn the_flag_and_a_word() {
        let host = Host::amd().boot("iommu=pt").edit(|snapshot| {
            snapshot.cpu.flags = Observed::Known(vec!["sev_snp".to_owned()]);
        });
        assert!(fires(&RULE, &host).title.contains("iommu=pt on the command line"));
        assert_eq!(fires(&RULE, &host.guest(&[])).severity, Severity::Warning);
    }

    #[test]
    fn hosts_that_never_had_it_and_hosts_that_have_it() {
        silent(&RULE, &Host::amd());
        silent(&RULE, &Host::intel());
        silent(&RULE, &Host::amd().snp(Tristate::Yes).logged("kvm_amd: SEV-SNP disabled"));
        silent(&RULE, &Host::amd().snp(Tristate::Unknown));
    }
}
