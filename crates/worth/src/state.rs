//! What recurrent states leave of the concurrency, in SGLang.
//!
//! A running request holds several state slots, and speculation keeps one more for every drafted
//! token. What is left of the memory after the weights is divided between states and keys by
//! `--mamba-full-memory-ratio`; the engine then runs as many requests as there are slots for,
//! silently (`model_runner_kv_cache_mixin.py`, later `kv_cache_configurator.py`, `memory_pool.py`).

use schemars::JsonSchema;
use serde::Serialize;

use crate::config::ModelConfig;
use crate::engine::{Engine, EngineName, Version};
use crate::estimate::Request;
use crate::hardware::Gpu;
use crate::layout::Layout;
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
    /// How SGLang keeps states unless told otherwise: `no_buffer` up to 0.5.12, `extra_buffer` from
    /// 0.5.23 on, and with speculation always, since it goes with nothing else. What the versions
    /// between choose was not read; they are counted as later ones, with which fewer requests run.
    pub fn default_of(version: Option<Version>, speculates: bool) -> Self {
        match version {
            Some(version) if version < JOINTLY && !speculates => Self::NoBuffer,
            _ => Self::ExtraBuffer,
        }
    }

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

/// What the cap depends on beside the options.
#[derive(Clone, Copy, Debug)]
pub(crate) struct StateHost<'a> {
    pub(crate) model: &'a ModelConfig,
    pub(crate) gpu: &'a Gpu,
    pub(crate) layout: Layout,
    pub(crate) memory_fraction: f64,
    pub(crate) version: Option<Version>,
}

impl StateHost<'_> {
    /// Bytes that the weights leave on each GPU.
    fn free(&self, with_draft: bool) -> f64 {
        let weights = self.layout.weight_bytes(self.model, with_draft);
        (self.gpu.memory_bytes * self.memory_fraction - weights).max(0.0)
    }

    /// Requests of a replica that run. With data-parallel attention each GPU keeps whole states of
    /// its own share of the requests.
    pub(crate) fn running(&self, format: Precision, ratio: f64, asked: u32, drafts: u32) -> u32 {
        let shares = self.layout.tp / self.layout.attention_cut().max(1);
        let of_a_share = running(&StateSetup {
            free: self.free(drafts > 0),
            state: self.layout.state_bytes(self.model, Some(format)),
            ratio,
            most: asked.div_ceil(shares.max(1)),
            draft_tokens: drafts,
            keeping: Keeping::default_of(self.version, drafts > 0),
            jointly: self.version.is_none_or(|version| version >= JOINTLY),
        });
        of_a_share.saturating_mul(shares.max(1)).min(asked)
    }
}

/// What states leave of the concurrency; absent for models without states and other engines.
pub fn cap(request: &Request) -> Option<StateCap> {
    let model = &request.model;
    let configured = model.linear?.state;
    let Engine { name, version } = request.engine;
    let host = StateHost {
        model,
        gpu: &request.gpu,
        layout: request.layout,
        memory_fraction: request.memory_fraction,
        version,
    };
    let mut cap = StateCap {
        state_bytes: request.layout.state_bytes(model, Some(configured)),
        free_bytes: host.free(false),
        rows: Vec::new(),
        notes: Vec::new(),
    };
    if name == EngineName::Vllm {
        cap.notes.push(
            "how vLLM divides memory between states and keys is not modelled: read the number of \
             blocks and vllm:num_requests_running from its metrics"
                .to_owned(),
        );
        return Some(cap);
    }
    let asked = request.concurrency.div_ceil(request.layout.replicas.max(1));
    let mut drafts = vec![0];
    if model.draft_layers > 0 {
        drafts.push(if request.draft_steps > 0 { request.draft_steps + 1 } else { 4 });
    }
    for (format, ratio) in formats(configured) {
        for draft_tokens in drafts.iter().copied() {
            cap.rows.push(StateRow {
                format,
                ratio,
                draft_tokens,
                keeping: Keeping::default_of(version, draft_tokens > 0),
                asked,
                running: host.running(format, ratio, asked, draft_tokens),
            });
        }
    }
    cap.notes = cap_notes(version);
    Some(cap)
}

/// Formats and ratios worth showing: as it comes, and what makes room.
fn formats(configured: Precision) -> Vec<(Precision, f64)> {
    let mut all = vec![(configured, 0.9), (configured, 4.0)];
    if configured == Precision::Float32 {
        all.extend([(Precision::Bfloat16, 0.9), (Precision::Bfloat16, 4.0)]);
    }
    all
}

fn cap_notes(version: Option<Version>) -> Vec<String> {
    let mut notes = vec![
        "the engine applies this without a word: compare with sglang:num_running_reqs, and set \
         --max-running-requests, which is 48 with speculation if unset"
            .to_owned(),
    ];
    if version.is_some_and(|version| version < JOINTLY) {
        notes.push(
            "before 0.5.15 a larger --max-running-requests reserves more for drafts and lowers what \
             runs"
                .to_owned(),
        );
    }
    if version.is_some_and(|version| (JOINTLY..Version(0, 5, 23)).contains(&version)) {
        notes.push(
            "how this version keeps states by default was not read; counted as extra_buffer, with \
             which the fewest run"
                .to_owned(),
        );
    }
    if version.is_none() {
        notes.push("counted as 0.5.15 and later do; give the version for earlier ones".to_owned());
    }
    notes
}
