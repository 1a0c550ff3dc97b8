//! The terms of a decode step and of a chunk of prefill, on one GPU of the layout.
//!
//! Memory and computation overlap within a kernel, so the longer counts; communication overlaps
//! with neither in the engines' tensor-parallel decode.

use schemars::JsonSchema;
use serde::Serialize;

use crate::allreduce::{Arm, Levels, Times};
use crate::config::{ModelConfig, Part};
use crate::hardware::Gpu;
use crate::layout::Layout;
use crate::model::Routing;
use crate::precision::Precision;

/// What is fixed for a host and a model.
#[derive(Clone, Copy, Debug)]
pub struct Setup<'a> {
    /// The model.
    pub model: &'a ModelConfig,
    /// The GPU type.
    pub gpu: &'a Gpu,
    /// The layout.
    pub layout: Layout,
    /// All-reduce times of the GPUs of one tensor-parallel set.
    pub times: &'a Times,
    /// All-reduce times of two GPUs, for what stages hand on.
    pub pair: &'a Times,
    /// How keys and values are kept.
    pub kv: Precision,
    /// How recurrent states are kept, instead of what the configuration says.
    pub state: Option<Precision>,
    /// Bytes of a number in a message between GPUs: 2, or 1 where the engine quantises them.
    pub message: f64,
    /// The engine writes no state for each drafted token.
    pub replay: bool,
}

/// What a step is asked to do.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// Sequences that run, over all replicas.
    pub sequences: f64,
    /// Tokens that each has behind it.
    pub context: f64,
    /// Draft steps before each verification; 0 without speculation.
    pub draft_steps: u32,
}

/// One choice of every uncertain number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scenario {
    /// Share of the peak memory rate that is reached.
    pub memory_share: f64,
    /// Share of the peak compute rate that is reached.
    pub compute_share: f64,
    /// Kernels, launches and waiting, seconds a layer, with graphs.
    pub fixed_per_layer: f64,
    /// How widely tokens spread over experts.
    pub routing: Routing,
    /// How fast messages are.
    pub levels: Levels,
}

/// Seconds by term.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Terms {
    /// Weights that every token reads.
    pub dense_weights: f64,
    /// Weights of the experts that were touched.
    pub experts: f64,
    /// Keys and values.
    pub kv: f64,
    /// Recurrent state, read and written.
    pub state: f64,
    /// Computation beyond the time that memory takes.
    pub compute: f64,
    /// All-reduces.
    pub all_reduce: f64,
    /// Gathering the logits of the whole vocabulary.
    pub gather: f64,
    /// What stages hand on to each other.
    pub send: f64,
    /// Kernels, launches, waiting.
    pub fixed: f64,
    /// Drafting: memory, messages and fixed cost of the draft passes.
    pub draft: f64,
}

impl Terms {
    /// Names and seconds.
    pub const fn named(&self) -> [(&'static str, f64); 10] {
        [
            ("dense_weights", self.dense_weights),
            ("experts", self.experts),
            ("kv", self.kv),
            ("state", self.state),
            ("compute", self.compute),
            ("all_reduce", self.all_reduce),
            ("gather", self.gather),
            ("send", self.send),
            ("fixed", self.fixed),
            ("draft", self.draft),
        ]
    }

    /// All of it.
    pub fn total(&self) -> f64 {
        self.named().iter().map(|(_, seconds)| seconds).sum()
    }

    /// What bounds it: memory (weights, keys, state), computation, communication, fixed cost or
    /// drafting, whichever takes longest.
    pub fn bound(&self) -> Bound {
        let groups = [
            (Bound::Memory, self.dense_weights + self.experts + self.kv + self.state),
            (Bound::Compute, self.compute),
            (Bound::Communication, self.all_reduce + self.gather + self.send),
            (Bound::Fixed, self.fixed),
            (Bound::Draft, self.draft),
        ];
        groups
            .into_iter()
            .max_by(|a, b| a.1.total_cmp(&b.1))
            .map_or(Bound::Memory, |(bound, _)| bound)
    }
}

/// What bounds a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// Reading weights, keys and states.
    Memory,
    /// Computation.
    Compute,
    /// Messages between GPUs.
    Communication,
    /// Kernels, launches, waiting.
    Fixed,
    /// Drafting.
    Draft,
}

