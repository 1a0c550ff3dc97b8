//! PW0701: something could not be read.

use std::collections::BTreeMap;

use super::support;
use crate::code::COULD_NOT_LOOK;
use crate::diagnose::finding::{Finding, Severity};
use crate::diagnose::{Context, Rule};
use crate::judge::{Confidence, Verdict};
use crate::snapshot::Gap;

pub(super) const RULE: Rule = Rule {
    code: COULD_NOT_LOOK,
    title: "something could not be read, so the picture has gaps",
    page: "\
\"Could not look\" is an answer of its own and is never folded into \"nothing there\". Each place
that should have been read and was not is a gap; this finding groups the gaps by reason. How it was
seen: each place, and why it could not be read, is in the evidence.

Reasons and what settles them:

- *permission denied*: run as root of the host. Configuration space beyond 64 bytes, ACPI tables,
  the kernel log, the descriptors of other users' processes and `/etc/pve` are for root only. Root
  of an unprivileged container is not root of the host.
- *not recorded*: the recording does not hold the file; make a new one on the host, as root.
- *no answer within a second*: a file that does not answer (a cluster file system without quorum, a
  driver that waits for a hung GPU). Looking again later is safe; such a wait is itself a sign of
  trouble.
- *asleep*: reading would wake a device (PW0703).
- *the device is gone*, *it vanished while it was read*: hot-plug or a reset while this program
  looked; run it again.
- a text that the parser refuses: a format that this program does not know. Please report it with
  the file.

Why it matters: a verdict that needs the missing answer is unknown. A gap that touches no verdict
lowers nothing, but the holders of devices and the tenants are only as complete as what could be
read, and no change is made on a host where they are not.

What not to believe: a short list of findings on a host with many gaps.

Sources: `drivers/pci/pci-sysfs.c`, `pci_read_config`; the gaps of this snapshot.",
    check,
};

/// Most reasons named.
const MOST: usize = 8;

fn check(context: &Context<'_>) -> Vec<Finding> {
    let snapshot = context.snapshot;
    let mut by_reason: BTreeMap<&str, Vec<&Gap>> = BTreeMap::new();
    for gap in &snapshot.gaps {
        by_reason.entry(gap.why.as_str()).or_default().push(gap);
    }
    if by_reason.is_empty() {
        return Vec::new();
    }
    let open = context.pairs.iter().any(|pair| pair.verdict == Verdict::Unknown);
    let severity = if open { Severity::Warning } else { Severity::Info };
    let mut finding = Finding::new(
        RULE.code,
        severity,
        Confidence::Certain,
        format!("{} could not be read", support::counted(snapshot.gaps.len(), "place", "places")),
    )
    .about("host");
    let mut reasons: Vec<(&str, Vec<&Gap>)> = by_reason.into_iter().collect();
    // The reason behind most gaps first.
    reasons.sort_by_key(|(why, gaps)| (std::cmp::Reverse(gaps.len()), *why));
    for (why, gaps) in reasons.iter().take(MOST) {
        let places = support::listed(gaps.iter().map(|gap| gap.source.as_str()), 2);
        finding = finding.seen(support::cut(&places), support::cut(why));
    }
    if let Some(rest) = reasons.len().checked_sub(MOST).filter(|rest| *rest > 0) {
        finding = finding.seen("further reasons", rest);
    }
    for (part, remedy) in SETTLES {
        if reasons.iter().any(|(why, _)| why.contains(part))
            && !(*part == "permission denied" && snapshot.origin.privileged)
        {
            finding = finding.remedy(*remedy);
        }
    }
    vec![finding]
}

/// What settles a gap, by a part of its reason.
const SETTLES: &[(&str, &str)] = &[
    ("permission denied", "run as root of the host: others may not read these places"),
    ("not recorded", "make a new recording on the host, as root (peerway capture)"),
    ("no answer", "a place that does not answer is trouble of its own; look again later"),
    ("asleep", "--wake reads sleeping devices, and wakes them"),
    ("vanished", "run again: something changed while it was read"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::testing::{Host, fires, silent, value};

    fn with(gaps: &[(&str, &str)]) -> Host {
        Host::amd().identity().edit(|snapshot| {
            snapshot.origin.privileged = false;
            snapshot.gaps = gaps
                .iter()
                .map(|(source, why)| Gap { source: (*source).to_owned(), why: (*why).to_owned() })
                .collect();
        })
    }

    #[test]
    fn gaps_by_reason() {
        let host = with(&[
            ("/etc/pve", "no answer within a second"),
            ("/sys/firmware/acpi/tables/IVRS", "permission denied"),
            ("/proc/7/fd", "permission denied"),
            ("/proc/9/fd", "permission denied"),
        ]);
        let finding = fires(&RULE, &host);
        assert_eq!(finding.title, "4 places could not be read");
        assert_eq!(finding.evidence[0].value, "permission denied");
        assert!(finding.evidence[0].source.ends_with("and 1 more"));
        assert_eq!(value(&finding, "/etc/pve"), "no answer within a second");
        assert_eq!(finding.remedies.len(), 2);
        assert_eq!(finding.severity, Severity::Info);
    }

    #[test]
    fn no_gaps() {
        silent(&RULE, &with(&[]));
        // "Run as root" is no advice for root.
        let host = with(&[("/sys/x", "permission denied")])
            .edit(|snapshot| snapshot.origin.privileged = true);
        assert!(fires(&RULE, &host).remedies.is_empty());
    }
}
