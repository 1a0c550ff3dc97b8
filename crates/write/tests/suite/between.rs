//! What happens between two acts, or between two boots: jobs that begin, things that get lost, a
//! disk that fails, a plan that somebody else wrote.

use peerway_core::address::PciAddress;
use peerway_core::snapshot::Snapshot;
use peerway_read::root::Root;
use peerway_read::tree::Node;
use peerway_roads::op::{ENVIRONMENT_FILE, Environment, Found};
use peerway_roads::{Op, RoadId};
use peerway_sim::react::SimHost;
use peerway_write::journal::Entry;
use peerway_write::mutator::{Copied, Host, Mutator};
use peerway_write::store::{MemoryStore, Store, StoreError};
use peerway_write::transaction::Ending;
use peerway_write::{Journal, WriteError};
use rustix::io::Errno;

use crate::common::*;
use crate::transaction::kind;

const JOB: u32 = 88888;

/// What is asked of a host of the tests is asked of the simulated one in it.
macro_rules! as_its_inner_host {
    ($host:ty) => {
        impl Host for $host {
            fn root(&self) -> Result<Root, WriteError> {
                Host::root(&self.inner)
            }

            fn snapshot(&self) -> Result<Snapshot, WriteError> {
                Host::snapshot(&self.inner)
            }

            fn uptime(&self) -> u64 {
                self.inner.uptime()
            }

            fn wall(&self) -> String {
                self.inner.wall()
            }

            fn pause(&mut self, seconds: u64) {
                self.inner.pause(seconds);
            }

            fn copies(
                &mut self,
                pairs: &[(PciAddress, PciAddress)],
            ) -> Result<Vec<Copied>, WriteError> {
                Host::copies(&mut self.inner, pairs)
            }
        }
    };
}

/// A host on which a job begins once so many acts were done.
struct Intruded {
    inner: SimHost,
    acts: usize,
    begins_after: usize,
}

impl Intruded {
    fn begins(&mut self) {
        if self.acts == self.begins_after {
            self.inner.start_process(
                JOB,
                "python3",
                "/system.slice/job.service",
                &["/dev/nvidia0"],
            );
        }
    }
}

impl Mutator for Intruded {
    fn current(&self, act: &Op) -> Result<Found, WriteError> {
        Mutator::current(&self.inner, act)
    }

    fn perform(&mut self, act: &Op) -> Result<(), WriteError> {
        let harms = matches!(
            act,
            Op::Unbind { .. }
                | Op::Probe { .. }
                | Op::WriteGroupType { .. }
                | Op::Map(_)
                | Op::Unmap(_)
        );
        let there = self.inner.root().list(&format!("/proc/{JOB}")).is_ok();
        assert!(!(harms && there), "{} with a job on the device", act.word());
        let done = Mutator::perform(&mut self.inner, act);
        self.acts += 1;
        self.begins();
        done
    }

    fn is_stuck(&self, device: PciAddress) -> bool {
        Mutator::is_stuck(&self.inner, device)
    }
}

as_its_inner_host!(Intruded);

/// A host on which a driver goes and comes back while the operator's word is carried out: right before the
/// environment lets jobs in.
struct Rebound {
    inner: SimHost,
    device: PciAddress,
}

impl Mutator for Rebound {
    fn current(&self, act: &Op) -> Result<Found, WriteError> {
        Mutator::current(&self.inner, act)
    }

    fn perform(&mut self, act: &Op) -> Result<(), WriteError> {
        if matches!(act, Op::WriteEnvironment { kind: Environment::Lifted, .. }) {
            let (device, driver) = (self.device, "nvidia".to_owned());
            Mutator::perform(&mut self.inner, &Op::Unbind { device, driver: driver.clone() })?;
            Mutator::perform(&mut self.inner, &Op::Probe { device, driver })?;
        }
        Mutator::perform(&mut self.inner, act)
    }

    fn is_stuck(&self, device: PciAddress) -> bool {
        Mutator::is_stuck(&self.inner, device)
    }
}

