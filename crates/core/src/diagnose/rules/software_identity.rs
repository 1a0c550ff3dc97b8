//! PW0219: identity without hardware pass-through maps memory only.

use std::collections::BTreeSet;

use super::support;
use crate::code::SOFTWARE_IDENTITY;
use crate::diagnose::finding::{Finding, Severity};
use crate::diagnose::{Context, Rule};

pub(super) const RULE: Rule = Rule {
    code: SOFTWARE_IDENTITY,
    title: "this identity domain maps main memory only: peer addresses still fault",
    page: "\
Intel's IOMMU has a pass-through mode only where its extended capability register says so (bit 6).
On a unit without it, kernels such as 6.8 build an identity domain in software: a page table that
maps main memory and the regions that firmware reserved to themselves. Memory regions of devices are
not in it. The group's `type` reads `identity`, yet a raw peer address faults as under translation.
Kernels such as 6.14 refuse identity on such units and use a translating domain.

How it was seen: the group's `type`, and `ecap` of the group's unit below `/sys/class/iommu`.

Why it matters: it is the case in which the usual advice has been followed to the letter, and
nothing changed. The kernel log still carries DMAR faults at addresses inside a peer's memory
region.

What helps: the bit is set where the hardware has the mode and firmware shows it. Some boards have a
menu entry for it: look for `PassThrough DMA` or `Pass-through DMA` beside the VT-d entries, or the
like. Changing it needs a reboot, which stops every tenant. Otherwise a peer map, or a driver that
has peer memory mapped, serves without it.

What not to believe: the banner `Default domain type: Passthrough`, and `type` alone.

Sources: `drivers/iommu/intel/iommu.c`, `si_domain_init` (6.8) and `device_def_domain_type`; Intel
VT-d specification, extended capability register. Read in source, not measured on hardware.",
    check,
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let Some(affected) = support::own(context, RULE.code) else { return Vec::new() };
    let snapshot = context.snapshot;
    let requesters = affected.requesters();
    let mut finding = Finding::new(
        RULE.code,
        Severity::Error,
        affected.confidence(),
        format!(
            "{} although the groups are identity: memory only is mapped",
            affected.that("faults", "fault")
        ),
    )
    .about_all(&requesters);
    let names: BTreeSet<&String> = requesters
        .iter()
        .filter_map(|address| snapshot.device(*address)?.iommu_unit.known())
        .collect();
    let units = snapshot.iommu.units.known().map(Vec::as_slice).unwrap_or_default();
    for unit in units.iter().filter(|unit| names.contains(&unit.name)) {
        let ecap = unit.intel_ecap.as_ref().map(|ecap| format!("{ecap:x} (bit 6 is 0)"));
        finding =
            finding.observed(format!("/sys/class/iommu/{}/intel-iommu/ecap", unit.name), &ecap);
    }
    finding = support::with_domains(finding, snapshot, &requesters);
    vec![
        support::with_release(finding, snapshot)
            .remedy("a peer map or a mapping driver (peerway roads)")
            .remedy("look in firmware for \"PassThrough DMA\" or the like; a reboot is needed"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::testing::{Host, fires, silent, value};
    use crate::observed::Observed;

    fn with_ecap(ecap: u64) -> Host {
        Host::intel().identity().kernel("6.8.12-test").edit(|snapshot| {
            if let Observed::Known(units) = &mut snapshot.iommu.units {
                units[0].intel_ecap = Observed::Known(ecap);
            }
        })
    }

    #[test]
    fn a_unit_without_pass_through() {
        let finding = fires(&RULE, &with_ecap(0xf0_101a));
        assert_eq!(value(&finding, "dmar0"), "f0101a (bit 6 is 0)");
    }

    #[test]
    fn a_unit_with_it() {
        silent(&RULE, &with_ecap(0xf0_105a));
        silent(&RULE, &Host::amd().identity());
    }
}
