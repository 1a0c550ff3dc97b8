//! PW0602: refused requests of a GPU that are not peer access.

use super::fault_support::{self as log, times};
use crate::code::GPU_FAULTS;
use crate::diagnose::finding::{Finding, Severity};
use crate::diagnose::{Context, Rule};
use crate::snapshot::faults::FaultClass;

pub(super) const RULE: Rule = Rule {
    code: GPU_FAULTS,
    title: "the IOMMU refused a GPU's requests, and they are no peer access",
    page: "\
A GPU's requests were refused at addresses that lie in no other device's memory region. That is
another class of trouble than peer access under translation: memory that was unmapped while the GPU
still used it, a driver or firmware that addresses wrongly, a device that goes on after its guest
has ended, an integrated GPU with a shared page table.

How it was seen: each fault's address was looked up in the memory regions of all devices; where a
log came without them, the addresses do not look like such regions.

Why it matters: taking the translation away is no cure here. The IOMMU stops stray requests; without
it a stray write lands in host memory, silently.

If peer access fails beside it (a peer test returns zeros, a job hangs), the driver's own way of
peer access is the likely cause: boards whose driver offers peer access that does not work fault at
addresses of the size of their own memory.

What helps: the first fault and what happened just before it; another driver version; for failing
peer access, running without it.

What not to believe: that every GPU fault in an IOMMU's log is about peer access.

Sources: `drivers/iommu/amd/iommu.c`; `drivers/iommu/dma-iommu.c`; public reports of boards with
such faults.",
    check,
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let Some(facts) = log::facts(context) else { return Vec::new() };
    let rows = log::rows(facts, &[FaultClass::GpuOther]);
    if rows.is_empty() {
        return Vec::new();
    }
    let title = format!(
        "{} of GPUs refused by the IOMMU, not at a peer's memory",
        times(log::count(&rows), "request", "requests")
    );
    let finding = Finding::new(RULE.code, Severity::Warning, log::confidence(&rows), title)
        .about_all(log::names(&rows));
    vec![
        log::with_rows(finding, facts, &rows)
            .remedy("look at what the log says just before the first of them")
            .remedy("leave the translation on: it is what keeps these requests out of memory"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::fault_testing::{faulting, logged};
    use crate::diagnose::rules::testing::{A, fires, silent, value};

    #[test]
    fn a_gpu_outside_every_region() {
        let finding = fires(&RULE, &logged(vec![faulting(FaultClass::GpuOther, 1)], vec![]));
        assert_eq!(finding.subjects, [A]);
        assert_eq!(finding.title, "1 request of GPUs refused by the IOMMU, not at a peer's memory");
        assert!(value(&finding, A).contains("from 0x24000000000 to 0x24000001000"));
    }

    #[test]
    fn peer_access_is_another_finding() {
        silent(&RULE, &logged(vec![faulting(FaultClass::PeerAccess, 1)], vec![]));
    }
}
