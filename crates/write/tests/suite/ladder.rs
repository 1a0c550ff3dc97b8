//! Boards that do not come back, and what is tried then.

use peerway_core::snapshot::query::vendor;
use peerway_read::tree::Node;
use peerway_roads::{Op, Plan, RoadId};
use peerway_sim::react::{How, SimHost};
use peerway_write::journal::{Entry, Journal, Way};
use peerway_write::store::MemoryStore;
use peerway_write::transaction::{Ending, Ladder, Settings};
use rustix::io::Errno;

use crate::common::*;

const AGAIN: Settings<'static> = Settings { ladder: Ladder::Again, ..SETTINGS };
const RESET: Settings<'static> = Settings { ladder: Ladder::Reset, ..SETTINGS };

/// The same host with boards that fail under identity, and from then on until they are reset.
fn latching(mut host: SimHost) -> SimHost {
    host.state_mut().fails_under_identity = true;
    host.state_mut().fails_until_reset = true;
    host
}

/// Boards of which operators report that a reset hangs.
fn reported() -> (SimHost, Plan) {
    let host = latching(named("fsp"));
    let plan = plan(&host, RoadId::IdentityGroups).unwrap();
    (host, plan)
}

/// A host with other boards.
fn others() -> (SimHost, Plan) {
    let hosts = peerway_sim::hosts::all().into_iter().filter_map(|expected| {
        let host = SimHost::new(&format!("sim:{}", expected.name), expected.builder.tree().ok()?);
        let plan = plan(&host, RoadId::IdentityGroups).ok()?;
        let snapshot = host.snapshot();
        let ids = snapshot.device(*plan.goal.devices.first()?)?.ids.known().copied()?;
        (ids.vendor == vendor::NVIDIA && !(0x2b80..=0x2fff).contains(&ids.device))
            .then_some((latching(host), plan))
    });
    hosts.into_iter().next().expect("a host with other boards has a plan for identity groups")
}

fn acts(store: &mut MemoryStore, word: &str) -> usize {
    let journal = Journal::open(store).unwrap();
    let back = |entry: &&Entry| matches!(entry, Entry::Intent { way: Way::Back, act, .. } if act.word() == word);
    journal.entries().iter().filter(back).count()
}

fn recover_with(store: &mut MemoryStore, host: &mut SimHost, settings: Settings<'_>) -> Ending {
    peerway_write::recover(grant(store), host, settings).unwrap()
}

