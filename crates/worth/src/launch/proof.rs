//! What proves that peer access works: a measurement of `peerway test`.

use serde_json::Value;
use thiserror::Error;

/// A measurement in which every pair was right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// GPUs that it covers.
    pub gpus: usize,
    /// Ordered pairs.
    pub pairs: usize,
    /// Whether kernels of the GPUs themselves read and wrote, over memory shared between processes:
    /// what one-shot kernels do. Copy engines prove nothing about them.
    pub kernels: bool,
}

/// Why a measurement proves nothing.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ProofError {
    /// Not JSON.
    #[error("the measurement is not JSON: {0}")]
    NotJson(String),
    /// A pair that was not right.
    #[error("{from} to {to} ({mode}, {engine}) was {verdict}")]
    NotIntact {
        /// Requester.
        from: String,
        /// Target.
        to: String,
        /// Mode.
        mode: String,
        /// Engine.
        engine: String,
        /// What it was.
        verdict: String,
    },
    /// Not every pair of enough GPUs.
    #[error("it covers {pairs} ordered pairs of {gpus} GPUs; {wanted} GPUs have {all}")]
    TooFew {
        /// Pairs that were measured.
        pairs: usize,
        /// GPUs among them.
        gpus: usize,
        /// GPUs of the layout.
        wanted: usize,
        /// Their pairs.
        all: usize,
    },
    /// All-reduce over peers was wrong or not measured.
    #[error("all-reduce of {wanted} GPUs over peer access was not measured right")]
    AllReduce {
        /// GPUs of the layout.
        wanted: usize,
    },
}

impl Proof {
    /// From the JSON of `peerway test`, for so many GPUs.
    ///
    /// # Errors
    /// What is missing or was wrong.
    pub fn from_test(text: &str, ranks: u32) -> Result<Self, ProofError> {
        let value: Value =
            serde_json::from_str(text).map_err(|error| ProofError::NotJson(error.to_string()))?;
        let wanted = usize::try_from(ranks).unwrap_or(usize::MAX);
        let list = |name: &str| value.get(name).and_then(Value::as_array).map_or(&[][..], |l| l);
        let word = |row: &Value, name: &str| {
            row.get(name).and_then(Value::as_str).unwrap_or("unknown").to_owned()
        };
        let mut ordered = std::collections::BTreeSet::new();
        let mut by_kernels = std::collections::BTreeSet::new();
        let mut gpus = std::collections::BTreeSet::new();
        for row in list("pairs") {
            let (from, to) = (word(row, "from"), word(row, "to"));
            let (mode, engine) = (word(row, "mode"), word(row, "engine"));
            let verdict = word(row, "verdict");
            if verdict != "intact" {
                return Err(ProofError::NotIntact { from, to, mode, engine, verdict });
            }
            gpus.extend([from.clone(), to.clone()]);
            if engine == "sm" && mode == "ipc" {
                by_kernels.insert((from.clone(), to.clone()));
            }
            ordered.insert((from, to));
        }
        let all = gpus.len() * gpus.len().saturating_sub(1);
        if gpus.len() < wanted || ordered.len() < all {
            return Err(ProofError::TooFew {
                pairs: ordered.len(),
                gpus: gpus.len(),
                wanted,
                all: wanted.saturating_mul(wanted.saturating_sub(1)),
            });
        }
        let sums: Vec<&Value> = list("all_reduce")
            .iter()
            .filter(|row| {
                row.get("arm").and_then(Value::as_str) == Some("p2p")
                    && row.get("gpus").and_then(Value::as_array).map_or(0, Vec::len) >= wanted
            })
            .collect();
        let right = |row: &&Value| row.get("verdict").and_then(Value::as_str) == Some("intact");
        if sums.is_empty() || !sums.iter().all(right) {
            return Err(ProofError::AllReduce { wanted });
        }
        Ok(Self { gpus: gpus.len(), pairs: ordered.len(), kernels: by_kernels.len() == all })
    }
}
