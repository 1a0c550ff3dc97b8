//! Why a command did nothing, or stopped.

use peerway_roads::plan::{Difference, Invalid};
use thiserror::Error;

use crate::grant::GrantError;
use crate::journal::JournalError;
use crate::mutator::WriteError;
use crate::scope::Outside;

/// Why a command did nothing, or stopped.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum TransactionError {
    /// No grant.
    #[error(transparent)]
    Grant(#[from] GrantError),
    /// The plan is not one as it was made.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// It was made for another host.
    #[error("the plan was made for host {planned}, and this is {here}; make a plan here")]
    OtherHost {
        /// By the plan.
        planned: String,
        /// This one.
        here: String,
    },
    /// It was made before the host was booted.
    #[error("the plan was made before this boot; make a new plan")]
    OtherBoot,
    /// The host is not as the plan has it.
    #[error("stale plan: {}; make a new plan", spell(.0))]
    Stale(Vec<Difference>),
    /// A step reaches beyond the goal.
    #[error(transparent)]
    Outside(#[from] Outside),
    /// This host, or this program, does not do what the plan asks.
    #[error("not carried out here: {0}")]
    NotOffered(String),
    /// A process has one of the devices, and no step of the plan stops it.
    #[error("{}; stop what holds the devices, or name it when the plan is made (--stop)", .0.join("; "))]
    Held(Vec<String>),
    /// Data was not seen to arrive.
    #[error("peer access is not proved on this boot: {0}")]
    NotProved(String),
    /// There is nothing to confirm.
    #[error("there is nothing to confirm; {0}")]
    NothingToConfirm(&'static str),
    /// The journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A look failed before anything was changed.
    #[error(transparent)]
    Look(#[from] WriteError),
    /// The process ended here (simulated hosts).
    #[error("the process ended here; run recover")]
    Stopped,
}

/// The first differences, and how many there are.
pub(super) fn spell(differences: &[Difference]) -> String {
    const SHOWN: usize = 5;
    let shown = |text: &Option<String>| text.clone().unwrap_or_else(|| "nothing".to_owned());
    let mut parts: Vec<String> = differences
        .iter()
        .take(SHOWN)
        .map(|one| {
            let (planned, now) = (shown(&one.planned), shown(&one.now));
            format!("{} was {planned}, is {now}", one.source)
        })
        .collect();
    if differences.len() > SHOWN {
        parts.push(format!("and {} more", differences.len() - SHOWN));
    }
    parts.join("; ")
}
