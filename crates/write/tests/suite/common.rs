//! Simulated hosts, their plans, and runs over them.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::atomic::AtomicBool;

use peerway_core::address::PciAddress;
use peerway_core::diagnose::pairs::{PairScope, judge_all};
use peerway_core::snapshot::Snapshot;
use peerway_read::root::Root;
use peerway_read::tree::Node;
use peerway_roads::op::{ENVIRONMENT_FILE, Found};
use peerway_roads::{Constraints, Knowledge, Op, Plan, PlanError, Request, RoadId};
use peerway_sim::build::walk;
use peerway_sim::react::SimHost;
use peerway_write::grant::Place;
use peerway_write::mutator::{Copied, Host, Mutator};
use peerway_write::store::MemoryStore;
use peerway_write::transaction::{Ending, Ladder, Settings, TransactionError};
use peerway_write::{WriteError, WriteGrant};

pub(crate) static QUIET: AtomicBool = AtomicBool::new(false);

pub(crate) const SETTINGS: Settings<'static> =
    Settings { confirm_within: 600, interrupted: &QUIET, ladder: Ladder::Leave };

pub(crate) fn named(name: &str) -> SimHost {
    SimHost::named(name).unwrap().unwrap()
}

/// A host whose boards come up under identity.
pub(crate) fn healthy_boards() -> SimHost {
    let mut host = named("fsp");
    host.state_mut().fails_under_identity = false;
    host
}

pub(crate) fn plan(host: &SimHost, road: RoadId) -> Result<Plan, PlanError> {
    plan_knowing(host, road, &Knowledge::builtin())
}

pub(crate) fn plan_knowing(
    host: &SimHost,
    road: RoadId,
    knowledge: &Knowledge,
) -> Result<Plan, PlanError> {
    let snapshot = host.snapshot();
    let pairs = judge_all(&snapshot, &PairScope::default());
    let request = Request {
        snapshot: &snapshot,
        pairs: &pairs,
        constraints: &Constraints::default(),
        knowledge,
        gains: &BTreeMap::new(),
        in_force: &BTreeMap::new(),
        faults: &[],
    };
    peerway_roads::plan(&request, road)
}

pub(crate) fn grant(store: &mut MemoryStore) -> WriteGrant<'_> {
    WriteGrant::take(store, Place::Simulated).unwrap()
}

pub(crate) fn apply(
    store: &mut MemoryStore,
    host: &mut dyn Host,
    plan: &Plan,
) -> Result<Ending, TransactionError> {
    peerway_write::apply(grant(store), host, plan, SETTINGS)
}

pub(crate) fn confirm(
    store: &mut MemoryStore,
    host: &mut dyn Host,
) -> Result<Ending, TransactionError> {
    peerway_write::confirm(grant(store), host, SETTINGS)
}

pub(crate) fn recover(
    store: &mut MemoryStore,
    host: &mut dyn Host,
) -> Result<Ending, TransactionError> {
    peerway_write::recover(grant(store), host, SETTINGS)
}

/// Applies and, where it comes to that, confirms.
pub(crate) fn run(
    store: &mut MemoryStore,
    host: &mut dyn Host,
    plan: &Plan,
) -> Result<Ending, TransactionError> {
    match apply(store, host, plan)? {
        Ending::Waiting { .. } => confirm(store, host),
        other => Ok(other),
    }
}

/// Everything of a host that a transaction could change, and the environment apart.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Essence {
    files: BTreeMap<String, Node>,
    /// Nodes of devices that have another mode than they were made with.
    modes: BTreeMap<String, u32>,
    hidden: String,
    pub(crate) environment: Option<String>,
}

impl std::fmt::Debug for Essence {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { files, modes, hidden, environment } = self;
        write!(out, "{} files, {modes:?}, {hidden}, {environment:?}", files.len())
    }
}

