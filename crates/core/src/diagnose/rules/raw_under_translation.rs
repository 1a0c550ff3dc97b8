//! PW0201: raw peer addresses under a translating domain.

use super::support;
use crate::code::RAW_UNDER_TRANSLATION;
use crate::diagnose::finding::{Finding, Severity};
use crate::diagnose::{Context, Rule};
use crate::judge::Verdict;
use crate::judge::encryption::kernel_has_fix;
use crate::snapshot::iommu::IommuVendor;
use crate::snapshot::kernel::Tristate;

pub(super) const RULE: Rule = Rule {
    code: RAW_UNDER_TRANSLATION,
    title: "peer requests carry raw bus addresses into a translating IOMMU domain",
    page: "\
A GPU reaches a peer's memory by an address. Where its IOMMU group has a translating domain (`type`
reads `DMA` or `DMA-FQ`), the IOMMU looks every address of the GPU up in that domain's page table.
NVIDIA's driver on kernels from 6.12 on (or a driver told not to map, `DmaRemapPeerMmio: 0`), and
every peer-to-peer fork of it on any kernel, hands the GPU the peer's raw bus address, for which no
entry exists. The request is refused; the kernel logs a page fault at an address inside the peer's
memory region; the data is lost. The GPU that wrote notices nothing, since memory writes on PCIe are
posted, and one that read gets zeros or ones. The vendor supports no peer access under a translating
IOMMU.

The requester's own group decides, so each direction of a pair has its own verdict.

How it was seen: the group's `type`, the driver that is bound, and what that driver does on this
kernel; each is in the evidence.

What lies about it: `nvidia-smi topo -p2p` says OK, `cudaDeviceCanAccessPeer` returns 1, NCCL
chooses the peer transport. None of them asks the IOMMU.

What helps: a road that gives the peer's address an entry (a peer map, a mapping driver), one that
takes the translation away for these groups only (identity; never on an SNP host), or living without
peer access (`NCCL_P2P_DISABLE=1` covers NCCL alone, and takes NVLink away from it too).

