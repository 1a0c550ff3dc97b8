//! PW0611: loud lines that mean nothing.

use super::fault_support as log;
use crate::code::LOUD_LINES;
use crate::diagnose::finding::{Finding, Severity};
use crate::diagnose::{Context, Rule};
use crate::judge::Confidence;
use crate::snapshot::faults::DriverEvent;

pub(super) const RULE: Rule = Rule {
    code: LOUD_LINES,
    title: "loud lines of the driver that mean nothing by themselves",
    page: "\
Some lines of NVIDIA's driver read like failures and are none:

- `left-over mappings in IOVAS` and `Assertion failed: pIOVAS != NULL`: cleaning up of an address
  space that the driver keeps inside itself. It has nothing to do with the IOMMU; the lines follow
  peer-to-peer tests that passed.
- `Assertion failed` and `Check failed` with a status: a check inside the driver. With an Xid or a
  failed start beside it, that is the finding; alone, it says little.

How it was seen: such lines in the kernel log, without an IOMMU event, an Xid or a failed start.

Why it matters: the words \"IOVAS\" and \"mapping\" send people to the IOMMU, where nothing is wrong.

What helps: nothing has to be done. A data-checking test of peer access says whether it works.

Sources: `src/nvidia/src/kernel/mem_mgr/io_vaspace.c`, `iovaspaceDestruct_IMPL`.",
    check,
};

/// What the driver says while it cleans up, or checks itself.
const NOISE: [&str; 2] = ["cleanup-noise", "assertion"];

fn check(context: &Context<'_>) -> Vec<Finding> {
    let Some(facts) = log::facts(context) else { return Vec::new() };
    let something = facts.events > 0
        || facts.of_kind("xid").next().is_some()
        || !facts.init_failures().is_empty();
    let events: Vec<&DriverEvent> =
        facts.of_kind("nvidia").filter(|event| NOISE.iter().any(|code| event.is(code))).collect();
    if something || events.is_empty() {
        return Vec::new();
    }
    let title = "the driver complains about itself; no IOMMU event and no failed transfer is seen";
    let finding = Finding::new(RULE.code, Severity::Info, Confidence::Probable, title)
        .about_all(log::subjects(&events));
    vec![log::with_events(finding, facts, &events)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::fault_testing::{event, faulting, logged, xid};
    use crate::diagnose::rules::testing::{fires, silent};
    use crate::snapshot::faults::{FaultClass, Weight};

    #[test]
    fn noise_alone_is_named_noise() {
        let noise = event("nvidia", "cleanup-noise", "NVRM: 4 left-over mappings in IOVAS 0x3e00");
        assert_eq!(fires(&RULE, &logged(vec![], vec![noise.clone()])).severity, Severity::Info);
        silent(&RULE, &logged(vec![faulting(FaultClass::GpuOther, 1)], vec![noise.clone()]));
        silent(&RULE, &logged(vec![], vec![noise, xid("79", Weight::Critical, "x")]));
    }
}
