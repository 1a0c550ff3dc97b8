//! PW0223: a peer map is in force.

use super::support;
use crate::code::PEER_MAP;
use crate::diagnose::finding::{Finding, Severity};
use crate::diagnose::{Context, Rule};
use crate::observed::Observed;

pub(super) const RULE: Rule = Rule {
    code: PEER_MAP,
    title: "a peer map lets translated devices reach their peers' memory",
    page: "\
The module `peerway_map` is loaded and has entries: in the requester's own translating domain, the
bus addresses of a peer's memory translate to themselves. Raw peer addresses then arrive although
translation is on, and nothing else of the host is opened to the device.

How it was seen: `/proc/peerway-map`, which names every entry and its state. The module checks the
first and the last page of an entry for this list; `verify`, written to its device, checks all.

Why only `possible`: an entry that is read back says nothing about the encryption bit, nor about
whether the root complex forwards between the two. Only a copy whose data is checked on the
target's side does (`peerway test`). The road was proved on emulated devices under real kernels and
has not been measured on GPUs.

Where the entries cover a part of the memory only, or the driver's way of peer access is not known
to use these addresses (PW0303), the verdict is `unknown`.

What ends it: unbinding or removing either device, and a boot. The safe environment has to be in
force before that (`peerway verify` tells).

Sources: `kmod/peerway_map.c`, `map_show`.",
    check,
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let Some(affected) = support::own(context, RULE.code) else { return Vec::new() };
    let snapshot = context.snapshot;
    let title = format!("{} on a peer map", affected.that("rests", "rest"));
    let mut finding = Finding::new(RULE.code, Severity::Info, affected.confidence(), title)
        .about_all(affected.requesters());
    finding = match &snapshot.peer_map {
        Observed::Known(map) => finding.seen(
            "/proc/peerway-map",
            format!(
                "{} entries, {} dropped, {} pages lost",
                map.entries.len(),
                map.dropped,
                map.lost
            ),
        ),
        Observed::Unreadable(why) => {
            finding.seen("/proc/peerway-map", format!("unreadable ({why})"))
        }
        Observed::Absent => finding,
    };
    finding = support::with_domains(finding, snapshot, &affected.requesters());
    vec![affected.reasons(finding).remedy(
        "prove it with checked data (peerway test), and after every binding of a driver again",
    )]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::testing::{A, B, Host, at, fires, silent, value};
    use crate::judge::Confidence;
    use crate::snapshot::Snapshot;
    use crate::snapshot::peer_map::{Entry, PeerMap};

    /// Entries between the two GPUs of [`Host::amd`], each covering so many bytes.
    fn mapped(snapshot: &mut Snapshot, length: Option<u64>, state: &str) {
        let entry = |requester: &str, target: &str| {
            let device = snapshot.device(at(target)).unwrap();
            let bar = device.peer_bar().unwrap();
            Entry {
                requester: at(requester),
                target: at(target),
                bar: bar.index,
                offset: 0,
                length: length.unwrap_or(bar.size),
                start: bar.start,
                state: state.to_owned(),
            }
        };
        let entries = vec![entry(A, B), entry(B, A)];
        snapshot.peer_map = Observed::Known(PeerMap { interface: 1, dropped: 0, lost: 0, entries });
        let params = snapshot.nvidia.params.clone().known().cloned().unwrap_or_default();
        let mut params = params;
        params.insert("RegistryDwords".to_owned(), "\"RMPcieP2PType=1\"".to_owned());
        snapshot.nvidia.params = Observed::Known(params);
    }

    fn host(length: Option<u64>, state: &'static str) -> Host {
        Host::amd().edit(move |snapshot| {
            snapshot.kernel.release = Observed::Known("7.0.0-test".to_owned());
            mapped(snapshot, length, state);
        })
    }

    #[test]
    fn entries_for_all_of_the_memory() {
        let finding = fires(&RULE, &host(None, "ok"));
        assert_eq!(finding.severity, Severity::Info);
        assert_eq!(finding.confidence, Confidence::Possible);
        assert_eq!(value(&finding, "peerway-map"), "2 entries, 0 dropped, 0 pages lost");
    }

    #[test]
    fn a_part_of_it_decides_nothing() {
        let finding = fires(&RULE, &host(Some(1 << 20), "ok"));
        assert_eq!(finding.confidence, Confidence::Possible);
    }

    #[test]
    fn none_or_one_that_is_spoiled() {
        silent(&RULE, &Host::amd());
        silent(&RULE, &host(None, "lost"));
    }

    #[test]
    fn a_list_that_could_not_be_read() {
        let host = Host::amd().edit(|snapshot| {
            snapshot.peer_map = Observed::Unreadable("Permission denied".to_owned());
        });
        let finding = fires(&RULE, &host);
        assert_eq!(value(&finding, "peerway-map"), "unreadable (Permission denied)");
    }
}
