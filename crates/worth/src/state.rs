//! What recurrent states leave of the concurrency, in SGLang.
//!
//! A running request holds several state slots, and speculation keeps one more for every drafted
//! token. What is left of the memory after the weights is divided between states and keys by
//! `--mamba-full-memory-ratio`; the engine then runs as many requests as there are slots for,
//! silently (`model_runner_kv_cache_mixin.py`, later `kv_cache_configurator.py`, `memory_pool.py`).

use schemars::JsonSchema;
use serde::Serialize;

use crate::config::Part;
use crate::engine::{Engine, EngineName, Version};
use crate::estimate::Request;
use crate::precision::Precision;

/// How the engine keeps states for reuse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Keeping {
    /// The prefix cache is off.
    NoCache,
    /// `no_buffer`.
    NoBuffer,
    /// `extra_buffer`, with the overlapped schedule.
    ExtraBuffer,
    /// `extra_buffer_lazy`, or `extra_buffer` without overlap.
    Lazy,
}

impl Keeping {
    /// State slots of a running request.
    pub const fn slots(self) -> u32 {
        match self {
            Self::NoCache => 1,
            Self::NoBuffer => 3,
            Self::Lazy => 4,
            Self::ExtraBuffer => 5,
        }
    }
}

/// What decides how many requests run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StateSetup {
    /// Bytes that weights leave of the memory that the engine may fill.
    pub free: f64,
    /// Bytes of a state on one GPU.
    pub state: f64,
    /// `--mamba-full-memory-ratio`.
    pub ratio: f64,
    /// `--max-running-requests`.
    pub most: u32,
    /// Drafted tokens that a verification takes (`--speculative-num-draft-tokens`); 0 without.
    pub draft_tokens: u32,
    /// How states are kept.
    pub keeping: Keeping,
    /// Whether slots and drafts are solved together: from 0.5.15 on. Before, the reserve for drafts
    /// is taken first, for as many requests as may run, so that asking for more gives fewer.
    pub jointly: bool,
}

/// Requests that run.
pub fn running(setup: &StateSetup) -> u32 {
    let share = setup.ratio / (1.0 + setup.ratio);
    let drafts = f64::from(setup.draft_tokens);
    let slots = f64::from(setup.keeping.slots());
    let fits = if setup.jointly {
        let pool = (setup.free * share / setup.state).floor();
        (pool - 1.0 - drafts) / (slots + drafts)
    } else {
        let reserve = f64::from(setup.most) * drafts * setup.state;
        ((setup.free - reserve) * share / setup.state).floor() / slots
    };
    let whole = fits.floor().clamp(0.0, f64::from(setup.most));
    #[expect(
        clippy::as_conversions,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a whole number between zero and a u32"
    )]
    let count = whole as u32;
    count
}

/// Requests that run, by how states are kept.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct StateCap {
    /// Bytes of a sequence's state on one GPU.
    pub state_bytes: f64,
    /// Bytes that the weights leave.
    pub free_bytes: f64,
    /// Rows.
    pub rows: Vec<StateRow>,
    /// What to know.
    pub notes: Vec<String>,
}

/// One set of options.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct StateRow {
    /// Format of the state.
    pub format: Precision,
    /// `--mamba-full-memory-ratio`.
    pub ratio: f64,
    /// Drafted tokens; 0 without speculation.
    pub draft_tokens: u32,
    /// How states are kept.
    pub keeping: Keeping,
    /// `--max-running-requests` as asked for.
    pub asked: u32,
    /// Requests that run.
    pub running: u32,
}

/// From 0.5.15 on slots and drafts are solved together.
const JOINTLY: Version = Version(0, 5, 15);

/// What states leave of the concurrency; absent for models without states and other engines.
pub fn cap(request: &Request) -> Option<StateCap> {
    let model = &request.model;
    model.linear?;
    let Engine { name, version } = request.engine;
    let tp = f64::from(request.layout.tp);
    let pp = f64::from(request.layout.pp);
    let budget = request.gpu.memory_bytes * request.memory_fraction;
    let weights = model.weight_bytes(false) / tp / pp;
    let state_of = |format| model.state_bytes(Some(format)) / tp / pp;
    let configured = model.linear.map_or(Precision::Float32, |linear| linear.state);
    if name == EngineName::Vllm {
        return Some(StateCap {
            state_bytes: state_of(configured),
            free_bytes: (budget - weights).max(0.0),
            rows: Vec::new(),
            notes: vec![
                "how vLLM divides memory between states and keys is not modelled: read the number \
                 of blocks and vllm:num_requests_running from its metrics"
                    .to_owned(),
            ],
        });
    }
    let jointly = version.is_none_or(|version| version >= JOINTLY);
    let asked = (f64::from(request.concurrency) / f64::from(request.layout.replicas)).ceil();
    let mut rows = Vec::new();
    for (format, ratio) in formats(configured) {
        for draft_tokens in [0, 4] {
            if draft_tokens > 0 && model.draft_layers == 0 {
                continue;
            }
            let draft = if draft_tokens > 0 { model.bytes(Part::Draft) / tp / pp } else { 0.0 };
            let setup = StateSetup {
                free: (budget - weights - draft).max(0.0),
                state: state_of(format),
                ratio,
                most: asked_count(asked),
                draft_tokens,
                keeping: Keeping::ExtraBuffer,
                jointly,
            };
            rows.push(StateRow {
                format,
                ratio,
                draft_tokens,
                keeping: setup.keeping,
                asked: setup.most,
                running: running(&setup),
            });
        }
    }
    Some(StateCap {
        state_bytes: state_of(configured),
        free_bytes: (budget - weights).max(0.0),
        rows,
        notes: cap_notes(version, jointly),
    })
}

fn asked_count(asked: f64) -> u32 {
    #[expect(
        clippy::as_conversions,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "bounded on both sides"
    )]
    let count = asked.clamp(1.0, 65_536.0) as u32;
    count
}

/// Formats and ratios worth showing: as it comes, and what makes room.
fn formats(configured: Precision) -> Vec<(Precision, f64)> {
    let mut all = vec![(configured, 0.9), (configured, 4.0)];
    if configured == Precision::Float32 {
        all.extend([(Precision::Bfloat16, 0.9), (Precision::Bfloat16, 4.0)]);
    }
    all
}

fn cap_notes(version: Option<Version>, jointly: bool) -> Vec<String> {
    let mut notes = vec![
        "the engine applies this without a word: compare with sglang:num_running_reqs, and set \
         --max-running-requests, which is 48 with speculation if unset"
            .to_owned(),
    ];
    if !jointly {
        notes.push(
            "before 0.5.15 a larger --max-running-requests reserves more for drafts and lowers what \
             runs"
                .to_owned(),
        );
    }
    if version.is_none() {
        notes.push("counted as 0.5.15 and later do; give the version for earlier ones".to_owned());
    }
    notes
}
