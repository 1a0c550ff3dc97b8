//! PW0601: refused requests inside a peer's memory.

use super::fault_support::{self as log, times};
use super::support;
use crate::code::PEER_FAULTS;
use crate::diagnose::finding::{Finding, Severity};
use crate::diagnose::{Context, Rule};
use crate::judge::{Confidence, Verdict};
use crate::snapshot::faults::{FaultClass, Faulting};

pub(super) const RULE: Rule = Rule {
    code: PEER_FAULTS,
    title: "the IOMMU refused a GPU's requests inside a peer's memory",
    page: "\
The kernel log holds IOMMU faults whose address lies inside a memory region of another device: the
signature of raw peer addresses under translation. The GPU asked for its peer's memory by bus
address, its own translating domain has no entry for it, and the request was refused. Written data
is lost, reads return ones or zeros, and the program that asked learns nothing of it.

How it was seen: each fault's address was looked up in the memory regions of all devices of the
host. Behind the requester's own host bridge a match is certain, since the kernel keeps those
windows out of what it hands out. Behind another one it is by far the likeliest reading, and a
pattern over several peers leaves little doubt. Where a log came without the regions, two or more
GPUs and addresses that look like such regions (aligned high addresses with small offsets; the page
at 0x139000 of a region below 4 GiB) make it probable.

The direction is a hint with AMD: the write bit of a fault is defined only where a translation was
present, which it was not (AMD document 48882, not at hand).

What the log does not show: how often it happened. The kernel logs ten faults of a device in five
seconds and counts the rest away; the count of suppressed messages is in the evidence.

What lies about it: the driver's tools say that peer access is fine, copies report plausible or
impossible speeds, and no program sees an error.

What helps: a road that gives the peer's address an entry or takes the translation away where that
is allowed (`peerway roads`); until then, running without peer access.

Sources: `drivers/iommu/amd/iommu.c`, `amd_iommu_report_page_fault`; `drivers/iommu/intel/dmar.c`,
`dmar_fault_do_one`; `drivers/iommu/dma-iommu.c`, `iova_reserve_pci_windows`; `lib/ratelimit.c`.",
    check,
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let Some(facts) = log::facts(context) else { return Vec::new() };
    let rows = log::rows(facts, &[FaultClass::PeerAccess]);
    if rows.is_empty() {
        return Vec::new();
    }
    let count = times(log::count(&rows), "request", "requests");
    let requesters = log::names(&rows);
    let of = times(u64::try_from(requesters.len()).unwrap_or(0), "device", "devices");
    let confidence = log::confidence(&rows);
    let (severity, title) = match (is_past(context, &rows), confidence) {
        (true, _) => (
            Severity::Warning,
            format!("{count} of {of} were refused inside peers' memory, before something changed"),
        ),
        (false, Confidence::Certain) => {
            (Severity::Error, format!("{count} of {of} were refused inside peers' memory"))
        }
        (false, _) => (
            Severity::Error,
            format!("{count} of {of} were refused at addresses that look like peers' memory"),
        ),
    };
    let mut targets: Vec<String> =
        rows.iter().flat_map(|one| &one.hits).map(|hit| hit.device.to_string()).collect();
    targets.sort_unstable();
    targets.dedup();
    targets.retain(|target| !requesters.contains(target));
    let finding = Finding::new(RULE.code, severity, confidence, title)
        .about_all(&requesters)
        .about_all(&targets);
    let finding = log::with_rows(finding, facts, &rows)
        .remedy(support::meanwhile(
            context
                .pairs
                .iter()
                .filter(|pair| rows.iter().any(|one| one.address == Some(pair.from))),
        ))
        .remedy("peerway roads lists what can be done on this host, and for whom it is safe");
    vec![finding]
}

/// Whether the pairs concerned are predicted to work now: then the log is older than the change.
fn is_past(context: &Context<'_>, rows: &[&Faulting]) -> bool {
    let concerned: Vec<_> = context
        .pairs
        .iter()
        .filter(|pair| {
            rows.iter().any(|one| {
                one.address == Some(pair.from) && one.hits.iter().any(|hit| hit.device == pair.to)
            })
        })
        .collect();
    !concerned.is_empty()
        && concerned.iter().all(|pair| matches!(pair.verdict, Verdict::Works | Verdict::Impaired))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::fault_testing::{faulting, logged};
    use crate::diagnose::rules::testing::{A, B, Host, fires, silent, value};
    use crate::observed::Observed::Known;

    #[test]
    fn seen_inside_a_peer() {
        let finding = fires(&RULE, &logged(vec![faulting(FaultClass::PeerAccess, 1_200)], vec![]));
        assert_eq!(finding.severity, Severity::Error);
        assert_eq!(finding.confidence, Confidence::Certain);
        assert_eq!(finding.title, "1,200 requests of 1 device were refused inside peers' memory");
        assert_eq!(finding.subjects, [A, B]);
        assert_eq!(
            value(&finding, A),
            "1,200 io_page_fault, write (a hint), inside 0000:41:00.0 (region 2)"
        );
    }

    #[test]
    fn the_log_may_be_older_than_what_helped() {
        let host = logged(vec![faulting(FaultClass::PeerAccess, 5)], vec![]).identity();
        assert_eq!(fires(&RULE, &host).severity, Severity::Warning);
    }

    #[test]
    fn suppressed_events_are_said() {
        let host = logged(vec![faulting(FaultClass::PeerAccess, 5)], vec![]).edit(|snapshot| {
            if let Known(facts) = &mut snapshot.faults {
                facts.suppressed = 40_000;
            }
        });
        let finding = fires(&RULE, &host);
        assert!(finding.evidence.iter().any(|one| one.value.contains("40,000 more")));
    }

    #[test]
    fn silent_without_such_faults() {
        silent(&RULE, &Host::amd());
        silent(&RULE, &logged(vec![faulting(FaultClass::OtherDevice, 5)], vec![]));
    }
}
