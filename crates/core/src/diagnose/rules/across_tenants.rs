//! PW0222: two tenants: no peer access between them is isolation.

use std::collections::BTreeSet;

use super::support;
use crate::code::ACROSS_TENANTS;
use crate::diagnose::finding::{Finding, Severity};
use crate::diagnose::{Context, Rule};
use crate::judge::{Confidence, Pair, Verdict};
use crate::snapshot::Snapshot;

pub(super) const RULE: Rule = Rule {
    code: ACROSS_TENANTS,
    title: "pairs of different tenants: no peer access between them is isolation",
    page: "\
With `--all` this program also judges pairs whose two devices belong to different tenants. There the
verdict reads the other way round: *broken* is as it should be, since the IOMMU keeps one tenant's
device away from another's memory, and *works* is the finding.

How it was seen: the owner of each device (who holds it now, or whose configuration claims it), and
the verdict on the pair.

Why a pair that works matters: a device in an identity group, or one below the same switch without
redirect, can write into the memory of a GPU that somebody else uses. Nothing has to be exploited
for that; a stray address suffices. A device that a guest holds is driven by the guest, so the guest
decides what its GPU sends.

What helps: switch ports with redirect between tenants; translating domains; devices of one switch
in one hand. What does not help: a driver setting on the one side, since the other side's driver
decides about the other direction.

What not to believe: that a broken pair across tenants needs repair. Nothing in this program will
propose to open one.

Requesters that a guest holds are judged unknown: what the guest's monitor mapped for them cannot be
seen from the host (PW0207). On a healthy host it has mapped none of the other tenants' memory.

Sources: the tenants and claims of this snapshot; PCI Express Base Specification 6.12;
`drivers/iommu/iommu.c`.",
    check,
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let snapshot = context.snapshot;
    let owners = support::Owners::of(snapshot, context.pairs);
    let (open, closed): (Vec<&Pair>, Vec<&Pair>) = context
        .pairs
        .iter()
        .filter(|pair| owners.crosses(pair))
        .partition(|pair| matches!(pair.verdict, Verdict::Works | Verdict::Impaired));
    let mut findings = Vec::new();
    if !open.is_empty() {
        let title = format!(
            "requests of {} can reach another tenant's device",
            support::counted(open.len(), "pair", "pairs")
        );
        findings.push(
            about(snapshot, Severity::Warning, title, &open)
                .remedy("redirect on the switch ports, or translating groups, between tenants"),
        );
    }
    if !closed.is_empty() {
        let title = format!(
            "{} across tenants have no open way, which is isolation and no fault",
            support::counted(closed.len(), "pair", "pairs")
        );
        findings.push(about(snapshot, Severity::Info, title, &closed));
    }
    findings
}

fn about(snapshot: &Snapshot, severity: Severity, title: String, pairs: &[&Pair]) -> Finding {
    let ends: BTreeSet<_> = pairs.iter().flat_map(|pair| [pair.from, pair.to]).collect();
    let confidence = pairs.iter().map(|pair| pair.confidence).max();
    let owner = |address| {
        let id = snapshot.device(address).and_then(|device| snapshot.tenant_of(device));
        id.map_or_else(|| "a guest".to_owned(), |id| id.to_string())
    };
    let finding =
        Finding::new(RULE.code, severity, confidence.unwrap_or(Confidence::Possible), title)
            .about_all(&ends);
    pairs.iter().take(4).fold(finding, |finding, pair| {
        let between = format!("{} to {}: ", owner(pair.from), owner(pair.to));
        finding.seen(support::pair_source(pair), support::cut(&(between + &pair.reason)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::testing::{A, B, BELOW_SWITCH, Host, all, fires, silent, value};

    #[test]
    fn isolation_is_no_fault() {
        let finding = fires(&RULE, &Host::amd().guest(&[B]).across());
        assert_eq!(finding.severity, Severity::Info);
        assert!(value(&finding, "pair 0000:01:00.0").starts_with("host to vm:132: "));
    }

    #[test]
    fn an_open_way_is_a_warning() {
        let [a, b] = BELOW_SWITCH;
        let found = all(&RULE, &Host::switch().guest(&[b]).across());
        assert_eq!(found[0].severity, Severity::Warning);
        assert!(found[0].subjects.contains(&a.to_owned()));
    }

    #[test]
    fn within_a_tenant() {
        silent(&RULE, &Host::amd().across());
        silent(&RULE, &Host::amd().guest(&[A, B]).across());
        silent(&RULE, &Host::amd().guest(&[B]));
    }
}
