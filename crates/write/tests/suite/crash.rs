//! One crash anywhere, one `recover`: the first state or the last, never a third.
//!
//! A loop over everything that is written: every plan of every road that Peerway walks, on every
//! simulated host; every record of its journal, whole and torn; before and inside every change.

use std::collections::BTreeSet;

use peerway_read::host_file;
use peerway_roads::{Plan, RoadId};
use peerway_sim::react::{How, SimHost};
use peerway_write::store::MemoryStore;
use peerway_write::transaction::Ending;
use rustix::io::Errno;

use crate::common::*;
use crate::transaction::kind;

/// A process that nobody expects.
const STRANGER: u32 = 77_777;

/// Every host on which a road is walked, with the plan.
fn walks() -> Vec<(String, SimHost, Plan)> {
    let named_hosts = peerway_sim::NAMES.map(|name| (format!("sim:{name}"), named(name)));
    let others = peerway_sim::hosts::all().into_iter().filter_map(|expected| {
        let tree = expected.builder.tree().ok()?;
        let name = format!("sim:{}", expected.name);
        // A host that the binary gives under the same name is there already.
        let known = peerway_sim::NAMES.iter().any(|known| name == format!("sim:{known}"));
        (!known).then(|| (name.clone(), SimHost::new(&name, tree)))
    });
    let healthy = [("sim:fsp, healthy boards".to_owned(), healthy_boards())];
    let mut all = Vec::new();
    for (name, host) in named_hosts.into_iter().chain(healthy).chain(others) {
        for road in RoadId::ALL {
            if let Ok(plan) = plan(&host, road) {
                all.push((format!("{road} on {name}"), host.clone(), plan));
            }
        }
    }
    all
}

/// Every moment of a whole run, confirmation included, and how it ends.
fn moments(host: &SimHost, plan: &Plan) -> (Vec<Moment>, SimHost, Ending) {
    let mut store = MemoryStore::default();
    let mut watched = Watched::new(host.clone(), &store);
    let ending = run(&mut store, &mut watched, plan).unwrap();
    watched.look(true);
    let mut moments = Vec::new();
    let mut length = 0;
    for moment in watched.moments.into_inner() {
        // The record before this moment, cut twice: nothing else happened while it was written.
        let last = moment.journal[..moment.journal.len().saturating_sub(1)]
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);
        if moment.journal.len() > length {
            for cut in [last + (moment.journal.len() - last) / 2, moment.journal.len() - 1] {
                let journal = moment.journal[..cut].to_vec();
                moments.push(Moment { journal, host: moment.host.clone() });
            }
        }
        length = moment.journal.len();
        moments.push(moment);
    }
    (moments, watched.inner, ending)
}

/// Checks that a host is in one of the two states; after the first, the environment is as it was
/// or safe.
#[track_caller]
fn first_or_last(what: &str, ending: &Ending, now: &Essence, first: &Essence, last: &Essence) {
    match ending {
        Ending::Succeeded { .. } => assert!(now == last, "{what}: {}", last.difference(now)),
        Ending::Nothing => {
            assert!(now == last || now == first, "{what}: {}", first.difference(now));
        }
        Ending::TakenBack { .. } => {
            assert!(now.same_host(first), "{what}: {}", first.difference(now));
            let safe = |text: &String| text.contains("NCCL_P2P_DISABLE=1");
            let closed = now.environment.as_ref().is_none_or(safe);
            assert!(closed || now.environment == first.environment, "{what}");
        }
        other => panic!("{what}: {other:?}"),
    }
}

/// Recovers as a new process would, after the operator's time is over.
fn recover_late(store: &mut MemoryStore, host: &mut SimHost) -> Ending {
    host.restart();
    host.pass(SETTINGS.confirm_within + 1);
    recover(store, host).unwrap()
}

/// The words of a plan: plans with the same ones write the same records.
fn shape(plan: &Plan) -> String {
    let words = plan.steps.iter().map(|step| format!("{:?} {}", step.phase, step.op));
    words.collect::<Vec<_>>().join("; ")
}

/// One share of all walks: every moment of the first plan of each shape, and of further hosts with
/// the same shape every eleventh.
#[track_caller]
fn crash_everywhere(share: usize) {
    let walks = walks();
    assert!(walks.len() >= 30, "every road that is walked must be met");
    let mut shapes = BTreeSet::new();
    let mut count = 0;
    for (index, (what, host, plan)) in walks.iter().enumerate() {
        let stride = if shapes.insert(shape(plan)) { 1 } else { 11 };
        if index % SHARES != share {
            continue;
        }
        let first = Essence::of(host);
        let (moments, end, _) = moments(host, plan);
        let last = Essence::of(&end);
        for (number, moment) in moments.iter().enumerate().step_by(stride) {
            let mut store = MemoryStore::with(moment.journal.clone());
            let mut host = moment.host.clone();
            let ending = recover_late(&mut store, &mut host);
            let what = format!("{what}, moment {number} of {}", moments.len());
            first_or_last(&what, &ending, &Essence::of(&host), &first, &last);
            // Nothing is left to do.
            let again = recover(&mut store, &mut host).unwrap();
            assert_eq!(again, Ending::Nothing, "{what}");
            count += 1;
        }
    }
    assert!(count > 100, "{count} moments");
}

