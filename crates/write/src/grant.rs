//! The right to change a host. One process at a time has it: whoever opened the store holds its lock
//! (`store.rs`).

use thiserror::Error;

use crate::journal::{Journal, JournalError, State};
use crate::store::Store;

/// Why there is no grant.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum GrantError {
    /// The journal cannot be used.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// Something is under way or was left.
    #[error("transaction {id} is not over ({state}); {advice}")]
    Unfinished {
        /// Its name.
        id: String,
        /// Where it stands.
        state: &'static str,
        /// What to do.
        advice: &'static str,
    },
    /// Only root changes a host.
    #[error("only root can change a host; run it as root")]
    NotRoot,
    /// What stands for the host is not one that runs.
    #[error("{0} is not a running host; changes are made on live hosts and simulated ones only")]
    NotAHost(String),
}

/// The token without which nothing is changed. Its only constructor checks root and place and opens
/// the journal; whether something is left undone is asked by `apply` alone, since the other commands
/// are there to end that. The lock lasts as long as the store that it borrows.
#[derive(Debug)]
pub struct WriteGrant<'s> {
    pub(crate) journal: Journal<'s>,
}

/// On what a grant is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place<'a> {
    /// This machine: needs root and a mounted sysfs.
    Live {
        /// Whether the caller is root of the initial user namespace.
        is_root: bool,
        /// Whether the root's `sys` is the kernel's own.
        has_sysfs: bool,
    },
    /// A simulated host.
    Simulated,
    /// Something else.
    Other(&'a str),
}

impl<'s> WriteGrant<'s> {
    /// Takes the grant over a store, whose lock the caller holds by having opened it. Unfinished
    /// transactions are allowed: recovery begins so.
    pub fn take(store: &'s mut dyn Store, place: Place<'_>) -> Result<Self, GrantError> {
        match place {
            Place::Live { is_root: false, .. } => return Err(GrantError::NotRoot),
            Place::Live { has_sysfs: false, .. } => {
                return Err(GrantError::NotAHost("a tree without a mounted sysfs".to_owned()));
            }
            Place::Other(name) => return Err(GrantError::NotAHost(name.to_owned())),
            Place::Live { .. } | Place::Simulated => {}
        }
        Ok(Self { journal: Journal::open(store)? })
    }

    /// Refuses where a transaction is not over.
    pub(crate) fn nothing_left(&self) -> Result<(), GrantError> {
        let Some(open) = self.journal.open_transaction() else { return Ok(()) };
        let state = open.state();
        let advice = match state {
            State::Waiting { .. } => "confirm it or roll it back first",
            State::PendingHolder => "stop what holds the devices, and run recover",
            _ => "run recover first",
        };
        let id = open.begin().map_or("", |(id, ..)| id).to_owned();
        Err(GrantError::Unfinished { id, state: state.word(), advice })
    }

    /// The journal.
    pub fn journal(&self) -> &Journal<'s> {
        &self.journal
    }
}