as_its_inner_host!(Rebound);

#[test]
fn nobody_is_let_in_to_a_map_that_was_lost_under_the_word() {
    let host = named("kpro6-pve7");
    let plan = plan(&host, RoadId::PeerMap).unwrap();
    let first = Essence::of(&host);
    let mut store = MemoryStore::default();
    let mut host = Rebound { inner: host, device: plan.goal.devices[1] };
    assert_eq!(kind(&apply(&mut store, &mut host, &plan).unwrap()), "waiting");
    let ending = confirm(&mut store, &mut host).unwrap();
    let Ending::TakenBack { why, .. } = &ending else { panic!("{ending:?}") };
    assert!(why.contains("is gone"), "{why}");
    let now = Essence::of(&host.inner);
    assert!(now.same_host(&first), "{}", first.difference(&now));
    assert!(now.environment.is_none_or(|text| text.contains("NCCL_P2P_DISABLE=1")));
}

/// At whatever act a job begins: nothing that would harm it is done from there on, and once it is
/// gone, the first state is back.
#[test]
fn a_job_that_begins_meanwhile_is_never_harmed() {
    for (host, road) in
        [(named("kpro6-pve7"), RoadId::PeerMap), (healthy_boards(), RoadId::IdentityGroups)]
    {
        let plan = plan(&host, road).unwrap();
        let first = Essence::of(&host);
        let (mut met, mut begins_after) = (0, 1);
        loop {
            let mut store = MemoryStore::default();
            let mut intruded = Intruded { inner: host.clone(), acts: 0, begins_after };
            let ending = apply(&mut store, &mut intruded, &plan).unwrap();
            if intruded.acts < begins_after {
                assert_eq!(kind(&ending), "waiting", "{road}: without a job");
                break;
            }
            let mut host = intruded.inner;
            host.end_process(JOB);
            match ending {
                // It began after the last act that would have harmed it.
                Ending::Waiting { .. } => {
                    peerway_write::roll_back(grant(&mut store), &mut host, SETTINGS, "test")
                        .unwrap();
                }
                Ending::PendingHolder { holders, .. } => {
                    met += 1;
                    assert!(holders[0].contains("88888 (python3"), "{holders:?}");
                    assert_eq!(kind(&recover(&mut store, &mut host).unwrap()), "taken back");
                }
                Ending::TakenBack { why, .. } => assert!(why.contains("88888"), "{why}"),
                other => panic!("{road}, act {begins_after}: {other:?}"),
            }
            let now = Essence::of(&host);
            assert!(now == first, "{road}, act {begins_after}: {}", first.difference(&now));
            begins_after += 1;
        }
        assert!(met > 3, "{road}: met {met} times");
    }
}

/// The same host after a boot, with everything that a boot does not undo left as it is: what was in
/// `/run` is gone.
fn booted(host: &SimHost) -> SimHost {
    let mut tree = host.tree().clone();
    tree.remove(ENVIRONMENT_FILE);
    let id = b"ffffffff-0000-4000-8000-000000000000\n".to_vec();
    tree.set("/proc/sys/kernel/random/boot_id", Node::File(id)).unwrap();
    SimHost::restored("sim:kpro6-pve7", tree, host.state().clone())
}

