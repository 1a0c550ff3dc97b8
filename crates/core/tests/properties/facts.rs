//! A snapshot as a list of facts, each of which can be taken away or replaced.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use peerway_core::address::PciAddress;
use peerway_core::diagnose::pairs::{PairScope, judge_all};
use peerway_core::judge::{Pair, Verdict};
use peerway_core::snapshot::{OriginKind, Snapshot};
use peerway_read::host::{Request, collect};
use peerway_read::root::Root;
use peerway_read::tree::Tree;
use peerway_sim::hosts;
use serde_json::{Value, json};

/// Verdicts by ordered pair.
pub(crate) type Verdicts = BTreeMap<(PciAddress, PciAddress), Pair>;

/// Verdicts on all pairs, those across tenants too, so that no change of an owner hides one.
pub(crate) fn verdicts(snapshot: &Snapshot) -> Verdicts {
    let scope = PairScope { across_tenants: true, ..PairScope::default() };
    judge_all(snapshot, &scope).into_iter().map(|pair| ((pair.from, pair.to), pair)).collect()
}

/// What the real reader sees of a recorded host.
pub(crate) fn look(tree: Tree) -> Snapshot {
    let root = Root::recorded(Arc::new(tree));
    let request = Request {
        host: "property".to_owned(),
        kind: OriginKind::Simulated,
        privileged: true,
        ..Request::default()
    };
    collect(&root, request)
}

/// The hosts with expectations, by name, as the reader sees them.
pub(crate) fn hosts() -> Vec<(&'static str, Snapshot)> {
    let host =
        |host: peerway_sim::expect::ExpectedHost| (host.name, look(host.builder.tree().unwrap()));
    hosts::all().into_iter().map(host).collect()
}

/// Whether data is said to arrive.
pub(crate) fn arrives(verdict: Verdict) -> bool {
    matches!(verdict, Verdict::Works | Verdict::Impaired)
}

/// A part of a snapshot that is written and read by itself, so that a change of one fact costs no
/// more than it must.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Part {
    /// One device.
    Device(usize),
    /// One group.
    Group(usize),
    /// Everything that belongs to no device and no group.
    Rest,
}

/// One observation of a snapshot, or something established.
#[derive(Clone, Debug)]
pub(crate) struct Fact {
    part: Part,
    steps: Vec<Step>,
    /// What was read.
    pub(crate) value: Value,
}

#[derive(Clone, Debug)]
enum Step {
    Name(String),
    Index(usize),
}

impl Fact {
    /// What kind of fact it is: its name without the numbers.
    pub(crate) fn kind(&self) -> String {
        let part = match self.part {
            Part::Device(_) => Some("devices"),
            Part::Group(_) => Some("groups"),
            Part::Rest => None,
        };
        let names = self.steps.iter().filter_map(|step| match step {
            Step::Name(name) if name == "value" => None,
            Step::Name(name) => Some(name.as_str()),
            Step::Index(_) => None,
        });
        part.into_iter().chain(names).collect::<Vec<_>>().join(".")
    }

    /// Whether there is something to take away.
    pub(crate) fn is_read(&self) -> bool {
        matches!(self.value["state"].as_str(), Some("known" | "absent" | "yes" | "no"))
    }

    /// The same fact, not read.
    pub(crate) fn taken_away(&self) -> Value {
        if self.value.get("evidence").is_some() {
            json!({"state": "unknown", "evidence": []})
        } else {
            json!({"state": "unreadable", "value": "taken away"})
        }
    }
}

/// A host whose facts can be replaced one at a time.
pub(crate) struct Facts<'a> {
    snapshot: &'a Snapshot,
    /// The snapshot without its devices and groups.
    rest: Value,
}

impl<'a> Facts<'a> {
    pub(crate) fn of(snapshot: &'a Snapshot) -> Self {
        let bare = Snapshot { devices: Vec::new(), groups: Vec::new(), ..snapshot.clone() };
        Self { snapshot, rest: serde_json::to_value(bare).unwrap() }
    }

    fn value(&self, part: Part) -> Value {
        match part {
            Part::Device(at) => serde_json::to_value(&self.snapshot.devices[at]).unwrap(),
            Part::Group(at) => serde_json::to_value(&self.snapshot.groups[at]).unwrap(),
            Part::Rest => self.rest.clone(),
        }
    }

    /// The facts that can bear on a pair: those of the devices that make pairs, of the bridges
    /// above them, of the host bridges, and of the host.
    pub(crate) fn list(&self) -> Vec<Fact> {
        let snapshot = self.snapshot;
        let concerned: BTreeSet<PciAddress> = snapshot
            .accelerated()
            .into_iter()
            .flat_map(|device| device.ancestors.iter().copied().chain([device.address]))
            .collect();
        let mut parts = vec![Part::Rest];
        parts.extend((0..snapshot.groups.len()).filter_map(|at| {
            let members = &snapshot.groups[at].devices;
            members.iter().any(|one| concerned.contains(one)).then_some(Part::Group(at))
        }));
        parts.extend((0..snapshot.devices.len()).filter_map(|at| {
            let device = &snapshot.devices[at];
            let is_host_bridge = device.ancestors.is_empty() && device.address.device() == 0;
            (is_host_bridge || concerned.contains(&device.address)).then_some(Part::Device(at))
        }));
        let mut facts = Vec::new();
        for part in parts {
            walk(part, &self.value(part), &mut Vec::new(), &mut facts);
        }
        facts
    }

    /// The snapshot with another value of a fact; `None` where it does not fit there.
    pub(crate) fn with(&self, fact: &Fact, value: Value) -> Option<Snapshot> {
        let mut part = self.value(fact.part);
        let place = fact.steps.iter().fold(&mut part, |place, step| match step {
            Step::Name(name) => &mut place[name.as_str()],
            Step::Index(at) => &mut place[*at],
        });
        *place = value;
        let mut snapshot;
        match fact.part {
            Part::Device(at) => {
                snapshot = self.snapshot.clone();
                snapshot.devices[at] = serde_json::from_value(part).ok()?;
            }
            Part::Group(at) => {
                snapshot = self.snapshot.clone();
                snapshot.groups[at] = serde_json::from_value(part).ok()?;
            }
            Part::Rest => {
                snapshot = serde_json::from_value(part).ok()?;
                snapshot.devices.clone_from(&self.snapshot.devices);
                snapshot.groups.clone_from(&self.snapshot.groups);
            }
        }
        Some(snapshot)
    }
}

fn walk(part: Part, value: &Value, steps: &mut Vec<Step>, found: &mut Vec<Fact>) {
    match value {
        Value::Object(fields) => {
            if fields.contains_key("state") {
                found.push(Fact { part, steps: steps.clone(), value: value.clone() });
            }
            for (name, inner) in fields {
                steps.push(Step::Name(name.clone()));
                walk(part, inner, steps, found);
                steps.pop();
            }
        }
        Value::Array(items) => {
            for (at, inner) in items.iter().enumerate() {
                steps.push(Step::Index(at));
                walk(part, inner, steps, found);
                steps.pop();
            }
        }
        _ => {}
    }
}
