//! Transactions on the simulated hosts, from the plan to the last state or back.

use crate::common::*;
use peerway_roads::{Knowledge, RoadId};
use peerway_write::history::history;
use peerway_write::store::MemoryStore;
use peerway_write::transaction::Ending;
use peerway_write::{Journal, WriteGrant};

pub(crate) fn kind(ending: &Ending) -> &'static str {
    match ending {
        Ending::Nothing => "nothing",
        Ending::Waiting { .. } => "waiting",
        Ending::Succeeded { .. } => "succeeded",
        Ending::TakenBack { .. } => "taken back",
        Ending::GoneWithBoot { .. } => "gone with boot",
        Ending::PendingHolder { .. } => "pending holder",
        Ending::Remains { .. } => "remains",
    }
}

#[test]
fn the_peer_map_of_the_updated_reference_host() {
    let mut host = named("kpro6-pve7");
    let before = Essence::of(&host);
    let plan = plan(&host, RoadId::PeerMap).unwrap();
    let mut store = MemoryStore::default();
    let ending = apply(&mut store, &mut host, &plan).unwrap();
    assert_eq!(kind(&ending), "waiting", "{ending:?}");
    assert_eq!(host.state().entries.len(), 12);
    assert_eq!(host.state().modes.len(), 4, "fenced until the operator's word");
    let safe = Essence::of(&host).environment.unwrap();
    assert!(safe.contains("NCCL_P2P_DISABLE=1"), "{safe}");
    let ending = confirm(&mut store, &mut host).unwrap();
    assert_eq!(kind(&ending), "succeeded", "{ending:?}");
    let lifted = Essence::of(&host).environment.unwrap();
    assert!(!lifted.contains("NCCL_P2P_DISABLE"), "{lifted}");
    assert!(host.state().modes.is_empty());
    let (_, problems) =
        peerway_write::transaction::in_force(&grant(&mut store), &mut host).unwrap().unwrap();
    assert_eq!(problems, Vec::<String>::new());
    let endings =
        peerway_write::recovery::undo_all(grant(&mut store), &mut host, SETTINGS).unwrap();
    assert_eq!(endings.iter().map(kind).collect::<Vec<_>>(), ["taken back"], "{endings:?}");
    let after = Essence::of(&host);
    assert!(after == before, "{}", before.difference(&after));
}

#[test]
fn boards_that_fail_under_identity_are_noticed_on_the_canary() {
    let mut host = named("fsp");
    let before = Essence::of(&host);
    let plan = plan(&host, RoadId::IdentityGroups).unwrap();
    let mut store = MemoryStore::default();
    let ending = apply(&mut store, &mut host, &plan).unwrap();
    let Ending::TakenBack { why, .. } = &ending else { panic!("{ending:?}") };
    assert!(why.contains("FSP boot cmds failed"), "{why}");
    let after = Essence::of(&host);
    assert!(after == before, "{}", before.difference(&after));
    // Remembered: the road is closed for this board, driver and kernel.
    let outcomes = WriteGrant::take(&mut store, peerway_write::grant::Place::Simulated)
        .unwrap()
        .journal()
        .outcomes();
    assert_eq!(outcomes.len(), 1);
    let mut knowledge = Knowledge::builtin();
    knowledge.remember(&peerway_core::observed::Observed::Known(outcomes));
    let refused = plan_knowing(&host, RoadId::IdentityGroups, &knowledge).unwrap_err();
    assert!(refused.to_string().contains("known-failure"), "{refused}");
    let journal = Journal::open(&mut store).unwrap();
    let [record] = &history(&journal)[..] else { panic!("one transaction") };
    assert_eq!((record.state.as_str(), record.road.as_str()), ("taken back", "identity-groups"));
    // Only the first of four groups was ever written.
    let types = record.steps.iter().filter(|step| step.op == "write_group_type");
    assert_eq!(types.count(), 2, "there and back");
}

#[test]
fn boards_that_do_not_come_back_at_all_are_said() {
    let mut host = named("fsp");
    host.state_mut().fails_when_rebound = true;
    let plan = plan(&host, RoadId::IdentityGroups).unwrap();
    let mut store = MemoryStore::default();
    let ending = apply(&mut store, &mut host, &plan).unwrap();
    let Ending::Remains { left, .. } = &ending else { panic!("{ending:?}") };
    assert!(left[0].why.contains("did not come back"), "{left:?}");
    // What belongs to it or to the host as a whole waits: nobody is let in to a dead board.
    let waits = format!("waits for step {}", left[0].step);
    assert!(left[1..].iter().all(|one| one.why.ends_with(&waits)), "{left:?}");
    assert!(left.iter().any(|one| one.why.starts_with("start: ")), "{left:?}");
}

#[test]
fn identity_on_boards_that_take_it() {
    let mut host = healthy_boards();
    let plan = plan(&host, RoadId::IdentityGroups).unwrap();
    let mut store = MemoryStore::default();
    let ending = run(&mut store, &mut host, &plan).unwrap();
    assert_eq!(kind(&ending), "succeeded", "{ending:?}");
}

#[test]
fn a_word_that_does_not_come_takes_it_back() {
    let mut host = named("kpro6-pve7");
    let before = Essence::of(&host);
    let plan = plan(&host, RoadId::PeerMap).unwrap();
    let mut store = MemoryStore::default();
    apply(&mut store, &mut host, &plan).unwrap();
    assert_eq!(kind(&recover(&mut store, &mut host).unwrap()), "waiting");
    host.pass(601);
    let ending = recover(&mut store, &mut host).unwrap();
    assert_eq!(kind(&ending), "taken back");
    assert!(Essence::of(&host) == before);
    let error = confirm(&mut store, &mut host).unwrap_err();
    assert!(error.to_string().contains("nothing to confirm"), "{error}");
}

#[test]
fn a_word_that_comes_too_late_takes_it_back() {
    let mut host = named("kpro6-pve7");
    let plan = plan(&host, RoadId::PeerMap).unwrap();
    let mut store = MemoryStore::default();
    apply(&mut store, &mut host, &plan).unwrap();
    host.pass(601);
    assert_eq!(kind(&confirm(&mut store, &mut host).unwrap()), "taken back");
}
