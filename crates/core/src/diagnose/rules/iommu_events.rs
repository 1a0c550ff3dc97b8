//! PW0607: IOMMU events that are no page faults, SMMU and reverse-map events.

use super::fault_support::{self as log, times};
use crate::code::IOMMU_EVENTS;
use crate::diagnose::finding::{Finding, Severity};
use crate::diagnose::{Context, Rule};
use crate::judge::Confidence;
use crate::snapshot::faults::FaultClass;

pub(super) const RULE: Rule = Rule {
    code: IOMMU_EVENTS,
    title: "the IOMMU reported something other than a page fault",
    page: "\
The log holds events that are no page faults of the usual kind:

- `ILLEGAL_DEV_TABLE_ENTRY`: the device's table entry itself is refused, and with it everything that
  the device sends. On a host with SEV-SNP it follows from an identity domain; after a suspend, from
  a driver's set-up.
- `INVALID_DEVICE_REQUEST`, interrupt-remapping faults: a request into a range where none may go.
- `IOTLB_INV_TIMEOUT`, invalidation time-outs: a device did not answer a flush of its own
  translation cache; it hangs, or is in reset.
- `Completion-Wait loop timed out`: the IOMMU itself does not answer. The host is in trouble; plans
  are off until it was restarted.
- `RMP_PAGE_FAULT`: SEV-SNP's reverse map refused a write into memory that belongs to a guest. The
  translation had let it pass. Inside a device's memory region it would be the first known sign that
  the reverse map refuses peer memory.
- Arm SMMU events: the same facts in another dialect.

How it was seen: the events of the kernel log, by requester and kind.

Why it matters: none of them is raw peer access under translation, and what helps there does not
help here.

What helps: the lines just before the first of them; what was changed or reset then.

Sources: `drivers/iommu/amd/iommu.c`, `iommu_print_event`; `drivers/iommu/intel/dmar.c`,
`qi_check_fault`; `drivers/iommu/arm`; AMD document 48882.",
    check,
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let Some(facts) = log::facts(context) else { return Vec::new() };
    let mut found = Vec::new();
    for (class, what) in [
        (FaultClass::Event, "of the IOMMU that are no page faults"),
        (FaultClass::Smmu, "of an Arm SMMU"),
        (FaultClass::Rmp, "of SEV-SNP's reverse map: writes into a guest's memory were refused"),
    ] {
        let rows = log::rows(facts, &[class]);
        if rows.is_empty() {
            continue;
        }
        let count = times(log::count(&rows), "event", "events");
        let in_region = class == FaultClass::Rmp && rows.iter().any(|one| !one.hits.is_empty());
        let title = if in_region {
            format!(
                "{count} of SEV-SNP's reverse map at a device's memory region: never seen so far"
            )
        } else {
            format!("{count} {what}")
        };
        let finding = Finding::new(RULE.code, Severity::Warning, log::confidence(&rows), title)
            .about_all(log::names(&rows));
        let finding = log::with_rows(finding, facts, &rows);
        found.push(finding.remedy("look at the lines just before the first of them"));
    }
    if facts.stuck > 0 {
        let title = "an IOMMU does not complete its commands: the host is in trouble";
        let value = format!("said {} times", facts.stuck);
        let finding = Finding::new(RULE.code, Severity::Error, Confidence::Certain, title)
            .about("host")
            .seen(facts.source.clone(), value)
            .remedy("change nothing on this host before it was restarted");
        found.push(finding);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::fault_testing::{faulting, hit, logged};
    use crate::diagnose::rules::testing::{B, all, fires, silent};
    use crate::observed::Observed::Known;

    #[test]
    fn each_kind_of_event_has_its_finding() {
        let rows = [FaultClass::Event, FaultClass::Smmu, FaultClass::Rmp]
            .map(|class| faulting(class, 1))
            .to_vec();
        assert_eq!(all(&RULE, &logged(rows, vec![])).len(), 3);
        silent(&RULE, &logged(vec![faulting(FaultClass::GpuOther, 1)], vec![]));
    }

    #[test]
    fn the_reverse_map_at_a_region_is_told_apart() {
        let mut row = faulting(FaultClass::Rmp, 1);
        row.hits = vec![hit(B, 1)];
        assert!(fires(&RULE, &logged(vec![row], vec![])).title.contains("never seen"));
    }

    #[test]
    fn a_stuck_iommu_is_an_error() {
        let host = logged(vec![], vec![]).edit(|snapshot| {
            if let Known(facts) = &mut snapshot.faults {
                facts.stuck = 1;
            }
        });
        assert_eq!(fires(&RULE, &host).severity, Severity::Error);
    }
}