impl Bound {
    /// In words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::Memory => "memory of the GPUs",
            Self::Compute => "computation",
            Self::Communication => "messages between GPUs",
            Self::Fixed => "kernels and launches",
            Self::Draft => "drafting",
        }
    }
}

/// Bytes of a number in the residual stream and in logits.
const ACTIVATION: f64 = 2.0;

impl Setup<'_> {
    /// Seconds for one pass over all layers of `work`, one verification included.
    pub fn decode(&self, work: &Work, arm: Arm, scenario: &Scenario) -> Terms {
        let layout = self.layout;
        // Stages work on different shares of the batch at the same time, so a pass of one share
        // through all of them is what a step takes.
        let sequences =
            (work.sequences / f64::from(layout.replicas) / f64::from(layout.pp)).max(1.0);
        let verified = f64::from(work.draft_steps) + 1.0;
        let tokens = sequences * verified;
        let mut terms = self.memory(sequences, verified, work.context, scenario);
        let operations = self.model.attention_operations(work.context, false);
        self.add_compute(&mut terms, tokens, tokens, operations, scenario);
        self.add_messages(&mut terms, tokens, tokens, arm, scenario.levels);
        terms.fixed = scenario.fixed_per_layer * f64::from(self.model.layers);
        terms.draft =
            f64::from(work.draft_steps) * self.draft_pass(sequences, work.context, arm, scenario);
        terms
    }

    /// Seconds for one chunk of prefill of so many tokens behind so much context.
    pub fn prefill(&self, tokens: f64, context: f64, arm: Arm, scenario: &Scenario) -> Terms {
        let arm = if arm == Arm::PeerKernel { Arm::Peer } else { arm };
        let mut terms = self.memory(1.0, 1.0, context, scenario);
        // One sequence is read, but its tokens touch experts like a batch.
        terms.experts = self.experts_seconds(tokens, scenario);
        // Logits are wanted of the last token alone.
        let operations = self.model.attention_operations(context, true);
        self.add_compute(&mut terms, tokens, 1.0, operations, scenario);
        self.add_messages(&mut terms, tokens, 1.0, arm, scenario.levels);
        terms.fixed = scenario.fixed_per_layer * f64::from(self.model.layers);
        terms
    }

    fn rate(&self, scenario: &Scenario) -> f64 {
        self.gpu.memory_rate * scenario.memory_share
    }

    fn experts_seconds(&self, tokens: f64, scenario: &Scenario) -> f64 {
        let Some(experts) = self.model.moe() else { return 0.0 };
        let ranks = f64::from(self.layout.tp);
        let touched = self.model.touched(tokens, scenario.routing);
        let on_one = if self.layout.expert_parallel && self.layout.tp > 1 {
            // The fullest of the GPUs decides: the mean and what chance puts on top.
            let mean = touched / ranks;
            let spread = (2.0 * mean * (1.0 - 1.0 / ranks) * ranks.ln()).sqrt();
            (mean + spread).min(touched).min(f64::from(experts.count) / ranks)
        } else {
            touched / ranks
        };
        f64::from(experts.layers) * self.model.expert_bytes(on_one) / self.rate(scenario)
    }

    fn memory(&self, sequences: f64, verified: f64, context: f64, scenario: &Scenario) -> Terms {
        let model = self.model;
        let tp = f64::from(self.layout.tp);
        let rate = self.rate(scenario);
        let cut = self.layout.attention_cut();
        let attention_cut = f64::from(cut);
        let own_sequences = self.layout.own_sequences(sequences);
        let dense: f64 = model
            .dense_parts()
            .map(|part| match part {
                Part::Attention | Part::LinearAttention => model.bytes(part) / attention_cut,
                _ => model.bytes(part) / tp,
            })
            .sum();
        let kv = own_sequences * model.kv_bytes(context, cut, self.kv);
        let writes = if self.replay { 1.0 } else { verified };
        let state = model.state_bytes(self.state) / attention_cut * own_sequences * (1.0 + writes);
        Terms {
            dense_weights: dense / rate,
            experts: self.experts_seconds(sequences * verified, scenario),
            kv: kv / rate,
            state: state / rate,
            ..Terms::default()
        }
    }

    /// Computation that memory does not hide: of so many tokens, of which so many need logits.
    fn add_compute(
        &self,
        terms: &mut Terms,
        tokens: f64,
        logits: f64,
        attention: f64,
        scenario: &Scenario,
    ) {
        let model = self.model;
        let heavy = if model.moe().is_some() { Part::Experts } else { Part::DenseFfn };
        // Four bits are computed with from this capability on; before they are widened to 16.
        let eight_bits = match model.weights.of(heavy) {
            Precision::Fp8 => true,
            Precision::Nvfp4 => self.gpu.capability >= 100,
            _ => false,
        };
        let peak = match self.gpu.compute_rate_fp8 {
            Some(rate) if eight_bits => rate,
            _ => self.gpu.compute_rate,
        };
        let head = model.parameters(Part::Head);
        let body = 2.0 * (model.active_parameters() - head) + attention;
        let operations = tokens * body + logits * 2.0 * head;
        let seconds = operations / f64::from(self.layout.tp) / (peak * scenario.compute_share);
        let hidden = terms.dense_weights + terms.experts + terms.kv + terms.state;
        terms.compute = (seconds - hidden).max(0.0);
    }

    fn add_messages(&self, terms: &mut Terms, tokens: f64, logits: f64, arm: Arm, levels: Levels) {
        let model = self.model;
        let layers = f64::from(model.layers);
        let stream = tokens * f64::from(model.hidden);
        if self.layout.tp > 1 {
            let sum = |bytes: f64| self.times.all_reduce(arm, levels, bytes);
            let message = stream * self.message;
            terms.all_reduce = if self.layout.attention_dp {
                // Gathered before the experts and scattered after: two halves of an all-reduce.
                layers * 2.0 * self.times.gather(arm, levels, message)
            } else {
                f64::from(self.layout.all_reduces(model)) * sum(message)
            };
            let vocabulary = f64::from(model.vocabulary);
            terms.gather = self.times.gather(arm, levels, logits * vocabulary * ACTIVATION);
        }
        if self.layout.pp > 1 {
            let hand = self.pair.all_reduce(arm, levels, stream * ACTIVATION) / 2.0;
            terms.send = (f64::from(self.layout.pp) - 1.0) * hand;
        }
    }

    /// Seconds of one draft pass over the batch.
    fn draft_pass(&self, sequences: f64, context: f64, arm: Arm, scenario: &Scenario) -> f64 {
        let model = self.model;
        let tp = f64::from(self.layout.tp);
        let head = model.bytes(Part::Head);
        let weights = (model.draft_bytes(sequences, scenario.routing) + head) / tp;
        let full = f64::from(model.full_layers.max(1));
        let kv = self.layout.own_sequences(sequences)
            * model.kv_bytes(context, self.layout.attention_cut(), self.kv)
            / full;
        let messages = if self.layout.tp > 1 {
            let bytes = sequences * f64::from(model.hidden) * self.message;
            let logits = sequences * f64::from(model.vocabulary) * ACTIVATION;
            3.0 * self.times.all_reduce(arm, scenario.levels, bytes)
                + self.times.gather(arm, scenario.levels, logits)
        } else {
            0.0
        };
        (weights + kv) / self.rate(scenario) + messages + scenario.fixed_per_layer
    }
}
