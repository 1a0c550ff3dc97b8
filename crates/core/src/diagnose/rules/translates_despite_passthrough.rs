//! PW0103: passed through by default, yet this group translates.

use std::collections::BTreeSet;

use super::boot::{self, COMMAND_LINE};
use super::support;
use crate::code::TRANSLATES_DESPITE_PASSTHROUGH;
use crate::diagnose::finding::{Finding, Severity, device_file, group_file};
use crate::diagnose::{Context, Rule};
use crate::judge::Confidence;
use crate::observed::Observed;
use crate::snapshot::iommu::DomainType;

pub(super) const RULE: Rule = Rule {
    code: TRANSLATES_DESPITE_PASSTHROUGH,
    title: "the host passes devices through by default, yet this group translates",
    page: "\
The command line or the boot banner says that devices are passed through, and the group's own `type`
file reads `DMA` or `DMA-FQ`. The file decides: requests of this group are translated, and raw peer
addresses fault as on any translating host.

Reasons: the device is not trusted, because it sits behind an external port
(Thunderbolt, USB4) or firmware marked the port as external-facing, and the kernel then insists on
translation whatever the command line says; somebody wrote the type; on Intel the unit has no
pass-through mode, and the kernel fell back to translation; the word on the command line was
overruled by a later one.

How it was seen: the groups of GPUs and of declared accelerators, their `type`, the word or the
banner.

Why it matters: `iommu=pt` may be set already, and faults still occur. Setting it again, or looking
for the fault in firmware, leads nowhere.

What helps: for a trusted device in a group of its own tenant, the type of that group can be changed
with the driver unbound (`peerway roads`). For an untrusted device the kernel refuses every type but
`DMA`; there, only a peer map could serve, and nobody tried one on an external device.

What not to believe: the banner, in both directions. It names the default, not any group's state.

Sources: `drivers/iommu/iommu.c`, `iommu_get_def_domain_type`; `drivers/iommu/amd/iommu.c`,
`amd_iommu_def_domain_type`; `drivers/iommu/intel/iommu.c`, `device_def_domain_type`.",
    check,
};

const BANNER: &str = "Default domain type: Passthrough";

fn check(context: &Context<'_>) -> Vec<Finding> {
    let snapshot = context.snapshot;
    let word = boot::passthrough(snapshot);
    let banner = support::log_lines(snapshot, &[BANNER]);
    if word.is_none() && banner.is_empty() {
        return Vec::new();
    }
    let translating: Vec<_> = snapshot
        .accelerated()
        .into_iter()
        // A guest's devices are in the guest's own domain.
        .filter(|device| !device.is_vfio())
        .filter(|device| snapshot.domain_of(device).known().is_some_and(DomainType::translates))
        .collect();
    if translating.is_empty() {
        return Vec::new();
    }
    let groups: BTreeSet<u32> =
        translating.iter().filter_map(|device| device.group.known().copied()).collect();
    let mut finding = Finding::new(
        RULE.code,
        Severity::Warning,
        Confidence::Certain,
        format!(
            "group {} translates although devices are passed through by default",
            support::listed(&groups, 4)
        ),
    )
    .about_all(groups.iter().map(|group| format!("group {group}")))
    .about_all(translating.iter().map(|device| device.address));
    if let Some(word) = word {
        finding = finding.seen(COMMAND_LINE, word.text);
    }
    finding = support::with_log(finding, &banner);
    for group in groups.iter().filter_map(|id| snapshot.group(*id)) {
        finding = finding.observed(group_file(group.id, "type"), &group.domain);
    }
    for device in &translating {
        if let Observed::Known(removable) = &device.removable {
            finding = finding.seen(device_file(device.address, "removable"), removable);
        }
    }
    let external = translating.iter().all(|device| support::is_external(snapshot, device.address));
    vec![finding.remedy(if external {
        "the kernel keeps untrusted devices translated: use a slot inside the case"
    } else {
        "the group's own type counts: change that of a trusted device's group, or use a peer map \
         (peerway roads)"
    })]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::testing::{A, B, Host, fires, known, silent, value};

    #[test]
    fn an_external_gpu_translates() {
        let host = Host::amd().boot("iommu=pt").gpus(|gpu| gpu.removable = known("removable"));
        let finding = fires(&RULE, &host);
        assert_eq!(finding.subjects, ["group 11", "group 12", A, B]);
        assert_eq!(value(&finding, "removable"), "removable");
        assert!(finding.remedies[0].contains("a slot inside the case"));
    }

    #[test]
    fn the_banner_alone() {
        let host = Host::amd().logged("iommu: Default domain type: Passthrough");
        assert!(value(&fires(&RULE, &host), "kernel log").ends_with("Passthrough"));
    }

    #[test]
    fn identity_groups_and_translating_hosts() {
        silent(&RULE, &Host::amd().boot("iommu=pt").identity());
        silent(&RULE, &Host::amd().logged("iommu: Default domain type: Translated"));
        silent(&RULE, &Host::amd().boot("iommu=pt").guest(&[A, B]));
    }
}
