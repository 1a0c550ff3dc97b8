//! PW0224: a peer map that does not do what it should.

use super::support;
use crate::code::PEER_MAP_SPOILED;
use crate::diagnose::finding::{Finding, Severity};
use crate::diagnose::{Context, Rule};
use crate::observed::Observed;

pub(super) const RULE: Rule = Rule {
    code: PEER_MAP_SPOILED,
    title: "an entry of the peer map is no more what it was",
    page: "\
The module `peerway_map` still has the entry, but what it stands on changed: somebody else took its
pages over (`lost`), the peer's memory region moved (`bar-moved`), the requester has another domain
(`domain-changed`), or its driver changed the addresses that it can use (`mask-changed`).

Why it matters: a job that believes in its peers goes on, and what it writes goes nowhere or, if the
pages are somebody else's now, into a buffer of the same device. Nothing else will say so.

How it was seen: the last words of the entry's line in `/proc/peerway-map`.

What to do: stop the jobs on these GPUs, then take the map back (`peerway rollback` or `peerway undo
--all`), and let new jobs begin without peer access. The kernel log says what happened to the pages.

Sources: `kmod/peerway_map.c`, `state_of`.",
    check,
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let Some(affected) = support::own(context, RULE.code) else { return Vec::new() };
    let snapshot = context.snapshot;
    let title = format!("{} on a peer map that is spoiled", affected.that("rests", "rest"));
    let mut finding = Finding::new(RULE.code, Severity::Error, affected.confidence(), title)
        .about_all(affected.requesters());
    let entries = match &snapshot.peer_map {
        Observed::Known(map) => map.entries.as_slice(),
        Observed::Absent | Observed::Unreadable(_) => &[],
    };
    for entry in entries.iter().filter(|entry| !entry.is_ok()).take(4) {
        finding = finding.seen(
            "/proc/peerway-map",
            format!("{} to {}: {}", entry.requester, entry.target, entry.state),
        );
    }
    vec![affected.reasons(finding).remedy(
        "stop the jobs on these GPUs, then take the map back (peerway undo --all); new jobs run \
         without peer access",
    )]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::testing::{A, B, Host, at, fires, silent, value};
    use crate::snapshot::peer_map::{Entry, PeerMap};

    fn host(state: &'static str, moved: u64) -> Host {
        Host::amd().edit(move |snapshot| {
            let bar = snapshot.device(at(B)).unwrap().peer_bar().unwrap().clone();
            let entry = Entry {
                requester: at(A),
                target: at(B),
                bar: bar.index,
                offset: 0,
                length: bar.size,
                start: crate::address::BusAddress(bar.start.0 + moved),
                state: state.to_owned(),
            };
            snapshot.peer_map = Observed::Known(PeerMap {
                interface: 1,
                dropped: 0,
                lost: 3,
                entries: vec![entry],
            });
        })
    }

    #[test]
    fn pages_that_somebody_else_took() {
        let finding = fires(&RULE, &host("lost", 0));
        assert_eq!(finding.severity, Severity::Error);
        assert_eq!(value(&finding, "peerway-map"), format!("{A} to {B}: lost"));
    }

    #[test]
    fn an_entry_where_the_memory_is_no_more() {
        fires(&RULE, &host("ok", 1 << 30));
    }

    #[test]
    fn an_entry_as_it_was_made() {
        silent(&RULE, &host("ok", 0));
    }
}
