//! What the way back meets: boards that are dead, logs that are gone, nodes and groups that are not
//! what they were.

use std::cell::Cell;
use std::sync::Arc;

use peerway_core::address::PciAddress;
use peerway_core::observed::Observed;
use peerway_core::snapshot::Snapshot;
use peerway_read::root::{KMSG, Root};
use peerway_read::tree::{Node, Tree};
use peerway_roads::op::Found;
use peerway_roads::{Op, Plan, RoadId};
use peerway_sim::build::walk;
use peerway_sim::react::{How, SimHost};
use peerway_write::mutator::{Copied, Host, Mutator};
use peerway_write::store::MemoryStore;
use peerway_write::transaction::Ending;
use peerway_write::{WriteError, roll_back};
use rustix::io::Errno;

use crate::common::*;
use crate::transaction::kind;

/// A host on which identity groups wait for the operator's word, as it was before, and the journal.
fn waiting() -> (SimHost, Essence, Plan, MemoryStore) {
    let mut host = healthy_boards();
    let first = Essence::of(&host);
    let plan = plan(&host, RoadId::IdentityGroups).unwrap();
    let mut store = MemoryStore::default();
    assert_eq!(kind(&apply(&mut store, &mut host, &plan).unwrap()), "waiting");
    (host, first, plan, store)
}

fn taken_back(store: &mut MemoryStore, host: &mut dyn Host) -> Vec<String> {
    match roll_back(grant(store), host, SETTINGS, "test").unwrap() {
        Ending::TakenBack { doubts, .. } => doubts,
        other => panic!("{other:?}"),
    }
}

fn type_of(host: &SimHost, device: PciAddress) -> String {
    let path = format!("/sys/bus/pci/devices/{device}/iommu_group/type");
    host.root().text(&path, 64).unwrap()
}

/// Whichever board is dead: all others are as they were, and everything that remains has a name.
#[test]
fn a_dead_board_leaves_no_other_one_changed() {
    let (waiting, first, plan, store) = waiting();
    assert!(plan.goal.devices.len() > 2);
    for dead in &plan.goal.devices {
        let mut store = MemoryStore::with(store.bytes());
        let mut host = waiting.clone();
        let unbind = Op::Unbind { device: *dead, driver: "nvidia".to_owned() };
        host.script_mut().always(&unbind, How::Refused(Errno::NODEV));
        for _ in 0..2 {
            let ending = roll_back(grant(&mut store), &mut host, SETTINGS, "test").unwrap();
            let Ending::Remains { left, .. } = &ending else { panic!("{dead}: {ending:?}") };
            assert!(left[0].why.contains(&dead.to_string()), "{left:?}");
            for one in &plan.goal.devices {
                let expected = if one == dead { "identity" } else { "DMA-FQ" };
                assert_eq!(type_of(&host, *one), expected, "{one} with {dead} dead");
            }
            // Nobody is let in with peer access, and nothing of the host as a whole went on.
            let environment = Essence::of(&host).environment.unwrap();
            assert!(environment.contains("NCCL_P2P_DISABLE=1"), "{environment}");
            let named: Vec<u32> = left.iter().map(|one| one.step).collect();
            let mut last_first = named.clone();
            last_first.sort_by(|one, other| other.cmp(one));
            assert_eq!(named, last_first, "{left:?}");
        }
        host.script_mut().clear();
        let ending = recover(&mut store, &mut host).unwrap();
        assert_eq!(kind(&ending), "taken back", "{ending:?}");
        let now = Essence::of(&host);
        assert!(now == first, "{dead}: {}", first.difference(&now));
    }
}

/// A host that differs in one way from the simulated one behind it.
struct Odd {
    inner: SimHost,
    how: Way,
    roots: Cell<u32>,
    /// How often more it does not answer.
    busy: Cell<u32>,
    /// Transactions for which it was told to keep what they need.
    kept: Vec<String>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// The kernel log cannot be read.
    NoLog,
    /// The ring is overwritten after the first look at it.
    Overwritten,
    /// Nobody has opened the boards since they were bound: no UUID is shown.
    Unopened,
    /// Overrides are not answered for in time at first.
    Busy,
    /// The nodes are gone.
    NoNodes,
    /// In none.
    Plain,
}

impl Odd {
    fn new(inner: SimHost, how: Way) -> Self {
        Self { inner, how, roots: Cell::new(0), busy: Cell::new(2), kept: Vec::new() }
    }
}