#[test]
fn nothing_is_taken_back_on_another_boot() {
    let mut host = named("kpro6-pve7");
    let plan = plan(&host, RoadId::PeerMap).unwrap();
    let mut store = MemoryStore::default();
    apply(&mut store, &mut host, &plan).unwrap();
    let back: [(&str, fn(&mut MemoryStore, &mut SimHost) -> Ending); 3] = [
        ("rollback", |store, host| {
            peerway_write::roll_back(grant(store), host, SETTINGS, "test").unwrap()
        }),
        ("undo", |store, host| {
            let endings = peerway_write::recovery::undo_all(grant(store), host, SETTINGS).unwrap();
            endings.into_iter().next().unwrap()
        }),
        ("recover", |store, host| recover(store, host).unwrap()),
    ];
    for (name, command) in back {
        let mut store = MemoryStore::with(store.bytes());
        let mut host = booted(&host);
        let before = Essence::of(&host);
        assert_eq!(kind(&command(&mut store, &mut host)), "gone with boot", "{name}");
        let now = Essence::of(&host);
        assert!(now.same_host(&before), "{name}: {}", before.difference(&now));
        // Jobs of this boot begin without peer access; who undoes all leaves nothing of ours.
        let safe = now.environment.as_ref().map(|text| text.contains("NCCL_P2P_DISABLE=1"));
        assert_eq!(safe, (name != "undo").then_some(true), "{name}");
        let endings = peerway_write::recovery::undo_all(grant(&mut store), &mut host, SETTINGS);
        assert_eq!(endings.unwrap(), [], "{name}");
        assert_eq!(Essence::of(&host).environment, None, "{name}");
        assert!(Journal::open(&mut store).unwrap().open_transaction().is_none(), "{name}");
    }
}

/// The word was given and the process ended before jobs were let in; meanwhile the map was lost.
#[test]
fn a_confirmation_that_was_cut_off_lets_nobody_in_unseen() {
    let mut host = named("kpro6-pve7");
    let plan = plan(&host, RoadId::PeerMap).unwrap();
    let first = Essence::of(&host);
    let mut store = MemoryStore::default();
    apply(&mut store, &mut host, &plan).unwrap();
    Journal::open(&mut store).unwrap().append(Entry::Confirmed).unwrap();
    for lost in [false, true] {
        let mut store = MemoryStore::with(store.bytes());
        let mut host = host.clone();
        if lost {
            host.state_mut().entries.pop_first().unwrap();
        }
        let ending = recover(&mut store, &mut host).unwrap();
        let now = Essence::of(&host);
        if lost {
            assert_eq!(kind(&ending), "taken back", "{ending:?}");
            assert!(now == first, "{}", first.difference(&now));
        } else {
            assert_eq!(kind(&ending), "succeeded", "{ending:?}");
            assert!(!now.environment.unwrap().contains("NCCL_P2P_DISABLE"));
        }
    }
}

/// A disk that takes some of what is appended, and says no.
#[derive(Clone)]
struct Failing {
    inner: MemoryStore,
    takes: usize,
    fails: bool,
    cuts: bool,
}

impl Store for Failing {
    fn read(&self) -> Result<Vec<u8>, StoreError> {
        self.inner.read()
    }

    fn append(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        if !self.fails {
            return self.inner.append(bytes);
        }
        self.inner.append(&bytes[..self.takes.min(bytes.len())])?;
        self.fails = false;
        Err(StoreError::Call { act: "sync", path: "x".to_owned(), errno: Errno::IO })
    }

    fn truncate(&mut self, length: u64) -> Result<(), StoreError> {
        if self.cuts {
            return self.inner.truncate(length);
        }
        Err(StoreError::Call { act: "cut", path: "x".to_owned(), errno: Errno::IO })
    }

    fn reserve(&mut self, bytes: u64) -> Result<(), StoreError> {
        self.inner.reserve(bytes)
    }

    fn place(&self) -> String {
        self.inner.place()
    }
}

#[test]
fn a_record_that_failed_is_never_built_upon() {
    for takes in [0, 1, 40, 4096] {
        for cuts in [true, false] {
            let inner = MemoryStore::default();
            let mut store = Failing { inner: inner.clone(), takes, fails: false, cuts };
            let mut journal = Journal::open(&mut store).unwrap();
            journal.append(Entry::Confirmed).unwrap();
            drop(journal);
            store.fails = true;
            let mut journal = Journal::open(&mut store).unwrap();
            journal.append(Entry::Confirmed).unwrap_err();
            let again = journal.append(Entry::Confirmed);
            assert_eq!(again.is_ok(), cuts, "{takes} bytes: {again:?}");
            let mut store = MemoryStore::with(inner.bytes());
            let read = Journal::open(&mut store);
            let records = read.map(|journal| journal.entries().len());
            assert!(matches!(records, Ok(1 | 2)), "{takes} bytes, {cuts}: {records:?}");
        }
    }
}

