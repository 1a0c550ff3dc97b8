//! PW0606: Xids, and errors of the switches of `NVLink`.

use super::fault_support as log;
use super::support;
use crate::code::XID;
use crate::diagnose::finding::{Finding, Severity};
use crate::diagnose::{Context, Rule};
use crate::judge::Confidence;
use crate::snapshot::faults::{DriverEvent, FaultFacts, Weight};

pub(super) const RULE: Rule = Rule {
    code: XID,
    title: "the NVIDIA driver reported an Xid, or an NVSwitch an SXid",
    page: "\
An Xid is an error that the NVIDIA driver reports about a GPU, an SXid one of an NVSwitch. The
number says what kind of error it is; only few of them bear on peer access.

How it was seen: `NVRM: Xid` and `SXid` lines of the kernel log, by number and device, each counted.

How to read it: 31 is a page fault in the GPU's own memory management, at a virtual address of one
process; it is no IOMMU event, whatever its words; an absent peer mapping can be behind it. 32 and
the copy engine errors (39 to 41, 70 to 72, 75 to 77, 85, 126 to 135) can follow from data that
never arrived. 79 says that the GPU no longer answers; a hot-plug or link message of the port above
just before it is the cause. 119 and 120 are the GPU's system processor. 143 is a failed start. 167
is a PCIe time-out, which a blocked read can cause. 154 only states the recovery that is wanted: the
Xid before it is the cause. Memory errors (48, 63, 64, 92, 94, 95, 140, 171, 172) and NVLink errors
(74, 136, 137, 144 to 150) have to be excluded first and are not about PCIe.

An SXid concerns the NVLink fabric. PCIe access control and the IOMMU play no part in its traffic.

What helps: the first Xid of a series and the lines just before it; the recovery that 154 names.

What not to believe: that an Xid with the words \"page fault\" is an IOMMU fault.

Sources: `src/common/sdk/nvidia/inc/nverror.h` of the open kernel modules; NVIDIA Xid catalog.",
    check,
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let Some(facts) = log::facts(context) else { return Vec::new() };
    [xids(facts), sxids(facts)].into_iter().flatten().collect()
}

/// The heaviest first, then the earliest: what only states a recovery comes last.
fn xids(facts: &FaultFacts) -> Option<Finding> {
    let mut events: Vec<&DriverEvent> = facts.of_kind("xid").collect();
    let rank = |event: &DriverEvent| match event.weight {
        Some(Weight::Critical) => 0_u8,
        Some(Weight::High) => 1,
        Some(Weight::Medium) => 2,
        None | Some(Weight::Elsewhere) => 3,
        Some(Weight::Low) => 4,
        Some(Weight::Advice) => 5,
    };
    events.sort_by_key(|event| (rank(event), event.first.line));
    let first = events.first()?;
    let severity = match rank(first) {
        0 => Severity::Error,
        1 | 2 => Severity::Warning,
        _ => Severity::Info,
    };
    let number = first.code.as_deref().unwrap_or("?");
    let title = match &first.meaning {
        Some(meaning) if meaning.len() < 80 => format!("Xid {number}: {meaning}"),
        _ => format!("Xid {number}"),
    };
    let numbers: Vec<String> = events
        .iter()
        .map(|event| {
            let device = event.device.map(|device| format!(" of {device}")).unwrap_or_default();
            format!("{}{device} ({})", event.code.as_deref().unwrap_or("?"), event.count)
        })
        .collect();
    let finding = Finding::new(RULE.code, severity, Confidence::Certain, title)
        .about_all(log::subjects(&events))
        .seen("numbers, devices, counts", support::cut(&numbers.join(", ")));
    let finding = log::with_events(finding, facts, &events);
    Some(finding.remedy("look at the lines just before the first of them; 154 names a recovery"))
}

fn sxids(facts: &FaultFacts) -> Option<Finding> {
    let events: Vec<&DriverEvent> = facts.of_kind("sxid").collect();
    let first = events.first()?;
    let fatal = events.iter().any(|event| event.text.contains(", Fatal"));
    let severity = if fatal { Severity::Error } else { Severity::Info };
    let title = format!(
        "an NVSwitch reported SXid {}: the NVLink fabric, not PCIe",
        first.code.as_deref().unwrap_or("?")
    );
    let finding = Finding::new(RULE.code, severity, Confidence::Certain, title)
        .about_all(log::subjects(&events));
    let finding = log::with_events(finding, facts, &events);
    Some(finding.remedy("look at the fabric manager's log; PCIe settings play no part in this"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::fault_testing::{event, logged, xid};
    use crate::diagnose::rules::testing::{A, fires, silent, value};

    #[test]
    fn the_cause_leads_and_not_the_advice() {
        let advice = xid("154", Weight::Advice, "the wanted recovery action changed");
        let cause = xid("79", Weight::Critical, "the GPU fell off the bus");
        let finding = fires(&RULE, &logged(vec![], vec![advice, cause]));
        assert_eq!(finding.title, "Xid 79: the GPU fell off the bus");
        assert_eq!(finding.severity, Severity::Error);
        assert_eq!(finding.subjects, [A]);
        assert!(value(&finding, "numbers").starts_with("79 of 0000:01:00.0 (2)"));
    }

    #[test]
    fn switches_are_no_gpus() {
        let event = event("sxid", "22013", "SXid (PCI:0000:01:00.0): 22013, Non-fatal, Link 0");
        let finding = fires(&RULE, &logged(vec![], vec![event]));
        assert_eq!(finding.severity, Severity::Info);
        silent(&RULE, &logged(vec![], vec![]));
    }
}