Sources: `drivers/iommu/dma-iommu.c` and commit b5c58b2fdc42 (\"dma-mapping: direct calls for
dma-iommu\", 6.12); `kernel-open/nvidia/nv-dma.c`, `nv_dma_use_map_resource`. The loss itself was
measured on real kernels with emulated devices, not on GPUs.",
    check,
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let Some(affected) = support::own(context, RULE.code) else { return Vec::new() };
    let snapshot = context.snapshot;
    let (severity, title) = if affected.any(Verdict::Broken) {
        let broken = affected.counted();
        (
            Severity::Error,
            format!("{broken} cannot exchange data: raw peer addresses meet a translating domain"),
        )
    } else {
        // NVLink may carry what PCIe cannot.
        let open = affected.counted();
        (
            Severity::Warning,
            format!("{open} cannot exchange data over PCIe: raw peer addresses under translation"),
        )
    };
    let requesters = affected.requesters();
    let finding =
        Finding::new(RULE.code, severity, affected.confidence(), title).about_all(&requesters);
    let finding = support::with_domains(finding, snapshot, &requesters);
    let finding = affected.routes(finding);
    let finding = support::with_driver(support::with_release(finding, snapshot), snapshot);
    let mut finding = finding.remedy(support::meanwhile(affected.pairs.iter().copied()));
    if requesters.iter().any(|address| support::is_external(snapshot, *address)) {
        finding = finding.remedy(
            "an external GPU's group stays translated: use a slot inside the case (PW0804)",
        );
    } else if snapshot.memory_encryption.snp.state == Tristate::No {
        finding = finding.remedy("identity domains for exactly these groups (peerway roads)");
    }
    // One direction of a pair may pass: no program is served by that.
    let one_way = affected.pairs.iter().any(|pair| {
        context.pairs.iter().any(|other| {
            (other.from, other.to) == (pair.to, pair.from)
                && matches!(other.verdict, Verdict::Works | Verdict::Impaired)
        })
    });
    if one_way {
        finding = finding.remedy(
            "programs use both directions: every GPU's own group has to let its requests pass",
        );
    }
    let carries_bit = snapshot.iommu_vendor() == Some(IommuVendor::Amd)
        && snapshot.memory_encryption.sme.state != Tristate::No
        && kernel_has_fix(snapshot) != Tristate::Yes;
    let external = requesters.iter().all(|address| support::is_external(snapshot, *address));
    vec![finding.remedy(if external {
        "a peer map keeps translation on; nobody tried one on an external device (peerway roads)"
    } else if carries_bit {
        "a peer map or a mapping driver keeps translation on; both are closed while SME is active \
         on this kernel (PW0402)"
    } else {
        "a peer map or a mapping driver keeps translation on (peerway roads)"
    })]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::testing::{A, B, Host, fires, silent, value};

    #[test]
    fn translating_groups_and_raw_addresses() {
        let finding = fires(&RULE, &Host::amd());
        assert_eq!(finding.severity, Severity::Error);
        assert_eq!(finding.subjects, [A, B]);
        assert_eq!(value(&finding, "iommu_groups/11/type"), "DMA-FQ");
        assert_eq!(value(&finding, "pair 0000:01:00.0"), "turns: two host bridges");
        assert!(finding.remedies.iter().any(|text| text.contains("identity domains")));
    }

    #[test]
    fn identity_is_no_remedy_on_an_snp_host() {
        for state in [Tristate::Yes, Tristate::Unknown] {
            let finding = fires(&RULE, &Host::amd().snp(state));
            assert!(!finding.remedies.iter().any(|text| text.contains("identity domains")));
        }
    }

    #[test]
    fn other_processors_are_less_sure() {
        let arm = Host::amd().edit(|snapshot| {
            snapshot.cpu.vendor = crate::observed::Observed::Known("ARM".to_owned());
        });
        let pairs = crate::diagnose::pairs::judge_all(&arm.snapshot, &arm.scope);
        assert_eq!(pairs[0].confidence, crate::judge::Confidence::Possible);
        assert!(pairs[0].reason.ends_with("(read for x86)"), "{}", pairs[0].reason);
    }

    #[test]
    fn one_direction_is_not_enough() {
        let mixed = Host::amd().edit(|snapshot| {
            snapshot.groups[0].domain =
                crate::observed::Observed::Known(crate::snapshot::iommu::DomainType::Identity);
        });
        assert!(fires(&RULE, &mixed).remedies.iter().any(|text| text.contains("both directions")));
        let both = fires(&RULE, &Host::amd());
        assert!(!both.remedies.iter().any(|text| text.contains("both directions")));
    }

    #[test]
    fn external_devices_stay_translated() {
        let external = Host::amd().device(A, |gpu| {
            gpu.removable = crate::observed::Observed::Known("removable".to_owned());
        });
        let remedies = fires(&RULE, &external).remedies.join("\n");
        assert!(remedies.contains("a slot inside the case (PW0804)"), "{remedies}");
        assert!(!remedies.contains("identity domains"), "{remedies}");
        // The port above the enclosure says it for what lies below.
        let below = Host::amd().device(crate::diagnose::rules::testing::PORT, |port| {
            port.removable = crate::observed::Observed::Known("removable".to_owned());
        });
        assert!(!fires(&RULE, &below).remedies.join("\n").contains("identity domains"));
    }

    #[test]
    fn nvlink_is_not_switched_off_along_the_way() {
        let linked = Host::amd().board(0x2230).edit(|snapshot| {
            snapshot.nvlinks = crate::observed::Observed::Unreadable("not visible".to_owned());
        });
        let first = |host: &Host| fires(&RULE, host).remedies.remove(0);
        assert!(first(&linked).contains("NCCL_P2P_LEVEL=NVL, which keeps NVLink"));
        assert!(first(&Host::amd()).ends_with("switch for custom all-reduce"));
        assert!(!first(&Host::amd()).contains("NVL,"));
    }

    #[test]
    fn what_sme_closes_is_said() {
        let last = |host: &Host| fires(&RULE, host).remedies.pop().unwrap();
        assert!(last(&Host::amd().sme(Tristate::Yes)).contains("closed while SME"));
        assert!(!last(&Host::amd().sme(Tristate::Yes).kernel("7.0.14")).contains("closed"));
        assert!(!last(&Host::intel().sme(Tristate::Yes)).contains("closed"));
    }

    #[test]
    fn nothing_where_addresses_pass_or_are_mapped() {
        silent(&RULE, &Host::amd().identity());
        silent(&RULE, &Host::switch());
        silent(
            &RULE,
            &Host::amd().edit(|snapshot| {
                snapshot.kernel.iommu_dma_ops = crate::observed::Observed::Known(true);
            }),
        );
        // Across tenants no peer access is isolation.
        silent(&RULE, &Host::amd().guest(&[B]).across());
    }
}
