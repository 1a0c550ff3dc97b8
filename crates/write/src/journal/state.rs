//! What the records of a transaction come to.

use std::collections::BTreeMap;

use peerway_core::address::PciAddress;
use peerway_roads::op::Found;
use peerway_roads::service::Service;
use peerway_roads::{Op, Outcome, Plan};

use super::{End, Entry, Way};
use crate::untouched::Untouched;

/// Where a transaction stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// Steps are being taken, or the process that took them is gone.
    Forward,
    /// Verified; the operator has the word until then (seconds since boot).
    Waiting {
        /// Seconds since boot.
        until: u64,
    },
    /// Confirmed; what is left is to finish.
    Confirmed,
    /// It is being taken back.
    Back,
    /// It is being taken back, and somebody holds a device.
    PendingHolder,
    /// A step could not be taken back.
    Remains {
        /// Which.
        step: u32,
        /// Why.
        why: String,
    },
    /// It is over.
    Over(End),
}

impl State {
    /// Its word, as in `history`.
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Forward => "applying",
            Self::Waiting { .. } => "waiting for confirm",
            Self::Confirmed => "confirming",
            Self::Back => "rolling back",
            Self::PendingHolder => "pending holder",
            Self::Remains { .. } => "not taken back",
            Self::Over(End::Succeeded) => "succeeded",
            Self::Over(End::TakenBack) => "taken back",
            Self::Over(End::GoneWithBoot) => "gone with boot",
        }
    }
}

/// A step that was begun, with what was found before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Begun {
    /// Number in the plan.
    pub step: u32,
    /// The act as planned.
    pub act: Op,
    /// What was in place.
    pub found: Found,
}

/// The records of one transaction.
#[derive(Clone, Debug)]
pub struct Transaction<'j> {
    entries: Vec<&'j Entry>,
}

pub(super) fn transactions(entries: &[Entry]) -> Vec<Transaction<'_>> {
    let mut all: Vec<Transaction<'_>> = Vec::new();
    let mut current = 0;
    for entry in entries {
        match entry {
            Entry::Begin { .. } => {
                current = all.len();
                all.push(Transaction { entries: Vec::new() });
            }
            Entry::Reopened { id } | Entry::Proved { id } => {
                let named = |one: &Transaction<'_>| one.begin().is_some_and(|(own, ..)| own == id);
                current = all.iter().position(named).unwrap_or(current);
            }
            _ => {}
        }
        if let Some(one) = all.get_mut(current) {
            one.entries.push(entry);
        }
    }
    all
}

impl<'j> Transaction<'j> {
    /// Name, plan, boot, time, and what is compared of everybody else.
    pub fn begin(&self) -> Option<(&'j str, &'j Plan, Option<&'j str>, &'j str, &'j Untouched)> {
        match self.entries.first() {
            Some(Entry::Begin { id, plan, boot_id, began, untouched, .. }) => {
                Some((id, plan, boot_id.as_deref(), began, untouched))
            }
            _ => None,
        }
    }

    /// Its records.
    pub fn entries(&self) -> &[&'j Entry] {
        &self.entries
    }

    /// How it ended.
    pub fn end(&self) -> Option<(End, &'j str)> {
        match self.entries.last() {
            Some(Entry::End { end, ended, .. }) => Some((*end, ended)),
            _ => None,
        }
    }

    /// Where it stands.
    pub fn state(&self) -> State {
        let mut state = State::Forward;
        for entry in &self.entries {
            match entry {
                Entry::Waiting { until, .. } => state = State::Waiting { until: *until },
                Entry::Confirmed | Entry::Proved { .. } => state = State::Confirmed,
                Entry::TurningBack { .. } => state = State::Back,
                Entry::PendingHolder { .. } => state = State::PendingHolder,
                Entry::Remains { step, why } => {
                    state = State::Remains { step: *step, why: why.clone() };
                }
                Entry::End { end, .. } => state = State::Over(*end),
                Entry::Intent { way: Way::Back, .. } | Entry::Reopened { .. } => {
                    state = State::Back;
                }
                Entry::Begin { .. }
                | Entry::Intent { way: Way::Forward, .. }
                | Entry::Done { .. }
                | Entry::Doubt { .. }
                | Entry::Rising { .. }
                | Entry::Fallen { .. }
                | Entry::Risen { .. }
                | Entry::Failed { .. } => {}
            }
        }
        state
    }

    /// Whether it was confirmed and not turned back since.
    pub fn is_confirmed(&self) -> bool {
        let turning = |entry: &&&Entry| {
            matches!(entry, Entry::Confirmed | Entry::Proved { .. } | Entry::TurningBack { .. })
        };
        let last = self.entries.iter().rev().find(turning);
        matches!(last, Some(Entry::Confirmed | Entry::Proved { .. })) && !self.is_reopened()
    }

