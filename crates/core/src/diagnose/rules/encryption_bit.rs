//! PW0206: the encryption bit in entries for peer memory.

use super::support;
use crate::code::ENCRYPTION_BIT;
use crate::diagnose::finding::{Finding, Severity};
use crate::diagnose::{Context, Rule};

pub(super) const RULE: Rule = Rule {
    code: ENCRYPTION_BIT,
    title: "IOMMU entries for peer memory carry the memory-encryption bit and lead nowhere",
    page: "\
With Secure Memory Encryption (SME) active, the kernel marks every IOMMU page-table entry with the
encryption bit (\"C-bit\", address bit 47 or 51), so that DMA to main memory passes the encrypting
memory controller. Peer memory is not behind the memory controller. An entry for it must not carry
the bit: the address that leaves the IOMMU has the bit in it, and no device answers there.

How it is seen: SME is active, the IOMMU is AMD's, and the kernel lacks the change that leaves the
bit out for MMIO. That change is in 7.0, and in the 6.19 series from late February 2026 (6.19.3 to
6.19.5; the first release could not be pinned down, so 6.19.3 and 6.19.4 count as unknown here). No
backport below 6.19 is to be expected, because the files that it changes do not exist there.

Why it matters: there need be no fault in the log. Copies simply do not arrive, which looks like a
root complex that does not forward. It breaks every road that maps peer memory: a mapping driver, a
peer map, and VFIO. VFIO's own half of the fix is in no kernel that was read, 7.3.4 included.

What helps, both with a reboot, so by agreement with every other tenant: a kernel with the fix; or
booting without `mem_encrypt=on`. SNP does not need that word. For NVIDIA's stock driver such a
kernel alone only moves the fault: from 6.12 on it uses raw addresses (PW0201), and needs a peer map
or a rebuilt driver beside the fix. Transparent SME (`TSME`, a firmware
setting) encrypts main memory without any bit in page tables; it shows in attestation reports.

What not to believe: reading a mapping back through the kernel. That hides the bit; only a copy
whose data is checked proves the state.

Sources: `drivers/iommu/generic_pt/fmt/amdv1.h` and commit e2692c4eeaa4 (\"Do not set C-bit on MMIO
backed PTEs\"); `Documentation/arch/x86/amd-memory-encryption.rst`. What the hardware does with such
an address (abort, fault, silence) was not measured.",
    check,
};

const FIXED_KERNEL: &str = "a kernel with the fix: 7.0 or later (a reboot stops every tenant)";
/// The stock driver maps on kernels up to 6.11 only, and the fix is younger.
pub(super) const MOVES_THE_FAULT: &str = "a kernel with the fix (7.0 or later) alone moves the fault: from 6.12 on NVIDIA's driver uses \
     raw addresses (PW0201); it needs a peer map or a rebuilt driver beside it";

fn check(context: &Context<'_>) -> Vec<Finding> {
    let Some(affected) = support::own(context, RULE.code) else { return Vec::new() };
    let snapshot = context.snapshot;
    let mut finding = Finding::new(
        RULE.code,
        Severity::Error,
        affected.confidence(),
        format!(
            "{} lost: entries for peer memory carry the encryption bit",
            affected.that("is", "are")
        ),
    )
    .about_all(affected.requesters());
    finding = support::with_established(finding, &snapshot.memory_encryption.sme.evidence);
    finding = support::with_release(finding, snapshot);
    finding = support::with_domains(finding, snapshot, &affected.requesters());
    let by_nvidia = affected.requesters().iter().any(|address| {
        snapshot.device(*address).is_some_and(|device| device.driver_name() == Some("nvidia"))
    });
    finding = finding.remedy(if by_nvidia { MOVES_THE_FAULT } else { FIXED_KERNEL });
    let confidential = support::confidential(snapshot);
    let consent = if confidential.is_empty() {
        String::new()
    } else {
        let names = support::listed(confidential.iter().map(|one| support::tenant_text(one)), 3);
        format!(", to be agreed with {names}")
    };
    vec![finding.remedy(format!(
        "or boot without mem_encrypt=on, which SNP does not need{consent}; TSME in firmware can \
         keep main memory encrypted"
    ))]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::testing::{Host, fires, silent};
    use crate::observed::Observed;
    use crate::snapshot::kernel::Tristate;

    fn mapping() -> Host {
        Host::amd().edit(|snapshot| snapshot.kernel.iommu_dma_ops = Observed::Known(true))
    }

    #[test]
    fn mapped_addresses_under_sme() {
        let finding = fires(&RULE, &mapping().sme(Tristate::Yes));
        assert_eq!(finding.severity, Severity::Error);
        assert!(finding.remedies[0].contains("alone moves the fault"));
        assert!(finding.remedies[1].starts_with("or boot without mem_encrypt=on"));
        let amd = mapping().sme(Tristate::Yes).gpus(|gpu| {
            gpu.driver = Observed::Known("amdgpu".to_owned());
        });
        assert_eq!(fires(&RULE, &amd).remedies[0], FIXED_KERNEL);
    }

    #[test]
    fn not_without_sme_nor_with_the_fix_nor_for_raw_addresses() {
        silent(&RULE, &mapping());
        silent(&RULE, &mapping().sme(Tristate::Yes).kernel("7.0.2"));
        silent(&RULE, &Host::amd().sme(Tristate::Yes));
    }
}
