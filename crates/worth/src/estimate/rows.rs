//! The rows of an estimate.

use schemars::JsonSchema;
use serde::Serialize;

use super::{CHUNK, Context, EstimateError, rate};
use crate::allreduce::Arm;
use crate::interval::Interval;
use crate::speculation::break_even;
use crate::step::{Bound, Scenario, Terms};

/// Seconds by term, each with its interval.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct TermIntervals {
    /// Name of the term.
    pub term: &'static str,
    /// Seconds.
    pub seconds: Interval,
}

/// Decode with one way of summing.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct DecodeRow {
    /// How the sums travel.
    pub arm: Arm,
    /// Whether its all-reduce times, or some of them, were assumed and not measured.
    pub sums_assumed: bool,
    /// Seconds by term; terms that are nothing are left out.
    pub terms: Vec<TermIntervals>,
    /// Seconds of a step.
    pub step_seconds: Interval,
    /// Tokens a second, all sequences together.
    pub tokens_per_second: Interval,
    /// What takes longest, under the middle of every assumption.
    pub bound: Bound,
    /// Share of a step that messages take.
    pub message_share: Interval,
}

/// Prefill with one way of summing.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct PrefillRow {
    /// How the sums travel.
    pub arm: Arm,
    /// Whether its all-reduce times were assumed and not measured.
    pub sums_assumed: bool,
    /// Tokens of a chunk.
    pub chunk_tokens: f64,
    /// Seconds by term of a chunk; terms that are nothing are left out.
    pub terms: Vec<TermIntervals>,
    /// Seconds of a chunk.
    pub chunk_seconds: Interval,
    /// Seconds of a prompt, alone on the GPUs.
    pub prompt_seconds: Interval,
    /// What takes longest.
    pub bound: Bound,
}

/// What peer access is worth, against none, per cent.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Value {
    /// How the sums would travel.
    pub arm: Arm,
    /// Whether all-reduce times on either side of the comparison were assumed and not measured.
    pub sums_assumed: bool,
    /// More tokens a second of decode.
    pub decode_percent: Interval,
    /// Less time of prefill.
    pub prefill_time_percent: Interval,
    /// More tokens a second of whole requests, prompts included, where every prompt is computed.
    pub requests_percent: Interval,
}

/// Speculation with so many draft steps.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SpeculationRow {
    /// Draft steps before each verification.
    pub draft_steps: u32,
    /// Tokens that a verification gives.
    pub accepted: Interval,
    /// Whether that was assumed and not measured on the operator's prompts.
    pub accepted_assumed: bool,
    /// Accepted tokens from which on it pays, with peer access off.
    pub break_even: Interval,
    /// By way of summing: tokens a second, and the gain over the same way without speculation.
    pub arms: Vec<SpeculationArm>,
}

/// Speculation with one way of summing.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct SpeculationArm {
    /// How the sums travel.
    pub arm: Arm,
    /// Tokens a second.
    pub tokens_per_second: Interval,
    /// More tokens a second than without speculation, per cent.
    pub gain_percent: Interval,
}

fn terms(
    context: &Context<'_>,
    of: impl Fn(&Scenario) -> Terms,
) -> Result<Vec<TermIntervals>, EstimateError> {
    let names = Terms::default().named();
    let mut all = Vec::new();
    for (index, (term, _)) in names.into_iter().enumerate() {
        let seconds = context
            .over("a term", |one| of(one).named().get(index).map_or(0.0, |(_, time)| *time))?;
        if seconds.high > 0.0 {
            all.push(TermIntervals { term, seconds });
        }
    }
    Ok(all)
}

/// What bounds it in the middle, or in the first scenario that was kept.
fn bound(context: &Context<'_>, of: impl Fn(&Scenario) -> Terms) -> Bound {
    let typical = context.middle.as_ref().or(context.scenarios.first());
    typical.map_or(Bound::Memory, |one| of(one).bound())
}

pub(super) fn decode(context: &Context<'_>, arms: &[Arm]) -> Result<Vec<DecodeRow>, EstimateError> {
    let (setup, work) = (context.setup(), context.work(0));
    arms.iter()
        .map(|arm| {
            let of = |one: &Scenario| setup.decode(&work, *arm, one);
            Ok(DecodeRow {
                arm: *arm,
                sums_assumed: context.sums_assumed(*arm),
                terms: terms(context, of)?,
                step_seconds: context.over("a decode step", |one| of(one).total())?,
                tokens_per_second: context.over("decode", |one| rate(&work, 1.0, &of(one)))?,
                bound: bound(context, of),
                message_share: context.over("messages", |one| {
                    let terms = of(one);
                    (terms.all_reduce + terms.gather + terms.send) / terms.total()
                })?,
            })
        })
        .collect()
}

