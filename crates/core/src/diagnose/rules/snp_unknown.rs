//! PW0404: whether SNP is on could not be established.

use super::support;
use crate::code::SNP_UNKNOWN;
use crate::diagnose::finding::{Finding, Severity};
use crate::diagnose::{Context, Rule};
use crate::judge::Confidence;
use crate::snapshot::iommu::IommuVendor;
use crate::snapshot::kernel::Tristate;

pub(super) const RULE: Rule = Rule {
    code: SNP_UNKNOWN,
    title: "whether SEV-SNP is on could not be established; it counts as on",
    page: "\
On AMD hosts it decides much whether SEV-SNP is on: identity domains are then illegal, and the host
owes its guests that nothing touches SNP. Here neither a proof of \"on\" nor a proof of \"off\" was
found.

Proof of on: `/sys/module/kvm_amd/parameters/sev_snp` reads `Y`; the boot line `AMD-Vi: IOMMU SNP
support enabled.`; `kvm_amd: SEV-SNP enabled`. Proof of off: the processor has no flag `sev_snp`;
every unit's EFR bit 63 is 0; no IOMMU is active; a boot line that says that SNP cannot be
supported; a boot log that is complete and does not speak of it. What is missing proves nothing:
KVM's module may not be loaded while the IOMMU enforces SNP all the same, and a ring buffer forgets
its first lines.

How it was seen: each source that was looked at is in the evidence, with what it gave.

What follows: this program treats it as on. No road with an identity domain is offered, and a group
that is identity already is judged unknown, since its device is either fine or rejected altogether.

What helps: read the kernel log as root, from a boot whose first line (`Linux version`) is still
there, or from the journal (`journalctl -k -b`); load nothing for it.

What not to believe: the capability bits as an answer; they say that the hardware could.

Sources: `drivers/iommu/amd/init.c`, `iommu_snp_enable`; `arch/x86/kvm/svm/sev.c`;
`arch/x86/kernel/cpu/amd.c`, `bsp_determine_snp`.",
    check,
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let snapshot = context.snapshot;
    let snp = &snapshot.memory_encryption.snp;
    let concerned = snp.state == Tristate::Unknown
        && snapshot.iommu_vendor() == Some(IommuVendor::Amd)
        && snapshot.is_guest() != Tristate::Yes
        && support::has_accelerators(snapshot);
    if !concerned {
        return Vec::new();
    }
    let decides = support::own(context, RULE.code).is_some();
    let severity = if decides { Severity::Warning } else { Severity::Info };
    let finding = Finding::new(
        RULE.code,
        severity,
        Confidence::Certain,
        "whether SEV-SNP is on could not be established: it counts as on",
    )
    .about("host");
    let finding = support::with_established(finding, &snp.evidence);
    vec![
        finding
            .seen(
                "kernel log",
                if snapshot.kernel.log_facts.known().is_some() {
                    "read, and says nothing that settles it"
                } else {
                    "not read"
                },
            )
            .remedy("read the kernel log of this boot as root, from its first line on"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::testing::{Host, fires, silent};

    #[test]
    fn unknown_on_amd() {
        let finding = fires(&RULE, &Host::amd().snp(Tristate::Unknown));
        assert_eq!(finding.severity, Severity::Info);
        let decides = fires(&RULE, &Host::amd().identity().snp(Tristate::Unknown));
        assert_eq!(decides.severity, Severity::Warning);
    }

    #[test]
    fn known_or_another_maker() {
        silent(&RULE, &Host::amd());
        silent(&RULE, &Host::amd().snp(Tristate::Yes));
        silent(&RULE, &Host::intel().snp(Tristate::Unknown));
    }
}
