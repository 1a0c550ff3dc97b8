//! What proves that peer access works: a measurement of `peerway test`.

use std::collections::BTreeSet;

use serde_json::Value;
use thiserror::Error;

use crate::layout::Layout;

/// A measurement in which everything was right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proof {
    /// PCI addresses of the GPUs that it covers: the launch is for these and no others.
    pub gpus: Vec<String>,
    /// Ordered pairs.
    pub pairs: usize,
    /// Whether kernels of the GPUs themselves read and wrote, over memory shared between processes
    /// for every pair, and between all GPUs at once: what one-shot kernels do. Copy engines prove
    /// nothing about them.
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
    #[error("{from} to {to} ({how}) was {verdict}")]
    NotIntact {
        /// Requester.
        from: String,
        /// Target.
        to: String,
        /// Mode and engine, and the operation where it is one of several.
        how: String,
        /// What it was.
        verdict: String,
    },
    /// Transfers at once that were not right.
    #[error("several transfers at once ({how}) were {verdict}")]
    Together {
        /// Pattern and engine.
        how: String,
        /// What they were.
        verdict: String,
    },
    /// Too little of the memory was tried.
    #[error("the test's depth is {depth:?}, which tries a small part of the memory: use standard")]
    Depth {
        /// What the document says.
        depth: String,
    },
    /// Something was recorded meanwhile that must not happen in a sound transfer.
    #[error("{what} meanwhile ({place})")]
    Recorded {
        /// What.
        what: &'static str,
        /// Of which pair or work.
        place: String,
    },
    /// Data was wrong between host and GPU.
    #[error("data was wrong on the way between the host and {gpu}")]
    Host {
        /// Which.
        gpu: String,
    },
    /// The check itself does not work on a GPU.
    #[error(
        "the check itself failed on {gpu}, or was not tried there, so its verdicts prove nothing"
    )]
    Unchecked {
        /// Which.
        gpu: String,
    },
    /// Not every pair of enough GPUs.
    #[error(
        "it covers {pairs} ordered pairs of {gpus} GPUs; the {wanted} GPUs of the layout have {all}: \
         measure all of them, or launch each replica by itself with its own measurement"
    )]
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
        /// GPUs of a tensor-parallel set.
        wanted: usize,
    },
}

fn list<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    value.get(name).and_then(Value::as_array).map_or(&[][..], |list| list)
}

fn word(row: &Value, name: &str) -> String {
    row.get(name).and_then(Value::as_str).unwrap_or("unknown").to_owned()
}

fn intact(row: &Value) -> bool {
    row.get("verdict").and_then(Value::as_str) == Some("intact")
}

/// What the host recorded during a row that a sound transfer does not cause; errors that the
/// hardware repaired may be.
fn recorded(evidence: &Value) -> Option<&'static str> {
    let lanes = |link: &Value, name: &str| link.get(name).and_then(Value::as_u64);
    let narrowed = |link: &Value| lanes(link, "lanes_least") < lanes(link, "lanes_before");
    if !list(evidence, "faults").is_empty() {
        Some("requests were refused")
    } else if !list(evidence, "xids").is_empty() {
        Some("the driver reported errors")
    } else if list(evidence, "bus_errors").iter().any(|one| word(one, "severity") != "correctable")
    {
        Some("requests were lost on the bus")
    } else if list(evidence, "links").iter().any(narrowed) {
        Some("a link lost lanes")
    } else {
        let lost = evidence.get("lost").and_then(Value::as_u64).is_some_and(|lost| lost > 0);
        let unseen = lost || !list(evidence, "gaps").is_empty();
        unseen.then_some("what the host recorded could not be seen whole")
    }
}

fn quiet(evidence: Option<&Value>, place: impl FnOnce() -> String) -> Result<(), ProofError> {
    match evidence.and_then(recorded) {
        Some(what) => Err(ProofError::Recorded { what, place: place() }),
        None => Ok(()),
    }
}

/// Pairs that were right, and those of them that kernels read and wrote over shared memory.
#[derive(Default)]
struct Pairs {
    gpus: BTreeSet<String>,
    ordered: BTreeSet<(String, String)>,
    by_kernels: BTreeSet<(String, String)>,
}

