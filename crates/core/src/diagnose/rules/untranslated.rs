//! PW0216: untranslated: the device reaches all host memory.

use super::support;
use crate::code::UNTRANSLATED;
use crate::diagnose::finding::{Finding, Severity};
use crate::diagnose::{Context, Rule};

pub(super) const RULE: Rule = Rule {
    code: UNTRANSLATED,
    title: "the group passes addresses through: peers can be reached, and all host memory",
    page: "\
The requester's IOMMU group is `identity`: the IOMMU leaves its addresses as they are. Raw addresses
of peers pass the IOMMU; whether they arrive is the root complex's matter. It is the plain way to
peer access across it. It is also the widest: the same device can read and write all memory of the
host, of the kernel, of every virtual machine that is not confidential. Whoever controls the
device's firmware or its driver has that power, and so has a stray address from a fault.

How it was seen: the group's `type` file reads `identity`. It can come from the boot command line
(PW0102), from a demand of the IOMMU driver (AMD forces identity on devices with PASID where memory
is not encrypted), or from an operator who wrote it.

Why it matters: on a host for one tenant it is a choice. On a host where others run guests, their
isolation then rests on this device behaving well. Confidential guests keep the contents of their
memory, since it is encrypted against the host; AMD's SNP forbids the arrangement altogether, but
for EFR2 bit 13 under 7.3 (PW0205). With SME active, untranslated addresses of main memory carry the
encryption bit: a GPU of 47 bits is bounced through SWIOTLB for every transfer (from source, not
measured).

What helps: nothing needs to be done for peer access. To narrow it, a peer map gives a translating
group exactly the peers' memory and nothing else (`peerway roads`).

What not to believe: that the whole host must be switched to pass-through for this. It is a property
of single groups, lost at the next boot unless something sets it again before the driver binds.

Sources: `drivers/iommu/iommu.c`, `iommu_group_store_type`; `drivers/iommu/amd/iommu.c`,
`amd_iommu_def_domain_type`. That requests pass was measured in emulation, not on GPUs.",
    check,
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let Some(affected) = support::own(context, RULE.code) else { return Vec::new() };
    let snapshot = context.snapshot;
    let requesters = affected.requesters();
    let others = support::guests(snapshot);
    let devices = support::counted(requesters.len(), "device passes", "devices pass");
    let (severity, title) = match others.first() {
        Some(first) => (
            Severity::Warning,
            format!(
                "{devices} the IOMMU untranslated, on a host that runs {}",
                support::tenant_text(first)
            ),
        ),
        None => (
            Severity::Info,
            format!("{devices} the IOMMU untranslated: peers can be reached, and all memory"),
        ),
    };
    let finding = Finding::new(RULE.code, severity, affected.confidence(), support::title(&title))
        .about_all(&requesters);
    let mut finding = support::with_domains(finding, snapshot, &requesters);
    for other in others.iter().take(4) {
        finding = finding.seen(
            format!("tenant {}", other.id),
            format!("running: {}, confidential: {}", other.running, other.confidential),
        );
    }
    if !others.is_empty() {
        finding = finding.remedy(
            "a peer map gives translating groups the peers' memory and nothing else \
             (peerway roads)",
        );
    }
    vec![finding]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::VendorDevice;
    use crate::diagnose::rules::testing::{A, B, Host, fires, silent, value};
    use crate::judge::Confidence;
    use crate::judge::Verdict;
    use crate::observed::Observed;
    use crate::snapshot::kernel::Tristate;

    #[test]
    fn identity_groups() {
        let finding = fires(&RULE, &Host::amd().identity());
        assert_eq!((finding.severity, finding.subjects.len()), (Severity::Info, 2));
        assert_eq!(value(&finding, "groups/11/type"), "identity");
    }

    #[test]
    fn beside_a_guest_it_is_a_warning() {
        let host = Host::amd().identity().guest(&[]);
        let finding = fires(&RULE, &host);
        assert_eq!(finding.severity, Severity::Warning);
        assert!(finding.title.contains("vm:132 (sandbox)"));
    }

    #[track_caller]
    fn check_first(host: &Host, confidence: Confidence, why: &str) {
        let pairs = crate::diagnose::pairs::judge_all(&host.snapshot, &host.scope);
        let pair = &pairs[0];
        assert_eq!((pair.verdict, pair.confidence), (Verdict::Works, confidence), "{pair:#?}");
        assert!(pair.reason.contains(why), "{}", pair.reason);
    }

    #[test]
    fn what_nobody_measured_is_possible_at_most() {
        let identity = Host::amd().identity();
        check_first(&identity, Confidence::Probable, "the raw address passes");
        let beside_snp = identity.clone().snp(Tristate::Yes).kernel("7.3.4").edit(|snapshot| {
            if let Observed::Known(units) = &mut snapshot.iommu.units {
                units.iter_mut().for_each(|unit| unit.amd_efr2 = Observed::Known(1 << 13));
            }
        });
        check_first(&beside_snp, Confidence::Possible, "was measured by nobody");
        let radeon = identity.gpus(|gpu| {
            gpu.ids = Observed::Known(VendorDevice { vendor: 0x1002, device: 0x740f });
            gpu.driver = Observed::Known("amdgpu".to_owned());
        });
        check_first(&radeon, Confidence::Possible, "CONFIG_PCI_P2PDMA");
    }

    #[test]
    fn translating_groups_and_guests() {
        silent(&RULE, &Host::amd());
        silent(&RULE, &Host::amd().identity().guest(&[A, B]));
    }
}
