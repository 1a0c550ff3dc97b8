//! What a workload would do with and without peer access, term by term.

mod calibrate;
mod notes;
mod rows;

use schemars::JsonSchema;
use serde::Serialize;
use thiserror::Error;

pub use calibrate::{Calibration, Measured};
pub use rows::{DecodeRow, PrefillRow, SpeculationRow, TermIntervals, Value};

use crate::allreduce::{Arm, Times};
use crate::assumption::{Assumption, Assumptions};
use crate::config::ModelConfig;
use crate::engine::{Engine, Kernels};
use crate::hardware::Gpu;
use crate::interval::Interval;
use crate::layout::{Layout, LayoutError};
use crate::options::OptionRow;
use crate::precision::Precision;
use crate::speculation;
use crate::state::{self, StateCap};
use crate::step::{Scenario, Setup, Terms, Work};

/// Tokens that the engines prefill at once by default on large GPUs.
pub const CHUNK: f64 = 8192.0;

/// What is to be estimated.
#[derive(Clone, Debug)]
pub struct Request {
    /// The model.
    pub model: ModelConfig,
    /// The engine.
    pub engine: Engine,
    /// The GPU type.
    pub gpu: Gpu,
    /// The layout.
    pub layout: Layout,
    /// Sequences that run.
    pub concurrency: u32,
    /// Tokens of a prompt.
    pub prompt: u32,
    /// Tokens of an answer.
    pub output: u32,
    /// Measured all-reduce times of as many GPUs as a tensor-parallel set has; assumed where absent.
    pub times: Option<Times>,
    /// Measured all-reduce times of other numbers of GPUs, for other layouts.
    pub other_times: Vec<Times>,
    /// Draft steps that speculation is estimated with beside 1 to 3.
    pub draft_steps: u32,
    /// Accepted tokens a verification with these draft steps, where measured; other depths are
    /// assumed.
    pub accepted: Option<f64>,
    /// How keys and values are kept.
    pub kv: Precision,
    /// Share of a GPU's memory that the engine may fill.
    pub memory_fraction: f64,
    /// Rates measured on this host with P2P off and without speculation.
    pub measured: Vec<Measured>,
    /// What is assumed.
    pub assumptions: Assumptions,
}

/// Why nothing can be estimated.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum EstimateError {
    /// The layout does not fit the model.
    #[error("the layout does not fit the model: {0}")]
    Layout(#[from] LayoutError),
    /// A number out of range.
    #[error("{what} is {value}; expected {range}")]
    Range {
        /// Which.
        what: &'static str,
        /// Its value.
        value: f64,
        /// What is accepted.
        range: &'static str,
    },
    /// An accept length without the depth that it was measured with.
    #[error(
        "an accept length says nothing without its depth: give the draft steps that it was measured \
         with (--draft-steps)"
    )]
    DepthUnknown,
    /// Figures so far from any model that the arithmetic gives nothing.
    #[error("the configuration gives no finite time for {what}")]
    NotFinite {
        /// What was computed.
        what: &'static str,
    },
}

/// Sizes of the model on one GPU of the layout.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Sizes {
    /// `model_type` of the configuration.
    pub model_type: String,
    /// Parameters, without layers that draft.
    pub parameters: f64,
    /// Parameters that a token passes, without the input embedding.
    pub active_parameters: f64,
    /// Formats of the weights, in words.
    pub formats: String,
    /// Bytes of weights on each GPU.
    pub weight_bytes_per_gpu: f64,
    /// Bytes of keys and values that a token keeps on each GPU: the mean over a sequence of the
    /// length asked for, since windowed layers keep their window alone.
    pub kv_bytes_per_token_per_gpu: f64,
    /// Bytes of recurrent state that a sequence keeps on each GPU.
    pub state_bytes_per_sequence_per_gpu: f64,
    /// All-reduces a step.
    pub all_reduces_per_step: u32,
    /// Bytes of each of them at this concurrency.
    pub all_reduce_bytes: f64,
    /// Whether the weights leave room within the share of memory that the engine may fill.
    pub fits: bool,
    /// Tokens of keys and values for which there is room on each GPU, beside weights.
    pub kv_tokens: f64,
}