    fn is_reopened(&self) -> bool {
        self.entries.iter().any(|entry| matches!(entry, Entry::Reopened { .. }))
    }

    /// Whether it is on its way back, with the reason and the outcome.
    pub fn turned_back(&self) -> Option<(&'j str, Option<&'j Outcome>)> {
        self.entries.iter().rev().find_map(|entry| match entry {
            Entry::TurningBack { why, outcome } => Some((why.as_str(), outcome.as_deref())),
            _ => None,
        })
    }

    /// Whether the journal says already that it is taken back from here.
    pub fn is_turned(&self) -> bool {
        match self.state() {
            State::Back => true,
            State::PendingHolder | State::Remains { .. } => {
                self.turned_back().is_some() && !self.is_confirmed()
            }
            _ => false,
        }
    }

    /// Last record of the kernel log when the change was in place.
    pub fn mark(&self) -> Option<u64> {
        self.entries.iter().rev().find_map(|entry| match entry {
            Entry::Waiting { mark, .. } => Some(*mark),
            _ => None,
        })
    }

    /// Steps that were begun and not taken back, in the order in which they were begun.
    pub fn begun(&self) -> Vec<Begun> {
        let mut begun: Vec<Begun> = Vec::new();
        for entry in &self.entries {
            match entry {
                Entry::Intent { step, way: Way::Forward, act, found }
                    if *step > 0 && !begun.iter().any(|one| one.step == *step) =>
                {
                    begun.push(Begun { step: *step, act: act.clone(), found: found.clone() });
                }
                Entry::Done { step, way: Way::Back } => begun.retain(|one| one.step != *step),
                _ => {}
            }
        }
        begun
    }

    /// Devices that were bound again, or were about to be, before it was said how that went: with their drivers
    /// and the last record of the kernel log before.
    pub fn rising(&self) -> BTreeMap<PciAddress, (String, u64)> {
        let mut rising = BTreeMap::new();
        for entry in &self.entries {
            match entry {
                Entry::Rising { device, driver, mark } => {
                    rising.insert(*device, (driver.clone(), *mark));
                }
                Entry::Risen { device } | Entry::Fallen { device, .. } => {
                    rising.remove(device);
                }
                _ => {}
            }
        }
        rising
    }

    /// Devices that were bound again and did not come up, with their drivers and what those say.
    pub fn fallen(&self) -> BTreeMap<PciAddress, (String, String)> {
        let mut fallen = BTreeMap::new();
        for entry in &self.entries {
            match entry {
                Entry::Fallen { device, driver, why } => {
                    fallen.insert(*device, (driver.clone(), why.clone()));
                }
                Entry::Risen { device } => {
                    fallen.remove(device);
                }
                _ => {}
            }
        }
        fallen
    }

    /// The driver from which the plan began to take a device; none of what it left alone.
    pub fn driver_before(&self, device: PciAddress) -> Option<String> {
        self.entries.iter().find_map(|entry| match entry {
            Entry::Intent {
                way: Way::Forward, act: Op::Unbind { device: one, driver }, ..
            } if *one == device => Some(driver.clone()),
            _ => None,
        })
    }

    /// Steps that were carried out.
    pub fn done(&self) -> Vec<u32> {
        let mut done = Vec::new();
        for entry in &self.entries {
            match entry {
                Entry::Done { step, way: Way::Forward } => done.push(*step),
                Entry::Done { step, way: Way::Back } => done.retain(|one| one != step),
                _ => {}
            }
        }
        done
    }

    /// What was found before the first act of a kind.
    fn first_found(&self, test: impl Fn(&Op) -> bool) -> Option<&'j Found> {
        self.entries.iter().find_map(|entry| match entry {
            Entry::Intent { act, found, .. } if test(act) => Some(found),
            _ => None,
        })
    }

    /// Mode of a node before its fence.
    pub fn mode_before(&self, node: &str) -> Option<u32> {
        let fence = |act: &Op| matches!(act, Op::Fence { node: one, .. } if one == node);
        match self.first_found(fence)? {
            Found::Value(text) => text.parse().ok(),
            Found::Nothing => None,
        }
    }

    /// Persistence of a device before it was switched.
    pub fn persistence_before(&self, device: PciAddress) -> Option<bool> {
        let switch =
            |act: &Op| matches!(act, Op::Persistence { device: one, .. } if *one == device);
        match self.first_found(switch)? {
            Found::Value(text) => Some(text == "on"),
            Found::Nothing => None,
        }
    }

    /// Whether a service ran before it was stopped.
    pub fn ran_before(&self, service: &Service) -> bool {
        let stop = |act: &Op| matches!(act, Op::Stop { service: one } if one == service);
        self.first_found(stop) == Some(&Found::Value("running".to_owned()))
    }
}