const SHARES: usize = 4;

#[test]
fn after_a_crash_anywhere_the_first_state_or_the_last_0() {
    crash_everywhere(0);
}

#[test]
fn after_a_crash_anywhere_the_first_state_or_the_last_1() {
    crash_everywhere(1);
}

#[test]
fn after_a_crash_anywhere_the_first_state_or_the_last_2() {
    crash_everywhere(2);
}

#[test]
fn after_a_crash_anywhere_the_first_state_or_the_last_3() {
    crash_everywhere(3);
}

#[test]
fn a_crash_while_recovering_is_recovered_too() {
    let host = healthy_boards();
    let plan = plan(&host, RoadId::IdentityGroups).unwrap();
    let first = Essence::of(&host);
    let (all, ..) = moments(&host, &plan);
    // Some moments, and there some of the way back.
    for moment in all.iter().step_by(29) {
        let mut store = MemoryStore::with(moment.journal.clone());
        let mut watched = Watched::new(moment.host.clone(), &store);
        watched.inner.pass(SETTINGS.confirm_within + 1);
        let ending = recover(&mut store, &mut watched).unwrap();
        if !matches!(ending, Ending::TakenBack { .. }) {
            continue;
        }
        watched.look(true);
        for moment in watched.moments.into_inner().iter().step_by(5) {
            let mut store = MemoryStore::with(moment.journal.clone());
            let mut host = moment.host.clone();
            let ending = recover_late(&mut store, &mut host);
            first_or_last("a crash on the way back", &ending, &Essence::of(&host), &first, &first);
        }
    }
}

#[test]
fn with_a_holder_nothing_is_changed_and_afterwards_the_first_state() {
    for (host, road) in
        [(named("kpro6-pve7"), RoadId::PeerMap), (healthy_boards(), RoadId::IdentityGroups)]
    {
        let plan = plan(&host, road).unwrap();
        let first = Essence::of(&host);
        let (moments, end, _) = moments(&host, &plan);
        let last = Essence::of(&end);
        let mut met = 0;
        for moment in moments.iter().step_by(7) {
            let mut store = MemoryStore::with(moment.journal.clone());
            let mut host = moment.host.clone();
            host.start_process(STRANGER, "python3", "/system.slice/job.service", &["/dev/nvidia0"]);
            let before = Essence::of(&host);
            let mut ending = recover_late(&mut store, &mut host);
            if let Ending::PendingHolder { holders, .. } = &ending {
                met += 1;
                assert!(holders[0].contains("77777 (python3"), "{holders:?}");
                let now = Essence::of(&host);
                // A confirmation that is taken back shuts the nodes that it had opened.
                assert!(now.at_least_as_closed(&before), "{}", before.difference(&now));
                let environment = now.environment.unwrap_or_default();
                assert!(environment.contains("NCCL_P2P_DISABLE=1"), "{environment}");
                host.end_process(STRANGER);
                ending = recover(&mut store, &mut host).unwrap();
            } else {
                host.end_process(STRANGER);
            }
            first_or_last("a holder", &ending, &Essence::of(&host), &first, &last);
        }
        assert!(met > 10, "{road}: a holder stood in the way {met} times");
    }
}

#[test]
fn a_way_back_that_keeps_failing_is_said_and_can_be_repeated() {
    let host = named("fsp");
    let plan = plan(&host, RoadId::IdentityGroups).unwrap();
    let first = Essence::of(&host);
    // Every inverse that this run needs, by watching it once.
    let mut store = MemoryStore::default();
    run(&mut store, &mut host.clone(), &plan).unwrap();
    let journal = peerway_write::Journal::open(&mut store).unwrap();
    let inverses: Vec<_> = journal
        .entries()
        .iter()
        .filter_map(|entry| match entry {
            peerway_write::Entry::Intent {
                way: peerway_write::journal::Way::Back, act, ..
            } => Some(act.clone()),
            _ => None,
        })
        .filter(|act| !matches!(act, peerway_roads::Op::Unfence { .. }))
        .collect();
    let mut failed = 0;
    for act in inverses {
        let mut store = MemoryStore::default();
        let mut host = host.clone();
        let mut watched_from = false;
        // The same act may be part of the way forward: it fails only once that is over.
        let mut ending = loop {
            if watched_from {
                break recover_late(&mut store, &mut host);
            }
            let (all, ..) = moments(&host, &plan);
            let turning = all.iter().find(|moment| {
                String::from_utf8_lossy(&moment.journal).contains("\"record\":\"turning_back\"")
            });
            let turning = turning.unwrap();
            store = MemoryStore::with(turning.journal.clone());
            host = turning.host.clone();
            host.script_mut().always(&act, How::Refused(Errno::IO));
            watched_from = true;
        };
        for _ in 0..2 {
            let Ending::Remains { left, .. } = &ending else { break };
            failed += 1;
            let first = &left[0];
            assert!(first.step > 0 || act.word() == "write_safe_environment", "{first:?}");
            assert!(first.why.contains("Input/output error"), "{first:?}");
            let waits = |why: &str| why.ends_with(&format!("waits for step {}", first.step));
            assert!(left[1..].iter().all(|one| waits(&one.why)), "{left:?}");
            ending = recover(&mut store, &mut host).unwrap();
        }
        host.script_mut().clear();
        if !matches!(ending, Ending::TakenBack { .. }) {
            ending = recover(&mut store, &mut host).unwrap();
        }
        first_or_last(act.word(), &ending, &Essence::of(&host), &first, &first);
    }
    assert!(failed >= 6, "{failed} failures were seen");
}