impl Essence {
    pub(crate) fn of(host: &SimHost) -> Self {
        let mut files = BTreeMap::new();
        let mut environment = None;
        walk(host.tree(), &mut |path, node| match (path, node) {
            ("/dev/kmsg", _) | (_, Node::Directory(_)) => {}
            (ENVIRONMENT_FILE, Node::File(bytes)) => {
                environment = Some(String::from_utf8(bytes.clone()).unwrap());
            }
            _ => {
                files.insert(path.to_owned(), node.clone());
            }
        });
        let state = host.state();
        let hidden = format!(
            "{:?} {:?} {:?} {:?}",
            state.persistent,
            state.services.keys(),
            state.entries,
            state.stuck
        );
        Self { files, modes: state.modes.clone(), hidden, environment }
    }

    /// The same but for the environment.
    pub(crate) fn same_host(&self, other: &Self) -> bool {
        self.modes == other.modes && self.same_but_for_fences(other)
    }

    /// The same host, with all of its fences or more: nobody new is let in.
    pub(crate) fn at_least_as_closed(&self, other: &Self) -> bool {
        let stands = |(node, mode): (&String, &u32)| self.modes.get(node) == Some(mode);
        other.modes.iter().all(stands) && self.same_but_for_fences(other)
    }

    fn same_but_for_fences(&self, other: &Self) -> bool {
        self.files == other.files && self.hidden == other.hidden
    }

    /// What differs, for messages.
    pub(crate) fn difference(&self, other: &Self) -> String {
        let all = self.files.keys().chain(other.files.keys());
        let mut lines: Vec<String> = all
            .filter(|path| self.files.get(*path) != other.files.get(*path))
            .map(|path| format!("{path}: {:?} / {:?}", self.files.get(path), other.files.get(path)))
            .collect();
        lines.push(format!("{:?} / {:?}", self.modes, other.modes));
        lines.push(format!("{} / {}", self.hidden, other.hidden));
        lines.push(format!("{:?} / {:?}", self.environment, other.environment));
        lines.join("\n")
    }
}

/// A moment at which the process may end: the journal as it is on disk, and the host.
#[derive(Clone)]
pub(crate) struct Moment {
    pub(crate) journal: Vec<u8>,
    pub(crate) host: SimHost,
}

/// A host that remembers every moment of a run.
pub(crate) struct Watched {
    pub(crate) inner: SimHost,
    store: MemoryStore,
    pub(crate) moments: RefCell<Vec<Moment>>,
}

impl Watched {
    pub(crate) fn new(inner: SimHost, store: &MemoryStore) -> Self {
        Self { inner, store: store.clone(), moments: RefCell::default() }
    }

    pub(crate) fn look(&self, changed: bool) {
        let journal = self.store.bytes();
        let mut moments = self.moments.borrow_mut();
        let known = moments.last().is_some_and(|last| last.journal == journal);
        if changed || !known {
            moments.push(Moment { journal, host: self.inner.clone() });
        }
    }
}

impl Mutator for Watched {
    fn current(&self, act: &Op) -> Result<Found, WriteError> {
        self.look(false);
        Mutator::current(&self.inner, act)
    }

    fn perform(&mut self, act: &Op) -> Result<(), WriteError> {
        self.look(false);
        let done = Mutator::perform(&mut self.inner, act);
        self.look(true);
        done
    }

    fn is_stuck(&self, device: PciAddress) -> bool {
        Mutator::is_stuck(&self.inner, device)
    }
}

impl Host for Watched {
    fn root(&self) -> Result<Root, WriteError> {
        self.look(false);
        Host::root(&self.inner)
    }

    fn snapshot(&self) -> Result<Snapshot, WriteError> {
        self.look(false);
        Host::snapshot(&self.inner)
    }

    fn uptime(&self) -> u64 {
        self.inner.uptime()
    }

    fn wall(&self) -> String {
        self.look(false);
        self.inner.wall()
    }

    fn pause(&mut self, seconds: u64) {
        self.look(false);
        self.inner.pause(seconds);
    }

    fn copies(&mut self, pairs: &[(PciAddress, PciAddress)]) -> Result<Vec<Copied>, WriteError> {
        self.look(false);
        Host::copies(&mut self.inner, pairs)
    }
}
