//! Why a changing command came to nothing.

use peerway_cli_read::Exit;
use peerway_roads::plan::NotBefore;
use peerway_write::grant::GrantError;
use peerway_write::journal::JournalError;
use peerway_write::transaction::TransactionError;
use thiserror::Error;

use crate::place::PlaceError;

#[derive(Debug, Error)]
pub(super) enum ChangeError {
    #[error(transparent)]
    Place(#[from] PlaceError),
    #[error(transparent)]
    Transaction(#[from] TransactionError),
    #[error("cannot read the plan {path:?}: {why}; write one with peerway plan ROAD -o FILE")]
    Plan { path: String, why: String },
    #[error(transparent)]
    NotBefore(#[from] NotBefore),
    #[error("cannot start the timer that takes it back: {0}")]
    Timer(std::io::Error),
    #[error("cannot watch for signals: {0}")]
    Signals(std::io::Error),
    #[error("cannot render the answer: {0}")]
    Render(serde_json::Error),
}

impl ChangeError {
    /// Its exit code, given whether a transaction was left open.
    pub(super) fn exit(&self, left: bool) -> Exit {
        match self {
            _ if left => Exit::NotTakenBack,
            Self::Plan { .. } => Exit::Usage,
            Self::Place(PlaceError::NoSuchSimulation(_) | PlaceError::NoState) => Exit::Usage,
            Self::Transaction(TransactionError::Grant(GrantError::Journal(
                JournalError::Damaged { .. },
            ))) => Exit::NotTakenBack,
            Self::Place(_) | Self::Transaction(_) | Self::NotBefore(_) => Exit::Refused,
            Self::Timer(_) | Self::Signals(_) | Self::Render(_) => Exit::Internal,
        }
    }
}