impl Pairs {
    fn of(rows: &[Value]) -> Result<Self, ProofError> {
        let mut all = Self::default();
        for row in rows {
            let (from, to) = (word(row, "from"), word(row, "to"));
            let (mode, engine) = (word(row, "mode"), word(row, "engine"));
            let error = |how: String, verdict: String| ProofError::NotIntact {
                from: from.clone(),
                to: to.clone(),
                how,
                verdict,
            };
            if !intact(row) {
                return Err(error(format!("{mode}, {engine}"), word(row, "verdict")));
            }
            // Faster than the link can carry: it did not come over it.
            if row.get("above_line_rate").and_then(Value::as_bool) == Some(true) {
                return Err(error(format!("{mode}, {engine}"), "above the line rate".to_owned()));
            }
            quiet(row.get("evidence"), || format!("{from} to {to}"))?;
            let operations = list(row, "operations");
            if let Some(bad) = operations.iter().find(|one| !intact(one)) {
                let how = format!("{mode}, {engine}, {}", word(bad, "operation"));
                return Err(error(how, word(bad, "verdict")));
            }
            let done = |name: &str| operations.iter().any(|one| word(one, "operation") == name);
            all.gpus.extend([from.clone(), to.clone()]);
            if engine == "sm" && mode == "ipc" && done("read") && done("write") {
                all.by_kernels.insert((from.clone(), to.clone()));
            }
            all.ordered.insert((from, to));
        }
        Ok(all)
    }
}

/// Whether kernels of all GPUs wrote to each other at once. Anything at once that was not right is
/// an error, whoever moved the data.
fn kernels_together(rows: &[Value]) -> Result<bool, ProofError> {
    if let Some(bad) = rows.iter().find(|row| !intact(row)) {
        return Err(ProofError::Together {
            how: format!("{}, {}", word(bad, "pattern"), word(bad, "engine")),
            verdict: word(bad, "verdict"),
        });
    }
    Ok(rows.iter().any(|row| word(row, "engine") == "sm" && word(row, "pattern") == "all_pairs"))
}

/// Sums over a tensor-parallel set. Only those of which every channel went over peer access prove
/// something about peers.
fn sums(rows: &[Value], tp: usize) -> Result<(), ProofError> {
    let over_peers: Vec<&Value> = rows.iter().filter(|row| word(row, "arm") == "p2p").collect();
    let by_peers = |row: &Value| {
        let seen = list(row, "transports");
        let over = |one: &Value| one.as_str().is_some_and(|one| one.starts_with("P2P"));
        !seen.is_empty() && seen.iter().all(over)
    };
    let wide = |row: &&&Value| list(row, "gpus").len() >= tp && by_peers(row);
    let missing = tp > 1 && !over_peers.iter().any(|row| wide(&row));
    if missing || !over_peers.iter().all(|row| intact(row)) {
        return Err(ProofError::AllReduce { wanted: tp });
    }
    Ok(())
}

impl Proof {
    /// From the JSON of `peerway test`, for a layout: every pair of its GPUs, stages and replicas
    /// included, and sums over as many as a tensor-parallel set has.
    ///
    /// # Errors
    /// What is missing or was wrong.
    pub fn from_test(text: &str, layout: &Layout) -> Result<Self, ProofError> {
        let value: Value =
            serde_json::from_str(text).map_err(|error| ProofError::NotJson(error.to_string()))?;
        // A quick test touches a small part of the memory.
        if !matches!(word(&value, "depth").as_str(), "standard" | "full") {
            return Err(ProofError::Depth { depth: word(&value, "depth") });
        }
        let size = |count: u32| usize::try_from(count).unwrap_or(usize::MAX);
        let wanted = size(layout.gpus());
        if let Some(bad) =
            list(&value, "self_checks").iter().find(|one| !list(one, "failed").is_empty())
        {
            return Err(ProofError::Unchecked { gpu: word(bad, "gpu") });
        }
        let damaged = |one: &&Value| one.get("damage").is_some_and(|damage| !damage.is_null());
        if let Some(bad) = list(&value, "host_rates").iter().find(damaged) {
            return Err(ProofError::Host { gpu: word(bad, "gpu") });
        }
        for one in list(&value, "evidence") {
            quiet(one.get("evidence"), || word(one, "work"))?;
        }
        let pairs = Pairs::of(list(&value, "pairs"))?;
        let together = kernels_together(list(&value, "together"))?;
        let seen = pairs.gpus.len();
        let checks = list(&value, "self_checks");
        let checked = |gpu: &&String| checks.iter().any(|one| word(one, "gpu") == **gpu);
        if let Some(gpu) = pairs.gpus.iter().find(|gpu| !checked(gpu)) {
            return Err(ProofError::Unchecked { gpu: gpu.clone() });
        }
        let all = seen * seen.saturating_sub(1);
        if seen < wanted || pairs.ordered.len() < all {
            return Err(ProofError::TooFew {
                pairs: pairs.ordered.len(),
                gpus: seen,
                wanted,
                all: wanted.saturating_mul(wanted.saturating_sub(1)),
            });
        }
        sums(list(&value, "all_reduce"), size(layout.tp))?;
        Ok(Self {
            gpus: pairs.gpus.into_iter().collect(),
            pairs: pairs.ordered.len(),
            kernels: together && pairs.by_kernels.len() == all,
        })
    }
}