impl Mutator for Odd {
    fn current(&self, act: &Op) -> Result<Found, WriteError> {
        match act {
            Op::Fence { .. } if self.how == Way::NoNodes => Ok(Found::Nothing),
            Op::SetOverride { .. } if self.how == Way::Busy && self.busy.get() > 0 => {
                self.busy.set(self.busy.get() - 1);
                let why = "no answer within a second".to_owned();
                Err(WriteError::Unreadable { act: "reading an override".to_owned(), why })
            }
            _ => Mutator::current(&self.inner, act),
        }
    }

    fn perform(&mut self, act: &Op) -> Result<(), WriteError> {
        match act {
            Op::Fence { node, .. } if self.how == Way::NoNodes => {
                Err(WriteError::Refused { act: node.clone(), errno: Errno::NOENT })
            }
            _ => Mutator::perform(&mut self.inner, act),
        }
    }

    fn is_stuck(&self, device: PciAddress) -> bool {
        Mutator::is_stuck(&self.inner, device)
    }
}

impl Host for Odd {
    fn root(&self) -> Result<Root, WriteError> {
        let mut tree: Tree = self.inner.tree().clone();
        self.roots.set(self.roots.get() + 1);
        match self.how {
            Way::NoLog => tree.set(KMSG, Node::Fails(Errno::IO)).unwrap(),
            Way::Overwritten if self.roots.get() > 2 => {
                let later = b"6,99999999,99999999,-;something else\n".to_vec();
                tree.set(KMSG, Node::File(later)).unwrap();
            }
            _ => {}
        }
        Ok(Root::recorded(Arc::new(tree)))
    }

    fn snapshot(&self) -> Result<Snapshot, WriteError> {
        let mut snapshot = Host::snapshot(&self.inner)?;
        if self.how == Way::Unopened
            && let Observed::Known(gpus) = &mut snapshot.nvidia.gpus
        {
            gpus.iter_mut().for_each(|gpu| gpu.uuid = Observed::Absent);
        }
        Ok(snapshot)
    }

    fn uptime(&self) -> u64 {
        self.inner.uptime()
    }

    fn wall(&self) -> String {
        self.inner.wall()
    }

    fn keep_for(&mut self, id: &str) -> Result<(), WriteError> {
        self.kept.push(id.to_owned());
        Ok(())
    }

    fn pause(&mut self, seconds: u64) {
        self.inner.pause(seconds);
    }

    fn copies(&mut self, pairs: &[(PciAddress, PciAddress)]) -> Result<Vec<Copied>, WriteError> {
        Host::copies(&mut self.inner, pairs)
    }
}

/// What cannot be told about the way back is said, and stops nothing.
#[test]
fn a_log_that_cannot_be_read_keeps_nothing_changed() {
    for (how, says) in
        [(Way::NoLog, "input/output error"), (Way::Overwritten, "records of the kernel log")]
    {
        let (host, first, _, mut store) = waiting();
        let mut odd = Odd::new(host, how);
        let doubts = taken_back(&mut store, &mut odd);
        assert!(doubts.iter().any(|doubt| doubt.contains(says)), "{says}: {doubts:?}");
        let now = Essence::of(&odd.inner);
        assert!(now == first, "{says}: {}", first.difference(&now));
        let journal = peerway_write::Journal::open(&mut store).unwrap();
        let record = peerway_write::history::history(&journal).pop().unwrap();
        assert!(record.why.unwrap().contains(says));
    }
}

/// A file that does not answer in time is asked again, and not for ever.
#[test]
fn a_busy_host_is_asked_again() {
    let (host, first, _, mut store) = waiting();
    let mut odd = Odd::new(host, Way::Busy);
    assert_eq!(taken_back(&mut store, &mut odd), Vec::<String>::new());
    assert!(Essence::of(&odd.inner) == first);
    let (host, first, _, mut store) = waiting();
    let mut odd = Odd::new(host, Way::Busy);
    // Once to see whether a holder would be harmed, and then the tries.
    odd.busy.set(4);
    let ending = roll_back(grant(&mut store), &mut odd, SETTINGS, "test").unwrap();
    let Ending::Remains { left, .. } = &ending else { panic!("{ending:?}") };
    assert!(left[0].why.contains("no answer within a second"), "{left:?}");
    assert_eq!(taken_back(&mut store, &mut odd), Vec::<String>::new());
    assert!(Essence::of(&odd.inner) == first);
}

