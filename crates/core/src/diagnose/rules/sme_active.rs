//! PW0402: SME is on and this kernel sets the encryption bit on MMIO.

use super::support;
use crate::code::SME_ACTIVE;
use crate::diagnose::finding::{Finding, Severity};
use crate::diagnose::{Context, Rule};
use crate::judge::Confidence;
use crate::judge::encryption::kernel_has_fix;
use crate::snapshot::Snapshot;
use crate::snapshot::iommu::IommuVendor;
use crate::snapshot::kernel::Tristate;

pub(super) const RULE: Rule = Rule {
    code: SME_ACTIVE,
    title: "SME is active, which bears on every IOMMU entry for peer memory",
    page: "\
Secure Memory Encryption is active where firmware permits it (`SMEE`) and the command line says
`mem_encrypt=on`; the word alone proves nothing. The kernel then marks page-table entries with the
encryption bit, those of the IOMMU too. For entries that point at another device's memory the bit is
wrong: the address leads nowhere.

By kernel: up to 6.18, and 6.19 before its late-February releases, the bit is in every entry. From
7.0 on it is left out where the caller says that it maps MMIO, which the DMA API and a peer map do.
**VFIO does not say so** in any kernel that was read, 7.3.4 included, so that two GPUs in one guest
on such a host lose what they send each other, whatever the kernel (unless kernel, 7.0 or late 6.19,
and monitor both map through iommufd as shared buffers; which QEMU does is not known).

How it was seen: the processor's flag, the command line and the boot log, each in the evidence.
Where these do not settle it the state is unknown, and a pair whose verdict hangs on it is unknown
too.

Why it matters: it closes the roads that map peer memory (peer map, mapping driver, a guest with the
GPUs) on kernels without the fix. Raw addresses that never meet a page table are not concerned.

What helps, after agreement with every tenant, because both need a reboot: a kernel with the fix, or
leaving `mem_encrypt=on` out. SNP does not need it. `TSME`, a firmware setting, encrypts main memory
with no bit in any page table.

What not to believe: that SME and SNP are one. Guests' memory stays encrypted with keys of its own
when the host's SME is off.

Sources: `arch/x86/mm/mem_encrypt.c`; `drivers/iommu/amd/io_pgtable.c`; commit e2692c4eeaa4;
`Documentation/arch/x86/amd-memory-encryption.rst`. Read in source, not measured on hardware.",
    check,
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let snapshot = context.snapshot;
    if !support::has_accelerators(snapshot) || snapshot.iommu_vendor() != Some(IommuVendor::Amd) {
        return Vec::new();
    }
    let open = support::own(context, RULE.code).is_some();
    let (severity, confidence, title) = match (
        snapshot.memory_encryption.sme.state,
        kernel_has_fix(snapshot),
    ) {
        (Tristate::No, _) => return Vec::new(),
        (Tristate::Yes, Tristate::No) => (
            Severity::Warning,
            Confidence::Probable,
            "SME is active, and this kernel sets the encryption bit in entries for peer memory",
        ),
        (Tristate::Yes, Tristate::Unknown) => (
            Severity::Warning,
            Confidence::Possible,
            "SME is active, and whether this kernel spares entries for peer memory is not known",
        ),
        (Tristate::Yes, Tristate::Yes) => (
            Severity::Info,
            Confidence::Probable,
            "SME is active: this kernel spares entries for peer memory, VFIO's excepted",
        ),
        (Tristate::Unknown, _) if open => (
            Severity::Warning,
            Confidence::Possible,
            "whether SME is active could not be established, and a verdict hangs on it",
        ),
        (Tristate::Unknown, _) => return Vec::new(),
    };
    let finding = Finding::new(RULE.code, severity, confidence, title).about("host");
    let finding = support::with_established(finding, &snapshot.memory_encryption.sme.evidence);
    let finding = support::with_release(finding, snapshot);
    vec![with_advice(finding, snapshot)]
}

fn with_advice(finding: Finding, snapshot: &Snapshot) -> Finding {
    if snapshot.memory_encryption.sme.state == Tristate::Unknown {
        return finding
            .remedy("read the kernel log of this boot as root: it says whether SME is on");
    }
    let guests = support::guests(snapshot);
    let consent = if guests.is_empty() {
        String::new()
    } else {
        let names = support::listed(guests.iter().map(|one| support::tenant_text(one)), 3);
        format!(", by agreement with {names}")
    };
    let finding = match kernel_has_fix(snapshot) {
        Tristate::Yes => finding,
        Tristate::No | Tristate::Unknown => {
            let finding = finding.remedy(format!(
                "a kernel from 7.0 on lifts it for mapping drivers and peer maps (a \
                 reboot{consent})"
            ));
            if support::driven_by_nvidia(snapshot).is_empty() {
                finding
            } else {
                finding.remedy(super::encryption_bit::MOVES_THE_FAULT)
            }
        }
    };
    finding.remedy(format!(
        "booting without mem_encrypt=on lifts it for all, VFIO included (a reboot{consent}); SNP \
         does not need the word"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::testing::{Host, fires, silent};
    use crate::observed::Observed;

    #[test]
    fn by_kernel() {
        let old = fires(&RULE, &Host::amd().sme(Tristate::Yes).guest(&[]));
        assert_eq!(old.severity, Severity::Warning);
        assert!(old.remedies[0].contains("by agreement with vm:132 (sandbox)"));
        assert!(old.remedies[1].contains("alone moves the fault"));
        let new = fires(&RULE, &Host::amd().sme(Tristate::Yes).kernel("7.0.14"));
        assert_eq!((new.severity, new.remedies.len()), (Severity::Info, 1));
        let between = fires(&RULE, &Host::amd().sme(Tristate::Yes).kernel("6.19.4"));
        assert_eq!(between.confidence, Confidence::Possible);
    }

    #[test]
    fn unknown_matters_only_where_a_verdict_hangs_on_it() {
        silent(&RULE, &Host::amd().sme(Tristate::Unknown));
        let mapping = Host::amd().sme(Tristate::Unknown).edit(|snapshot| {
            snapshot.kernel.iommu_dma_ops = Observed::Known(true);
        });
        assert!(fires(&RULE, &mapping).title.starts_with("whether SME"));
    }

    #[test]
    fn inactive_or_another_maker() {
        silent(&RULE, &Host::amd());
        silent(&RULE, &Host::intel().sme(Tristate::Yes));
    }
}