/// The answer.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Estimate {
    /// Engine and version.
    pub engine: String,
    /// GPU type.
    pub gpu: String,
    /// Layout in words.
    pub layout: String,
    /// Sequences that run.
    pub concurrency: u32,
    /// Tokens of a prompt.
    pub prompt_tokens: u32,
    /// Tokens of an answer.
    pub output_tokens: u32,
    /// Sizes.
    pub sizes: Sizes,
    /// Whether the engine has all-reduce kernels of its own for these GPUs.
    pub kernels: Kernels,
    /// Whether all-reduce times were assumed and not measured.
    pub all_reduce_assumed: bool,
    /// What was assumed.
    pub assumptions: Vec<Assumption>,
    /// What measured rates made of the assumptions.
    pub calibration: Option<Calibration>,
    /// Decode, one row a way of summing.
    pub decode: Vec<DecodeRow>,
    /// Prefill, one row a way of summing.
    pub prefill: Vec<PrefillRow>,
    /// What peer access is worth.
    pub p2p: Vec<Value>,
    /// Speculation by draft steps.
    pub speculation: Vec<SpeculationRow>,
    /// What recurrent states leave of the concurrency.
    pub state_cap: Option<StateCap>,
    /// Every option with its gain.
    pub options: Vec<OptionRow>,
    /// What to know.
    pub notes: Vec<String>,
}

/// A request with everything that follows from it.
#[derive(Debug)]
pub(crate) struct Context<'r> {
    pub(crate) request: &'r Request,
    pub(crate) times: Times,
    pub(crate) pair: Times,
    pub(crate) scenarios: Vec<Scenario>,
    pub(crate) middle: Option<Scenario>,
    pub(crate) calibration: Option<Calibration>,
}

impl<'r> Context<'r> {
    pub(crate) fn new(request: &'r Request) -> Self {
        let link = request.gpu.link;
        let times = request.times.clone().unwrap_or_else(|| Times::seeds(link, request.layout.tp));
        let mut context = Self {
            request,
            times,
            pair: Self::measured(request, 2).unwrap_or_else(|| Times::seeds(link, 2)),
            scenarios: request.assumptions.scenarios(),
            middle: Some(request.assumptions.middle()),
            calibration: None,
        };
        calibrate::apply(&mut context);
        context
    }

    fn measured(request: &Request, ranks: u32) -> Option<Times> {
        let mut all = request.times.iter().chain(&request.other_times);
        all.find(|times| times.ranks == ranks).cloned()
    }

    /// All-reduce times of another number of GPUs: measured where they were, else assumed.
    pub(crate) fn times_of(&self, ranks: u32) -> Times {
        Self::measured(self.request, ranks)
            .unwrap_or_else(|| Times::seeds(self.request.gpu.link, ranks))
    }

    /// Sequences of one pass: a share of a replica's for each stage.
    pub(crate) fn at_once(&self) -> f64 {
        let layout = self.request.layout;
        let share = f64::from(self.request.concurrency) / f64::from(layout.replicas);
        (share / f64::from(layout.pp)).max(1.0)
    }

    /// The set-up as requested.
    pub(crate) fn setup(&self) -> Setup<'_> {
        Setup {
            model: &self.request.model,
            gpu: &self.request.gpu,
            layout: self.request.layout,
            times: &self.times,
            pair: &self.pair,
            kv: self.request.kv,
            state: None,
            message: 2.0,
            replay: false,
        }
    }

    pub(crate) fn work(&self, draft_steps: u32) -> Work {
        Work {
            sequences: f64::from(self.request.concurrency),
            context: self.context_tokens(),
            draft_steps,
        }
    }

    /// Tokens behind a sequence on average while it is answered.
    pub(crate) fn context_tokens(&self) -> f64 {
        f64::from(self.request.prompt) + f64::from(self.request.output) / 2.0
    }

    /// Extremes of a value over the scenarios.
    pub(crate) fn over(
        &self,
        what: &'static str,
        value: impl Fn(&Scenario) -> f64,
    ) -> Result<Interval, EstimateError> {
        let values: Vec<f64> = self.scenarios.iter().map(&value).collect();
        Interval::over(&values, self.middle.as_ref().map(&value))
            .filter(|interval| interval.high.is_finite() && interval.low >= -1.0e12)
            .ok_or(EstimateError::NotFinite { what })
    }

    /// Accepted tokens by draft steps.
    pub(crate) fn accepted(&self, steps: u32) -> Interval {
        match self.request.accepted {
            Some(measured) if self.accepted_measured(steps) => Interval::exact(measured),
            _ => speculation::accepted(steps),
        }
    }

    /// Whether the accepted tokens of this depth were measured: of the one that was asked for.
    pub(crate) const fn accepted_measured(&self, steps: u32) -> bool {
        self.request.accepted.is_some() && steps > 0 && steps == self.request.draft_steps
    }

    /// The way of summing that peer access would bring with this engine, by default.
    pub(crate) fn peer_arm(&self) -> Arm {
        match self.request.engine.kernels(self.request.gpu.link, self.request.layout.tp) {
            Kernels::ByDefault if self.times.kernel.is_some() => Arm::PeerKernel,
            _ => Arm::Peer,
        }
    }

    /// Whether the sums of a row were assumed; one GPU has none.
    pub(crate) fn sums_assumed(&self, arm: Arm) -> bool {
        let layout = self.request.layout;
        (layout.tp > 1 && self.times.arm_assumed(arm))
            || (layout.pp > 1 && self.pair.arm_assumed(arm))
    }

    /// Ways of summing that are shown.
    pub(crate) fn arms(&self) -> Vec<Arm> {
        if self.request.layout.tp == 1 && self.request.layout.pp == 1 {
            return vec![Arm::Host];
        }
        let kernels = self.request.engine.kernels(self.request.gpu.link, self.request.layout.tp);
        let mut arms = vec![Arm::Host, Arm::Peer];
        if self.times.kernel.is_some() && !matches!(kernels, Kernels::No(_)) {
            arms.push(Arm::PeerKernel);
        }
        arms
    }
}