/// Seconds of a whole prompt in chunks, each behind those before it.
pub(crate) fn prompt_seconds(context: &Context<'_>, arm: Arm, scenario: &Scenario) -> f64 {
    let setup = context.setup();
    let prompt = f64::from(context.request.prompt);
    let whole = (prompt / CHUNK).floor();
    let rest = prompt - whole * CHUNK;
    // Attention grows in a straight line with what is behind, so the middle chunk stands for all.
    let full = if whole > 0.0 {
        whole * setup.prefill(CHUNK, whole * CHUNK / 2.0, arm, scenario).total()
    } else {
        0.0
    };
    let last = if rest > 0.0 {
        setup.prefill(rest, whole * CHUNK + rest / 2.0, arm, scenario).total()
    } else {
        0.0
    };
    full + last
}

pub(super) fn prefill(
    context: &Context<'_>,
    arms: &[Arm],
) -> Result<Vec<PrefillRow>, EstimateError> {
    let setup = context.setup();
    let tokens = f64::from(context.request.prompt).min(CHUNK);
    arms.iter()
        .filter(|arm| **arm != Arm::PeerKernel)
        .map(|arm| {
            let of = |one: &Scenario| setup.prefill(tokens, tokens / 2.0, *arm, one);
            Ok(PrefillRow {
                arm: *arm,
                sums_assumed: context.sums_assumed(*arm),
                chunk_tokens: tokens,
                terms: terms(context, of)?,
                chunk_seconds: context.over("prefill", |one| of(one).total())?,
                prompt_seconds: context
                    .over("a prompt", |one| prompt_seconds(context, *arm, one))?,
                bound: bound(context, of),
            })
        })
        .collect()
}

/// Tokens a second where every answer of a full batch first needs its prompt computed: prompts stop
/// the batch for their time.
fn request_rate(context: &Context<'_>, arm: Arm, scenario: &Scenario) -> f64 {
    let (setup, work) = (context.setup(), context.work(0));
    let step = setup.decode(&work, arm, scenario).total();
    let output = f64::from(context.request.output);
    let share = work.sequences / f64::from(context.request.layout.replicas);
    let batch = share * prompt_seconds(context, arm, scenario) + output * step;
    work.sequences * output / batch
}

pub(super) fn values(context: &Context<'_>, arms: &[Arm]) -> Result<Vec<Value>, EstimateError> {
    let (setup, work) = (context.setup(), context.work(0));
    arms.iter()
        .filter(|arm| **arm != Arm::Host)
        .map(|arm| {
            Ok(Value {
                arm: *arm,
                sums_assumed: context.sums_assumed(*arm) || context.sums_assumed(Arm::Host),
                decode_percent: context.over("the value of peer access", |one| {
                    let off = setup.decode(&work, Arm::Host, one).total();
                    (off / setup.decode(&work, *arm, one).total() - 1.0) * 100.0
                })?,
                prefill_time_percent: context.over("the value of peer access", |one| {
                    let off = prompt_seconds(context, Arm::Host, one);
                    (1.0 - prompt_seconds(context, *arm, one) / off) * 100.0
                })?,
                requests_percent: context.over("the value of peer access", |one| {
                    let off = request_rate(context, Arm::Host, one);
                    (request_rate(context, *arm, one) / off - 1.0) * 100.0
                })?,
            })
        })
        .collect()
}

pub(super) fn speculation(
    context: &Context<'_>,
    arms: &[Arm],
) -> Result<Vec<SpeculationRow>, EstimateError> {
    if context.request.model.draft_layers == 0 {
        return Ok(Vec::new());
    }
    let mut steps = vec![1, 2, 3];
    if context.request.draft_steps > 3 {
        steps.push(context.request.draft_steps);
    }
    steps.into_iter().map(|steps| speculation_row(context, arms, steps)).collect()
}

fn speculation_row(
    context: &Context<'_>,
    arms: &[Arm],
    steps: u32,
) -> Result<SpeculationRow, EstimateError> {
    let setup = context.setup();
    let (plain, work) = (context.work(0), context.work(steps));
    let accepted = context.accepted(steps);
    let ratio = |arm: Arm, one: &Scenario| {
        break_even(setup.decode(&work, arm, one).total(), setup.decode(&plain, arm, one).total())
    };
    let rows = arms
        .iter()
        .map(|arm| {
            let pace = context
                .over("speculation", |one| rate(&work, 1.0, &setup.decode(&work, *arm, one)))?;
            let even = context.over("speculation", |one| ratio(*arm, one))?;
            Ok(SpeculationArm {
                arm: *arm,
                tokens_per_second: Interval::new(
                    pace.low * accepted.low,
                    pace.mid * accepted.mid,
                    pace.high * accepted.high,
                ),
                gain_percent: Interval::new(
                    (accepted.low / even.high - 1.0) * 100.0,
                    (accepted.mid / even.mid - 1.0) * 100.0,
                    (accepted.high / even.low - 1.0) * 100.0,
                ),
            })
        })
        .collect::<Result<Vec<_>, EstimateError>>()?;
    Ok(SpeculationRow {
        draft_steps: steps,
        accepted,
        accepted_assumed: !context.accepted_measured(steps),
        break_even: context.over("speculation", |one| ratio(Arm::Host, one))?,
        arms: rows,
    })
}
