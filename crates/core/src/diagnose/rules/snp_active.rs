//! PW0401: SNP is on: no untranslated device.

use super::support;
use crate::code::SNP_ACTIVE;
use crate::diagnose::finding::{Finding, Severity};
use crate::diagnose::{Context, Rule};
use crate::judge::Confidence;
use crate::judge::domain::mode_zero_allowed;
use crate::snapshot::kernel::{KernelVersion, Tristate};

pub(super) const RULE: Rule = Rule {
    code: SNP_ACTIVE,
    title: "SEV-SNP is on: the IOMMU accepts no untranslated device",
    page: "\
SEV-SNP gives every page of memory an owner and has the IOMMU check it. One of its rules: a
device-table entry must have a page table. An identity domain has none, so SNP and identity exclude
each other on every kernel up to 7.2, and from 7.3 on unless every IOMMU unit reports EFR2 bit 13
(SNP page mode 0).

What a write of `identity` to a group's `type` is expected to do on an SNP host, by this project's
reading of each release:

- kernels 6.9 to 6.12 refuse it with `ENOMEM`, and the group stays as it is;
- kernels **6.13 to 6.19.9 accept it**, the file reads `identity`, and the IOMMU then rejects every
  DMA of the device (`ILLEGAL_DEV_TABLE_ENTRY`), so that its driver fails to start. Distributions
  may carry the fix earlier; no host may rely on it;
- 6.19.10, 7.0 and later refuse it with `EINVAL`; 7.3 allows it with EFR2 bit 13.

Booting with pass-through is no way round: the kernel then gives SNP up, and with it every
confidential guest.

How it was seen: each source is in the evidence. `/sys/module/kvm_amd/parameters/sev_snp` = `Y` and
the boot line `AMD-Vi: IOMMU SNP support enabled.` prove it; `N` or a missing file proves nothing.

What remains open for peer access: whatever keeps translation on. A translating entry for a peer is
what SNP wants; one report tells of peer access across root complexes that works on an SNP host. On
an SNP host, how the ownership checks treat requests to peer memory was not measured (gate
rmp-mmio).

What SNP does not need: `mem_encrypt=on`.

Sources: `drivers/iommu/amd/init.c`, `iommu_snp_enable`; `drivers/iommu/amd/iommu.c` (commits
4402f2627d30, ba17de98545d, cb2860ad6c4f); AMD I/O Virtualization Technology specification. Derived
from source, not measured on SNP hardware.",
    check,
};

/// What this kernel does with a write of `identity` on an SNP host. `mode_zero` is whether kernel
/// and every unit allow untranslated entries.
pub fn identity_write(version: Option<KernelVersion>, mode_zero: Tristate) -> &'static str {
    let Some(version) = version else {
        return "not known for this kernel";
    };
    let number = (version.major, version.minor, version.patch);
    match number {
        (7, 3.., _) | (8.., _, _) => match mode_zero {
            Tristate::Yes => "expected to be allowed: every unit reports EFR2 bit 13",
            Tristate::No => "expected to be refused (EINVAL)",
            Tristate::Unknown => {
                "expected to be refused (EINVAL), unless every unit reports EFR2 bit 13"
            }
        },
        (7, _, _) | (6, 19, 10..) | (6, 20.., _) => "expected to be refused (EINVAL)",
        (6, 13..=19, _) => {
            "expected to be accepted, and then all DMA of the device is rejected \
             (ILLEGAL_DEV_TABLE_ENTRY), unless the kernel carries ba17de98545d"
        }
        (6, 9..=12, _) => "expected to be refused (ENOMEM): the group stays as it is",
        _ => "not known: upstream kernels before 6.9 host no SNP",
    }
}

fn check(context: &Context<'_>) -> Vec<Finding> {
    let snapshot = context.snapshot;
    let snp = &snapshot.memory_encryption.snp;
    if snp.state != Tristate::Yes {
        return Vec::new();
    }
    let mode_zero = mode_zero_allowed(snapshot);
    let outcome = identity_write(snapshot.kernel.version(), mode_zero);
    let title = if mode_zero == Tristate::Yes {
        "SEV-SNP is on, and this kernel and its IOMMU allow untranslated devices beside it"
    } else {
        "SEV-SNP is on: no device of this host may be untranslated"
    };
    let finding = Finding::new(RULE.code, Severity::Info, Confidence::Certain, title).about("host");
    let finding = support::with_established(finding, &snp.evidence);
    let mut finding = support::with_release(finding, snapshot)
        .seen("a write of identity, by this release", outcome);
    for tenant in support::confidential(snapshot).iter().take(4) {
        finding = finding.seen(
            format!("tenant {}", support::tenant_text(tenant)),
            format!("confidential, running: {}", tenant.running),
        );
    }
    if mode_zero != Tristate::Yes {
        finding = finding.remedy(
            "do not write identity to any group and do not boot with pass-through; keep to roads \
             with translation on (peerway roads)",
        );
    }
    vec![finding]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::testing::{Host, fires, silent, value};

    #[track_caller]
    fn check_write(release: &str, mode_zero: Tristate, expected: &str) {
        let outcome = identity_write(KernelVersion::from_release(release), mode_zero);
        assert!(outcome.starts_with(expected), "{release}: {outcome}");
    }

    #[test]
    fn what_each_kernel_does() {
        let no = Tristate::No;
        check_write("6.8.12", no, "not known: upstream");
        check_write("6.9.0", no, "expected to be refused (ENOMEM)");
        check_write("6.12.48+deb13", no, "expected to be refused (ENOMEM)");
        check_write("6.13.0", no, "expected to be accepted, and then");
        check_write("6.14.11-5-bpo12-pve", no, "expected to be accepted, and then");
        check_write("6.19.9", no, "expected to be accepted, and then");
        check_write("6.19.10", no, "expected to be refused (EINVAL)");
        check_write("7.0.14", no, "expected to be refused (EINVAL)");
        check_write("7.3.4", no, "expected to be refused (EINVAL)");
        check_write("7.3.4", Tristate::Yes, "expected to be allowed");
        check_write("8.0.0", Tristate::Unknown, "expected to be refused (EINVAL), unless");
        check_write("next", no, "not known");
    }

    #[test]
    fn an_snp_host() {
        let finding = fires(&RULE, &Host::amd().snp(Tristate::Yes).guest(&[]));
        assert!(value(&finding, "a write of identity").starts_with("expected to be accepted"));
        assert!(value(&finding, "tenant vm:132").contains("running: yes"));
        assert_eq!(value(&finding, "sev_snp"), "yes");
    }

    #[test]
    fn off_or_unknown() {
        silent(&RULE, &Host::amd());
        silent(&RULE, &Host::amd().snp(Tristate::Unknown));
    }
}
