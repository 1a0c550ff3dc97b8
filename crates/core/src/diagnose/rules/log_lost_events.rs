//! PW0604: the log lost events.

use super::fault_support::{self as log, grouped};
use crate::code::LOG_LOST_EVENTS;
use crate::diagnose::finding::{Finding, Severity};
use crate::diagnose::{Context, Rule};
use crate::judge::Confidence;

pub(super) const RULE: Rule = Rule {
    code: LOG_LOST_EVENTS,
    title: "the kernel log does not hold every event",
    page: "\
Lines are missing from the kernel log, and the log itself says so. Counts of events are lower bounds
then, and a requester that does not appear may still have been refused.

How it was seen: three kinds of notice. `function: N callbacks suppressed` counts messages that a
rate limit dropped (ten in five seconds for one device with AMD, for all devices together with Intel
and Arm). An overflow of the event log means that the IOMMU itself had no room. Gaps in the sequence
numbers of `/dev/kmsg` mean that the ring buffer was overwritten before it was read.

Notices of other functions, such as `show_signal_msg`, concern other messages and are not counted
here.

What helps: reading the log soon and often (`peerway faults --follow`, `--mark` and `--since`); a
larger buffer (`log_buf_len=`); during a test, the tracepoint `iommu:io_page_fault`, which is
recorded before the rate limit.

What not to believe: that a quiet log is a quiet IOMMU, or that the number of lines is the number of
faults. A storm of ten thousand a second leaves two lines a second.

Sources: `lib/ratelimit.c`; `drivers/iommu/amd/iommu.c`; `drivers/iommu/intel/dmar.c`;
`Documentation/ABI/testing/dev-kmsg`.",
    check,
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let Some(facts) = log::facts(context) else { return Vec::new() };
    let lost = facts.overflows > 0 || facts.records_lost > 0;
    if !lost && facts.suppressed == 0 {
        return Vec::new();
    }
    let severity = if lost { Severity::Warning } else { Severity::Info };
    let title = format!(
        "the log holds {} of the events, and says that it lost others",
        grouped(facts.events)
    );
    let mut finding = Finding::new(RULE.code, severity, Confidence::Certain, title).about("host");
    if facts.suppressed > 0 {
        let value = format!("rate limits dropped {} IOMMU events", grouped(facts.suppressed));
        finding = finding.seen(facts.source.clone(), value);
    }
    if facts.overflows > 0 {
        let value =
            format!("an IOMMU's event log overflowed, said {} times", grouped(facts.overflows));
        finding = finding.seen(facts.source.clone(), value);
    }
    if facts.records_lost > 0 {
        let value = format!("{} records were overwritten", grouped(facts.records_lost));
        finding = finding.seen(facts.source.clone(), value);
    }
    vec![finding.remedy("peerway faults --follow reads the log as it grows")]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::fault_testing::logged;
    use crate::diagnose::rules::testing::{fires, silent};
    use crate::observed::Observed::Known;
    use crate::snapshot::faults::FaultFacts;

    #[track_caller]
    fn check(edit: impl FnOnce(&mut FaultFacts), severity: Severity, said: &str) {
        let host = logged(vec![], vec![]).edit(|snapshot| match &mut snapshot.faults {
            Known(facts) => edit(facts),
            other => panic!("{other:?}"),
        });
        let finding = fires(&RULE, &host);
        assert_eq!(finding.severity, severity);
        assert!(finding.evidence.iter().any(|one| one.value.contains(said)), "{finding:#?}");
    }

    #[test]
    fn three_kinds_of_loss() {
        check(|facts| facts.suppressed = 23_883, Severity::Info, "dropped 23,883");
        check(|facts| facts.overflows = 2, Severity::Warning, "said 2 times");
        check(|facts| facts.records_lost = 12, Severity::Warning, "12 records");
        silent(&RULE, &logged(vec![], vec![]));
    }
}