/// Ways in which a change goes wrong.
const WRONG: [How; 7] = [
    How::Refused(Errno::PERM),
    How::Refused(Errno::BUSY),
    How::Refused(Errno::INVAL),
    How::Refused(Errno::NOMEM),
    How::Refused(Errno::NODEV),
    How::DoneAndRefused(Errno::IO),
    How::Lies,
];

#[test]
fn a_change_that_goes_wrong_once_is_taken_back() {
    for (host, road) in
        [(named("kpro6-pve7"), RoadId::PeerMap), (healthy_boards(), RoadId::IdentityGroups)]
    {
        let plan = plan(&host, road).unwrap();
        let first = Essence::of(&host);
        let mut whole = host.clone();
        let ending = run(&mut MemoryStore::default(), &mut whole, &plan).unwrap();
        assert_eq!(kind(&ending), "succeeded");
        let last = Essence::of(&whole);
        for number in 1..=whole.script_mut().count() {
            // One way a change, in turn; over all changes every way is met.
            let index = usize::try_from(number).unwrap() % WRONG.len();
            for how in [WRONG[index], WRONG[(index + 3) % WRONG.len()]] {
                let mut host = host.clone();
                host.script_mut().at(number, how);
                let ending = run(&mut MemoryStore::default(), &mut host, &plan).unwrap();
                let what = format!("{road}, change {number}, {how:?}");
                first_or_last(&what, &ending, &Essence::of(&host), &first, &last);
            }
        }
    }
}

#[test]
fn an_unbinding_that_hangs_is_pending_until_it_is_over() {
    let mut host = healthy_boards();
    let plan = plan(&host, RoadId::IdentityGroups).unwrap();
    let first = Essence::of(&host);
    // Somebody opens the GPU between the last scan and the unbinding.
    let (all, ..) = moments(&host, &plan);
    let about_to = all.iter().position(|moment| {
        let text = String::from_utf8_lossy(&moment.journal).into_owned();
        text.ends_with('\n')
            && text.lines().last().is_some_and(|line| {
                line.contains("\"intent\"") && line.contains("\"act\":\"unbind\"")
            })
    });
    host = all[about_to.unwrap()].host.clone();
    host.start_process(STRANGER, "python3", "/system.slice/job.service", &["/dev/nvidia0"]);
    let mut store = MemoryStore::with(all[about_to.unwrap()].journal.clone());
    // The call was made, and its process is gone.
    let unbind = plan.steps.iter().find(|step| step.op == "unbind").unwrap();
    assert!(host.perform(&unbind.act).is_err());
    let ending = recover_late(&mut store, &mut host);
    let Ending::PendingHolder { holders, .. } = &ending else { panic!("{ending:?}") };
    assert!(holders.iter().any(|text| text.contains("still waits in the kernel")), "{holders:?}");
    host.end_process(STRANGER);
    let ending = recover(&mut store, &mut host).unwrap();
    first_or_last("hang", &ending, &Essence::of(&host), &first, &first);
}

#[test]
fn a_full_disk_is_met_before_anything_changes_or_said() {
    let host = named("kpro6-pve7");
    let plan = plan(&host, RoadId::PeerMap).unwrap();
    let first = Essence::of(&host);
    let mut store = MemoryStore::default();
    store.leave_room(Some(10_000));
    let mut changed = host.clone();
    let error = run(&mut store, &mut changed, &plan).unwrap_err();
    assert!(error.to_string().contains("No space left on device"), "{error}");
    assert!(Essence::of(&changed) == first && store.bytes().is_empty());
}

#[test]
fn hosts_survive_their_file_format() {
    let mut host = named("kpro6-pve7");
    let plan = plan(&host, RoadId::PeerMap).unwrap();
    run(&mut MemoryStore::default(), &mut host, &plan).unwrap();
    let text = peerway_sim::build::to_host_file("a changed host", host.tree());
    let tree = host_file::parse(&text).unwrap();
    let back = SimHost::restored("sim:kpro6-pve7", tree, host.state().clone());
    assert!(Essence::of(&back) == Essence::of(&host));
}
