//! A simulated host behind the same traits as a live one.

use peerway_core::address::PciAddress;
use peerway_core::snapshot::Snapshot;
use peerway_read::root::Root;
use peerway_roads::Op;
use peerway_roads::op::Found;
use peerway_sim::react::{Arrived, SimError, SimHost};

use crate::mutator::{Copied, Host, Mutator, WriteError, spell};

fn error(act: &Op, error: SimError) -> WriteError {
    let act = spell(act);
    match error {
        SimError::Errno(errno) => WriteError::Refused { act, errno },
        SimError::Hangs => WriteError::Hangs { act },
        SimError::Stopped => WriteError::Stopped { act },
        SimError::NoRule(why) => WriteError::NotOffered { act, why },
    }
}

impl Mutator for SimHost {
    fn current(&self, act: &Op) -> Result<Found, WriteError> {
        SimHost::current(self, act).map_err(|why| error(act, why))
    }

    fn perform(&mut self, act: &Op) -> Result<(), WriteError> {
        SimHost::perform(self, act).map_err(|why| error(act, why))
    }

    fn is_stuck(&self, device: PciAddress) -> bool {
        SimHost::is_stuck(self, device)
    }
}

impl Host for SimHost {
    fn root(&self) -> Result<Root, WriteError> {
        Ok(SimHost::root(self))
    }

    fn snapshot(&self) -> Result<Snapshot, WriteError> {
        Ok(SimHost::snapshot(self))
    }

    fn uptime(&self) -> u64 {
        self.now()
    }

    fn wall(&self) -> String {
        // A day of the simulation's own: boots at midnight.
        let now = self.now();
        let (hours, minutes, seconds) = (now / 3600 % 24, now / 60 % 60, now % 60);
        format!("2026-01-{:02}T{hours:02}:{minutes:02}:{seconds:02}Z", now / 86_400 % 31 + 1)
    }

    fn pause(&mut self, seconds: u64) {
        self.pass(seconds);
    }

    fn copies(&mut self, pairs: &[(PciAddress, PciAddress)]) -> Result<Vec<Copied>, WriteError> {
        let all = SimHost::copies(self, pairs);
        let copied = |((from, to), arrived): (&(PciAddress, PciAddress), Arrived)| Copied {
            from: *from,
            to: *to,
            intact: arrived == Arrived::Intact,
            detail: format!("{arrived:?}").to_lowercase(),
        };
        Ok(pairs.iter().zip(all).map(copied).collect())
    }
}