#[test]
fn a_plan_that_fences_what_is_not_the_goals_is_refused() {
    let host = named("kpro6-pve7");
    let plan = plan(&host, RoadId::PeerMap).unwrap();
    let fence = plan.steps.iter().position(|step| matches!(step.act, Op::Fence { .. })).unwrap();
    for (node, mode, says) in [
        ("/dev/nvidia9", 0, "no node of the goal's"),
        ("/dev/mem", 0, "no node of the goal's"),
        ("/dev/nvidia0", 0o666, "would open"),
    ] {
        let mut forged = plan.clone();
        forged.steps[fence].act = Op::Fence { node: node.to_owned(), mode };
        let error = peerway_write::scope::check(&forged, &host.snapshot()).unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
    }
    peerway_write::scope::check(&plan, &host.snapshot()).unwrap();
}

#[test]
fn a_plan_that_stops_what_is_not_the_goals_is_refused() {
    let host = named("kpro6-pve7");
    let plan = plan(&host, RoadId::PeerMap).unwrap();
    for (service, says) in [
        ("unit:pve-container@204.service", "which is lxc:204"),
        ("unit:132.scope", "which is vm:132"),
        ("qm:132", "which is vm:132"),
        ("unit:ssh.service", "which others run in too"),
    ] {
        let mut forged = plan.clone();
        forged.steps[0].act = Op::Stop { service: service.parse().unwrap() };
        let error = peerway_write::scope::check(&forged, &host.snapshot()).unwrap_err();
        assert!(error.to_string().contains(says), "{error}");
    }
}

#[test]
fn a_plan_says_all_that_it_protects() {
    let host = named("kpro6-pve7");
    let plan = plan(&host, RoadId::PeerMap).unwrap();
    let snapshot = host.snapshot();
    assert_eq!(plan.unprotected(&snapshot), Vec::<String>::new());
    let mut forged = plan.clone();
    let guest = forged.protects.iter_mut().find(|one| !one.devices.is_empty()).unwrap();
    let (device, tenant) = (guest.devices.remove(0), guest.tenant.clone());
    assert_eq!(forged.unprotected(&snapshot), [format!("{device} of {tenant}")]);
    forged.protects.clear();
    assert!(forged.unprotected(&snapshot).len() >= 4, "{:?}", forged.unprotected(&snapshot));
}

/// A device that is handed to user space is held by whoever has its node, and a node that leads
/// nowhere may be anyone's.
#[test]
fn who_holds_is_told_by_the_device_and_not_by_the_name() {
    let device: PciAddress = "0000:01:00.0".parse().unwrap();
    let sibling: PciAddress = "0000:01:00.1".parse().unwrap();
    let other: PciAddress = "0000:81:00.0".parse().unwrap();
    for (node, leads_to, of, held) in [
        ("/dev/uio0", Some(device), device, true),
        ("/dev/uio0", Some(sibling), device, true),
        ("/dev/uio0", Some(other), device, false),
        ("/dev/uio0", None, device, true),
        ("/dev/accel/accel0", None, device, true),
        ("/dev/null", None, device, false),
    ] {
        let mut host = named("kpro6-pve7");
        if let Some(leads_to) = leads_to {
            let mut tree = host.tree().clone();
            let link = Node::Link(format!("../../../{leads_to}"));
            tree.set("/sys/class/uio/uio0/device", link).unwrap();
            host = SimHost::restored("sim:kpro6-pve7", tree, host.state().clone());
        }
        host.start_process(JOB, "python3", "/system.slice/job.service", &[node]);
        let holders = peerway_write::wait::holders(&host, &[of]).unwrap();
        let found = holders.iter().any(|holder| holder.contains("88888"));
        assert_eq!(found, held, "{node} {leads_to:?}: {holders:?}");
    }
}