/// Estimates a workload.
///
/// # Errors
/// A layout that does not fit, or numbers out of range.
pub fn estimate(request: &Request) -> Result<Estimate, EstimateError> {
    check(request)?;
    let context = Context::new(request);
    let arms = context.arms();
    let decode = rows::decode(&context, &arms)?;
    let prefill = rows::prefill(&context, &arms)?;
    let p2p = rows::values(&context, &arms)?;
    let speculation = rows::speculation(&context, &arms)?;
    let options = crate::options::rank(&context)?;
    let kernels = request.engine.kernels(request.gpu.link, request.layout.tp);
    Ok(Estimate {
        engine: request.engine.to_string(),
        gpu: request.gpu.title.to_owned(),
        layout: request.layout.words(),
        concurrency: request.concurrency,
        prompt_tokens: request.prompt,
        output_tokens: request.output,
        sizes: sizes(&context),
        kernels,
        all_reduce_assumed: request.layout.tp > 1 && context.times.assumed(),
        assumptions: request.assumptions.shown(&context.times, request.model.moe().is_some()),
        calibration: context.calibration.clone(),
        decode,
        prefill,
        p2p,
        speculation,
        state_cap: state::cap(request),
        options,
        notes: notes::of(&context),
    })
}

fn check(request: &Request) -> Result<(), EstimateError> {
    request.layout.check(&request.model)?;
    let ranges = [
        ("concurrency", f64::from(request.concurrency), 1.0, 65_536.0, "1 to 65536"),
        ("prompt", f64::from(request.prompt), 1.0, 16_777_216.0, "1 to 16777216 tokens"),
        ("output", f64::from(request.output), 1.0, 16_777_216.0, "1 to 16777216 tokens"),
        ("draft steps", f64::from(request.draft_steps), 0.0, 16.0, "0 to 16"),
        ("accept length", request.accepted.unwrap_or(1.0), 1.0, 17.0, "1 to 17"),
        ("memory fraction", request.memory_fraction, 0.05, 1.0, "0.05 to 1"),
    ];
    for (what, value, least, most, range) in ranges {
        if !(least..=most).contains(&value) {
            return Err(EstimateError::Range { what, value, range });
        }
    }
    if let Some(accepted) = request.accepted {
        let most = f64::from(request.draft_steps) + 1.0;
        if request.draft_steps == 0 {
            return Err(EstimateError::DepthUnknown);
        }
        if accepted > most {
            return Err(EstimateError::Range {
                what: "accept length",
                value: accepted,
                range: "1 to the draft steps and one more",
            });
        }
    }
    for one in &request.measured {
        if !(1.0e-3..=1.0e9).contains(&one.rate) || !(1..=65_536).contains(&one.concurrency) {
            return Err(EstimateError::Range {
                what: "a measured rate",
                value: one.rate,
                range: "a concurrency of 1 to 65536 and a rate above 0.001 tokens a second",
            });
        }
    }
    Ok(())
}

fn sizes(context: &Context<'_>) -> Sizes {
    let request = context.request;
    let (model, layout) = (&request.model, &request.layout);
    let weights = layout.weight_bytes(model, request.draft_steps > 0);
    let length = f64::from(request.prompt) + f64::from(request.output);
    let kv = layout.kv_bytes(model, length, request.kv) / length;
    let room = request.gpu.memory_bytes * request.memory_fraction - weights;
    Sizes {
        model_type: model.model_type.clone(),
        parameters: model.total_parameters(),
        active_parameters: model.active_parameters(),
        formats: model.weights.words(),
        weight_bytes_per_gpu: weights,
        kv_bytes_per_token_per_gpu: kv,
        state_bytes_per_sequence_per_gpu: layout.state_bytes(model, None),
        all_reduces_per_step: layout.all_reduces(model),
        all_reduce_bytes: context.at_once() * f64::from(model.hidden) * 2.0,
        fits: room > 0.0,
        kv_tokens: if kv > 0.0 { (room / kv).max(0.0).floor() } else { 0.0 },
    }
}

/// Tokens a second of decode: sequences and what a verification gives, over its time.
pub(crate) fn rate(work: &Work, accepted: f64, terms: &Terms) -> f64 {
    work.sequences * accepted / terms.total()
}