fn whys(ending: &Ending) -> Vec<&str> {
    match ending {
        Ending::Remains { left, .. } => left.iter().map(|one| one.why.as_str()).collect(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_board_is_brought_back_by_a_reset_that_was_asked_for() {
    let (mut host, plan) = others();
    let first = Essence::of(&host);
    let mut store = MemoryStore::default();
    whys(&apply(&mut store, &mut host, &plan).unwrap());
    assert_eq!(acts(&mut store, "reset"), 0);
    let ending = recover_with(&mut store, &mut host, RESET);
    assert!(matches!(ending, Ending::TakenBack { .. }), "{ending:?}");
    assert_eq!(acts(&mut store, "reset"), 1);
    let now = Essence::of(&host);
    assert!(now.same_host(&first), "{}", first.difference(&now));
    assert!(host.state().latched.is_empty());
}

#[test]
fn nothing_is_reset_without_the_operators_word() {
    let (mut host, plan) = reported();
    let first = Essence::of(&host);
    let mut store = MemoryStore::default();
    let ending = apply(&mut store, &mut host, &plan).unwrap();
    let left = whys(&ending);
    assert!(left[0].contains("did not come back"), "{left:?}");
    assert!(left[0].contains("peerway recover --reset"), "{left:?}");
    // The timer's tries leave it alone, and stay at that.
    let unbound = acts(&mut store, "unbind");
    for _ in 0..3 {
        let ending = recover_with(&mut store, &mut host, SETTINGS);
        let left = whys(&ending);
        assert!(left[0].contains("did not come back"), "{ending:?}");
        let waits = |why: &&str| why.ends_with("waits for the device that did not come back");
        assert!(left.len() > 2 && left[1..].iter().all(waits), "{left:?}");
        // Nobody is let in to it.
        assert!(!host.state().modes.is_empty());
    }
    assert_eq!((acts(&mut store, "unbind"), acts(&mut store, "reset")), (unbound, 0));
    // The operator's binds it anew, which does not help.
    let ending = recover_with(&mut store, &mut host, AGAIN);
    assert!(whys(&ending)[0].contains("did not come back"), "{ending:?}");
    assert_eq!((acts(&mut store, "unbind"), acts(&mut store, "reset")), (unbound + 1, 0));
    // With the operator's word it is reset.
    let ending = recover_with(&mut store, &mut host, RESET);
    assert!(matches!(ending, Ending::TakenBack { .. }), "{ending:?}");
    assert_eq!(acts(&mut store, "reset"), 1);
    let now = Essence::of(&host);
    assert!(now.same_host(&first), "{}", first.difference(&now));
    assert!(host.state().latched.is_empty());
}

#[test]
fn one_that_somebody_mended_meanwhile_is_taken_back() {
    let (mut host, plan) = reported();
    let first = Essence::of(&host);
    let mut store = MemoryStore::default();
    whys(&apply(&mut store, &mut host, &plan).unwrap());
    host.state_mut().latched.clear();
    let ending = recover_with(&mut store, &mut host, AGAIN);
    assert!(matches!(ending, Ending::TakenBack { .. }), "{ending:?}");
    assert_eq!(acts(&mut store, "reset"), 0);
    assert!(Essence::of(&host).same_host(&first));
}

#[test]
fn a_reset_that_does_not_help_is_said() {
    let (mut host, plan) = others();
    host.state_mut().fails_when_rebound = true;
    let mut store = MemoryStore::default();
    whys(&apply(&mut store, &mut host, &plan).unwrap());
    for times in 1..3 {
        let ending = recover_with(&mut store, &mut host, RESET);
        assert!(whys(&ending)[0].contains("it was reset and bound anew"), "{ending:?}");
        assert_eq!(acts(&mut store, "reset"), times);
    }
}

#[test]
fn a_reset_that_is_refused_or_hangs_is_said() {
    for (how, said) in [
        (How::Refused(Errno::NOTTY), "Inappropriate ioctl for device"),
        (How::Hangs, "does not come back"),
    ] {
        let (mut host, plan) = others();
        for device in &plan.goal.devices {
            host.script_mut().always(&Op::Reset { device: *device }, how);
        }
        let mut store = MemoryStore::default();
        whys(&apply(&mut store, &mut host, &plan).unwrap());
        let ending = recover_with(&mut store, &mut host, RESET);
        let text = format!("{ending:?}");
        assert!(text.contains(said), "{text}");
        if how != How::Hangs {
            // It is not left without its driver.
            let root = host.root();
            let link = root.link(&format!("/sys/bus/pci/devices/{}/driver", plan.goal.devices[0]));
            assert!(link.is_ok_and(|link| link.ends_with("/nvidia")), "{text}");
        }
        // Once it is over, the next one finishes.
        host.script_mut().clear();
        let ending = recover_with(&mut store, &mut host, RESET);
        assert!(matches!(ending, Ending::TakenBack { .. }), "{ending:?}");
    }
}

#[test]
fn nothing_is_reset_under_a_holder() {
    let (mut host, plan) = reported();
    let mut store = MemoryStore::default();
    whys(&apply(&mut store, &mut host, &plan).unwrap());
    host.start_process(77_777, "python3", "/system.slice/job.service", &["/dev/nvidia0"]);
    let ending = recover_with(&mut store, &mut host, RESET);
    let Ending::PendingHolder { holders, .. } = &ending else { panic!("{ending:?}") };
    assert!(holders[0].contains("77777 (python3"), "{holders:?}");
    assert_eq!(acts(&mut store, "reset"), 0);
    host.end_process(77_777);
    let ending = recover_with(&mut store, &mut host, RESET);
    assert!(matches!(ending, Ending::TakenBack { .. }), "{ending:?}");
}

/// The word on a board that was just bound is not lost with the process that was to write it down.
#[test]
fn a_crash_before_a_board_is_said_to_be_dead_loses_nothing() {
    let mut host = healthy_boards();
    let plan = plan(&host, RoadId::IdentityGroups).unwrap();
    let mut store = MemoryStore::default();
    let ending = apply(&mut store, &mut host, &plan).unwrap();
    assert!(matches!(ending, Ending::Waiting { .. }), "{ending:?}");
    host.state_mut().fails_when_rebound = true;
    host.state_mut().fails_until_reset = true;
    let mut watched = Watched::new(host, &store);
    peerway_write::roll_back(grant(&mut store), &mut watched, SETTINGS, "the operator's").unwrap();
    watched.look(true);
    let moments = watched.moments.into_inner();
    // All but the canary are bound once, and say it once.
    let others = &plan.goal.devices[1..];
    let mut dead = 0;
    for (number, moment) in moments.iter().enumerate() {
        let mut store = MemoryStore::with(moment.journal.clone());
        let mut host = moment.host.clone();
        host.restart();
        let ending =
            peerway_write::roll_back(grant(&mut store), &mut host, SETTINGS, "again").unwrap();
        assert!(matches!(ending, Ending::Remains { .. }), "moment {number}: {ending:?}");
        let journal = Journal::open(&mut store).unwrap();
        let fallen = journal.open_transaction().unwrap().fallen();
        for device in others {
            let was_dead = moment.host.state().latched.contains(device);
            dead += usize::from(was_dead);
            let is_said = fallen.contains_key(device);
            assert_eq!(is_said, host.state().latched.contains(device), "moment {number}: {device}");
        }
    }
    assert!(dead > 10, "{dead} moments with a dead board");
}

/// What a driver said of an attempt that did not bind it says nothing of the next.
#[test]
fn an_attempt_that_failed_does_not_speak_of_the_next() {
    let mut host = healthy_boards();
    let plan = plan(&host, RoadId::IdentityGroups).unwrap();
    let mut store = MemoryStore::default();
    let ending = apply(&mut store, &mut host, &plan).unwrap();
    assert!(matches!(ending, Ending::Waiting { .. }), "{ending:?}");
    let device = plan.goal.devices[1];
    let bind = Op::Probe { device, driver: "nvidia".to_owned() };
    host.script_mut().always(&bind, How::Refused(Errno::IO));
    let ending = peerway_write::roll_back(grant(&mut store), &mut host, SETTINGS, "test").unwrap();
    assert!(whys(&ending)[0].contains("drivers_probe"), "{ending:?}");
    let mut tree = host.tree().clone();
    let mut log = host.root().kernel_log(1 << 20).unwrap();
    let said =
        format!("3,99999,99999999,-;NVRM: GPU {device}: RmInitAdapter failed! (0x62:0x65:2027)\n");
    log.extend_from_slice(said.as_bytes());
    tree.set("/dev/kmsg", Node::File(log)).unwrap();
    let mut host = SimHost::restored("sim:fsp", tree, host.state().clone());
    let ending = peerway_write::roll_back(grant(&mut store), &mut host, SETTINGS, "again").unwrap();
    assert!(matches!(ending, Ending::TakenBack { .. }), "{ending:?}");
}

/// Whatever moment of the ladder a process ends in, the next one takes it to the first state.
#[test]
fn a_crash_on_the_ladder_is_recovered() {
    let (host, plan) = reported();
    let first = Essence::of(&host);
    let mut store = MemoryStore::default();
    let mut fallen = host;
    whys(&apply(&mut store, &mut fallen, &plan).unwrap());
    let mut watched = Watched::new(fallen, &store);
    peerway_write::recover(grant(&mut store), &mut watched, RESET).unwrap();
    watched.look(true);
    let moments = watched.moments.into_inner();
    assert!(moments.len() > 12, "{} moments", moments.len());
    for (number, moment) in moments.iter().enumerate() {
        let mut store = MemoryStore::with(moment.journal.clone());
        let mut host = moment.host.clone();
        host.restart();
        let ending = recover_with(&mut store, &mut host, RESET);
        let over = matches!(ending, Ending::TakenBack { .. } | Ending::Nothing);
        assert!(over, "moment {number}: {ending:?}");
        let now = Essence::of(&host);
        assert!(now.same_host(&first), "moment {number}: {}", first.difference(&now));
        assert!(host.state().latched.is_empty(), "moment {number}");
    }
}

/// The plan would have come to it later: what it had not begun to take from a driver is nobody's to bind anew.
#[test]
fn a_device_that_was_left_alone_is_not_bound_anew() {
    let (mut host, plan) = reported();
    let mut store = MemoryStore::default();
    whys(&apply(&mut store, &mut host, &plan).unwrap());
    let journal = Journal::open(&mut store).unwrap();
    let open = journal.open_transaction().unwrap();
    let begun: Vec<_> =
        plan.goal.devices.iter().filter(|one| open.driver_before(**one).is_some()).collect();
    // The canary alone.
    assert_eq!(begun, [&plan.goal.devices[0]]);
    assert_eq!(open.driver_before(plan.goal.devices[0]).as_deref(), Some("nvidia"));
}
