//! Failures to come, told beforehand.

use std::collections::BTreeMap;

use peerway_roads::Op;
use rustix::io::Errno;

/// How a change goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// Refused, and nothing happened.
    Refused(Errno),
    /// It happened, and the call says otherwise.
    DoneAndRefused(Errno),
    /// The call does not come back.
    Hangs,
    /// The call says that it happened, and it did not.
    Lies,
    /// The process ends before the call.
    StopsBefore,
    /// The process ends while the call is in the kernel, which finishes it.
    StopsAfter,
}

/// Failures by the number of the change, and acts that fail as long as the script says so.
#[derive(Clone, Debug, Default)]
pub struct Script {
    count: u64,
    at: BTreeMap<u64, How>,
    always: Vec<(Op, How)>,
}

impl Script {
    /// The change with this number, from 1, goes wrong; the count starts now.
    pub fn at(&mut self, number: u64, how: How) {
        self.at.insert(self.count + number, how);
    }

    /// An act goes wrong every time.
    pub fn always(&mut self, act: &Op, how: How) {
        self.always.push((act.clone(), how));
    }

    /// Nothing goes wrong any more.
    pub fn clear(&mut self) {
        self.at.clear();
        self.always.clear();
    }

    /// Changes made so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    pub(super) fn next(&mut self, act: &Op) -> Option<How> {
        self.count += 1;
        self.at
            .remove(&self.count)
            .or_else(|| self.always.iter().find(|(one, _)| one == act).map(|(_, how)| *how))
    }
}