/// A board comes up when it is first opened, and not when it is bound.
#[test]
fn a_board_that_nobody_opened_is_not_said_to_be_well() {
    let (host, first, plan, mut store) = waiting();
    let mut odd = Odd::new(host, Way::Unopened);
    let doubts = taken_back(&mut store, &mut odd);
    assert_eq!(doubts.len(), plan.goal.devices.len(), "{doubts:?}");
    for (doubt, device) in doubts.iter().zip(&plan.goal.devices) {
        assert!(doubt.contains(&format!("{device} comes up")), "{doubt}");
    }
    assert!(Essence::of(&odd.inner) == first);
}

#[test]
fn a_fence_on_a_node_that_is_gone_is_over() {
    let (host, first, _, mut store) = waiting();
    let mut odd = Odd::new(host, Way::NoNodes);
    assert_eq!(taken_back(&mut store, &mut odd), Vec::<String>::new());
    // The nodes of the host behind it are there still, and nobody touched them.
    odd.inner.state_mut().modes.clear();
    let now = Essence::of(&odd.inner);
    assert!(now == first, "{}", first.difference(&now));
}

/// The same host with other numbers of its groups, as after a removal and a new search.
fn renumbered(host: &SimHost) -> SimHost {
    const GROUPS: &str = "/sys/kernel/iommu_groups/";
    let other = |number: &str| number.parse::<u32>().map(|number| (number + 500).to_string());
    let mut tree = host.tree().clone();
    let mut changed = Vec::new();
    walk(host.tree(), &mut |path, node| match node {
        Node::Link(target) if path.ends_with("/iommu_group") => {
            let (before, number) = target.rsplit_once('/').unwrap();
            let target = format!("{before}/{}", other(number).unwrap());
            changed.push((path.to_owned(), Node::Link(target)));
        }
        node => {
            let Some((number, rest)) =
                path.strip_prefix(GROUPS).and_then(|rest| rest.split_once('/'))
            else {
                return;
            };
            if !matches!(node, Node::Directory(_)) {
                let path = format!("{GROUPS}{}/{rest}", other(number).unwrap());
                changed.push((path, node.clone()));
            }
        }
    });
    let old = host.root().list(GROUPS).unwrap();
    for number in old {
        tree.remove(&format!("{GROUPS}{number}"));
    }
    for (path, node) in changed {
        tree.set(&path, node).unwrap();
    }
    SimHost::restored("sim:fsp", tree, host.state().clone())
}

#[test]
fn groups_are_found_by_their_members_whatever_their_numbers() {
    let (host, _, plan, mut store) = waiting();
    let mut host = renumbered(&host);
    assert_eq!(type_of(&host, plan.goal.devices[0]), "identity");
    assert_eq!(taken_back(&mut store, &mut host), Vec::<String>::new());
    for device in &plan.goal.devices {
        assert_eq!(type_of(&host, *device), "DMA-FQ");
    }
}

/// Told `DMA-FQ`, a group without a queue for deferred flushes reads `DMA`.
#[test]
fn strict_instead_of_lazy_is_taken_back_and_said() {
    let (mut host, _, plan, mut store) = waiting();
    host.state_mut().no_flush_queue = true;
    let doubts = taken_back(&mut store, &mut host);
    assert_eq!(doubts.len(), plan.goal.devices.len(), "{doubts:?}");
    assert!(doubts.iter().all(|doubt| doubt.contains("strict invalidation")), "{doubts:?}");
    for device in &plan.goal.devices {
        assert_eq!(type_of(&host, *device), "DMA");
    }
}

/// What a transaction needs beside its plan is kept with it when it begins: one that is refused
/// replaces nothing.
#[test]
fn a_plan_that_is_refused_replaces_nothing_that_is_kept() {
    let host = healthy_boards();
    let plan = plan(&host, RoadId::IdentityGroups).unwrap();
    let mut store = MemoryStore::default();
    let mut odd = Odd::new(host, Way::Plain);
    let mut stale = odd.inner.tree().clone();
    let id = b"ffffffff-0000-4000-8000-000000000000\n".to_vec();
    stale.set("/proc/sys/kernel/random/boot_id", Node::File(id)).unwrap();
    let mut other = Odd::new(SimHost::restored("sim:fsp", stale, Default::default()), Way::Plain);
    apply(&mut store, &mut other, &plan).unwrap_err();
    assert_eq!(other.kept, Vec::<String>::new());
    assert_eq!(kind(&apply(&mut store, &mut odd, &plan).unwrap()), "waiting");
    apply(&mut store, &mut odd, &plan).unwrap_err();
    assert_eq!(odd.kept, ["t000001"]);
    assert_eq!(taken_back(&mut store, &mut odd), Vec::<String>::new());
}
