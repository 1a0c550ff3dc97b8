//! What a host lets itself be asked and told.

use peerway_core::address::PciAddress;
use peerway_core::observed::Observed;
use peerway_core::snapshot::iommu::DomainType;
use peerway_core::snapshot::tenant::Holder;
use peerway_core::snapshot::{Gap, Snapshot};
use peerway_read::root::Root;
use peerway_roads::op::Found;
use peerway_roads::{Op, Plan};
use rustix::io::Errno;
use thiserror::Error;

/// Why a change, or a look before one, did not happen.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum WriteError {
    /// The kernel, or a program that was asked, refused.
    #[error("{act}: {}", std::io::Error::from(*errno))]
    Refused {
        /// The act and the thing.
        act: String,
        /// With what.
        errno: Errno,
    },
    /// The call does not come back; a process holds the device. It may still finish later.
    #[error("{act}: the call does not come back")]
    Hangs {
        /// The act and the thing.
        act: String,
    },
    /// Nothing that was looked at can be told.
    #[error("{act}: {why}")]
    Unreadable {
        /// The act and the thing.
        act: String,
        /// Why.
        why: String,
    },
    /// This host cannot be told to do that.
    #[error("{act}: {why}")]
    NotOffered {
        /// The act and the thing.
        act: String,
        /// Why.
        why: String,
    },
    /// The process ends here (simulated hosts only): nothing that follows may run.
    #[error("the process ended in the middle of {act}")]
    Stopped {
        /// The act and the thing.
        act: String,
    },
}

/// An act with the thing, for messages.
pub fn spell(act: &Op) -> String {
    match (act, act.path()) {
        (Op::Unbind { device, driver } | Op::Probe { device, driver }, _) => {
            format!("{} of {device} ({driver})", act.word())
        }
        (_, Some(path)) => format!("{} of {path}", act.word()),
        (_, None) => format!("{}: {}", act.word(), act.set()),
    }
}

/// The writing half of a host.
pub trait Mutator {
    /// What is in place where an act would change something.
    fn current(&self, act: &Op) -> Result<Found, WriteError>;
    /// Makes the change. Never called for a wait, nor for an act whose meaning lies in the journal
    /// ([`Op::Restart`], [`Op::Unfence`], [`Op::RestorePersistence`]).
    fn perform(&mut self, act: &Op) -> Result<(), WriteError>;
    /// Whether an earlier unbinding of the device is still under way in the kernel.
    fn is_stuck(&self, device: PciAddress) -> bool;
    /// A change of an earlier process that the kernel has not finished: whatever is read meanwhile
    /// may still become something else.
    fn under_way(&self) -> Option<String> {
        None
    }
}

/// What became of a copy between two devices, checked by the owner of the memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    /// Requester.
    pub from: PciAddress,
    /// Target.
    pub to: PciAddress,
    /// Whether every byte arrived.
    pub intact: bool,
    /// What the one who looked says about it.
    pub detail: String,
}

/// A host: written by [`Mutator`], seen through the reader.
pub trait Host: Mutator {
    /// A root to read files through.
    fn root(&self) -> Result<Root, WriteError>;
    /// A fresh look at everything.
    fn snapshot(&self) -> Result<Snapshot, WriteError>;
    /// Who holds devices now, and what could not be looked into: the part of a look that is needed
    /// before each act that would harm a holder.
    fn holders(&self) -> Result<(Observed<Vec<Holder>>, Vec<Gap>), WriteError> {
        let snapshot = self.snapshot()?;
        Ok((snapshot.holders, snapshot.gaps))
    }
    /// Seconds since boot, asleep or not (`CLOCK_BOOTTIME`): deadlines survive a set clock.
    fn uptime(&self) -> u64;
    /// The time of day for people, RFC 3339.
    fn wall(&self) -> String;
    /// Lets seconds pass.
    fn pause(&mut self, seconds: u64);
    /// Keeps what a transaction needs beside its plan, so that later commands have it. Called after
    /// everything that refuses, and before the first record; an error refuses too.
    fn keep_for(&mut self, _id: &str) -> Result<(), WriteError> {
        Ok(())
    }
    /// Takes up a transaction: what was kept for it counts, and what can be changed is limited to
    /// what its plan names. Called before the first act of each, and of each way back.
    fn take_up(&mut self, _id: &str, _plan: &Plan) {}
    /// Why a plan is not carried out here at all; nothing was changed.
    fn refuses(&self, _plan: &Plan) -> Option<String> {
        None
    }
    /// What only a look into the kernel's tables tells to be not as the plan made it, one line each.
    fn inspect(&self, _plan: &Plan) -> Result<Vec<String>, WriteError> {
        Ok(Vec::new())
    }
    /// Copies from each first device into the memory of the second, data checked by its owner.
    fn copies(&mut self, pairs: &[(PciAddress, PciAddress)]) -> Result<Vec<Copied>, WriteError>;
}

/// Whether what is in place is what an act would make of it.
pub fn is_reached(act: &Op, found: &Found) -> bool {
    let value = match found {
        Found::Nothing => None,
        Found::Value(text) => Some(text.as_str()),
    };
    match act {
        Op::WriteEnvironment { content, .. } | Op::Install { content, .. } => {
            value == Some(content)
        }
        Op::RemoveEnvironment
        | Op::ClearOverride { .. }
        | Op::Unbind { .. }
        | Op::Uninstall { .. } => value.is_none(),
        Op::Stop { .. } => value != Some("running"),
        Op::Start { .. } | Op::Restart { .. } => value == Some("running"),
        // A node that is gone has nothing to be let through; whoever makes it anew gives it a mode.
        Op::Fence { mode, .. } => value.map_or(*mode != 0, |text| *text == mode.to_string()),
        Op::Persistence { on, .. } => value == Some(if *on { "on" } else { "off" }),
        Op::SetOverride { driver, .. } | Op::Probe { driver, .. } => value == Some(driver),
        Op::WriteGroupType { to, .. } => value.is_some_and(|word| {
            DomainType::from_word(to).may_read_as(&DomainType::from_word(word))
        }),
        Op::WriteAcs { mask, bits, .. } => value
            .and_then(|text| text.parse::<u16>().ok())
            .is_some_and(|word| word & mask == bits & mask),
        Op::LoadModule { .. } => value == Some("loaded"),
        Op::UnloadModule { .. } => value != Some("loaded"),
        Op::Map(_) => value == Some("mapped"),
        Op::Unmap(_) => value != Some("mapped"),
        Op::Nothing => true,
        // Known only once they were tried.
        Op::Reset { .. } | Op::Wait { .. } | Op::Unfence { .. } | Op::RestorePersistence { .. } => {
            false
        }
    }
}
