//! Two sets of runs: is one faster, and does it still say the same.
//!
//! A run is the unit: requests of one run share its server, its clocks and its warmth, and are not
//! independent. Values are compared as logarithms of one value a run, with Welch's interval, widened
//! for the number of comparisons. Nothing is called a gain that the interval does not exclude from
//! chance, or that comes with other outputs.

pub mod design;
pub mod factorial;
mod gate;
pub mod records;
mod same;
pub mod stats;

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

pub use gate::{Gate, GateState};
pub use records::{Level, RecordError, Run};

use crate::interval::Interval;
use stats::Samples;

/// What is measured of a run at one load.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// Tokens a second within the window, all requests together.
    TokensPerSecond,
    /// Seconds between tokens, every token weighing the same.
    SecondsPerToken,
    /// Seconds from sending to the first token, the middle one of the requests.
    FirstTokenSeconds,
}

impl Metric {
    /// All of them.
    pub const ALL: [Self; 3] =
        [Self::TokensPerSecond, Self::SecondsPerToken, Self::FirstTokenSeconds];

    /// Whether more is better.
    pub const fn more_is_better(self) -> bool {
        matches!(self, Self::TokensPerSecond)
    }

    /// In words.
    pub const fn words(self) -> &'static str {
        match self {
            Self::TokensPerSecond => "tokens/s",
            Self::SecondsPerToken => "s per token",
            Self::FirstTokenSeconds => "s to the first token",
        }
    }

    /// Its value in a run at a load; absent where the client was too slow to tell.
    pub fn of(self, level: &Level) -> Option<f64> {
        if level.lagged.is_some() {
            return None;
        }
        match self {
            Self::TokensPerSecond => level.tokens_per_second(),
            Self::SecondsPerToken => level.seconds_per_token(),
            Self::FirstTokenSeconds => level.first_token_seconds(),
        }
        .filter(|value| value.is_finite() && *value > 0.0)
    }
}

/// What a comparison came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    /// B is better, beyond chance, with outputs that are the same.
    Better,
    /// B is worse, beyond chance.
    Worse,
    /// The interval holds no difference: nothing was shown.
    NotShown,
    /// The interval excludes no difference, and the outputs are not shown to be the same.
    OutputsInDoubt,
    /// Fewer than two runs on a side: noise is unknown.
    TooFewRuns,
}

/// One value at one load.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Row {
    /// The load.
    pub load: String,
    /// What was measured.
    pub metric: Metric,
    /// Runs on each side, or blocks where runs are of blocks.
    pub runs: [usize; 2],
    /// Geometric mean of each side.
    pub means: [f64; 2],
    /// B against A, per cent, with its interval; absent with fewer than two runs on a side.
    pub change_percent: Option<Interval>,
    /// Smallest change that so many runs with this noise would show, per cent.
    pub smallest_percent: Option<f64>,
    /// What it came to.
    pub verdict: Verdict,
}

/// The comparison.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Comparison {
    /// Names of the runs of A and of B.
    pub runs: [Vec<String>; 2],
    /// Why the two cannot be compared; then there are no rows.
    pub incomparable: Vec<String>,
    /// Whether B says what A says.
    pub gate: Gate,
    /// Confidence of all intervals together.
    pub confidence: f64,
    /// Values, by load.
    pub rows: Vec<Row>,
    /// What to know.
    pub notes: Vec<String>,
}

/// Confidence of all intervals together.
pub const CONFIDENCE: f64 = 0.95;

/// Compares two sets of runs.
pub fn compare(a: &[Run], b: &[Run]) -> Comparison {
    let names = |runs: &[Run]| runs.iter().map(|run| run.name.clone()).collect();
    let incomparable = incomparable(a, b);
    let gate = gate::judge(a, b);
    let mut notes = Vec::new();
    for run in a.iter().chain(b) {
        if !run.ended {
            notes.push(format!("run {:?} was broken off: its file has no last line", run.name));
        }
        notes.extend(same::reservations(run));
    }
    let rows = if incomparable.is_empty() { rows(a, b, &gate) } else { Vec::new() };
    if rows.iter().any(|row| row.verdict == Verdict::TooFewRuns) {
        notes.push(
            "one run on a side says nothing about noise: repeat each side at least three times, \
             with a restart of the server before each, and in turns"
                .to_owned(),
        );
    }
    Comparison {
        runs: [names(a), names(b)],
        incomparable,
        gate,
        confidence: CONFIDENCE,
        rows,
        notes,
    }
}

/// Work that differs: then a difference in time says nothing.
fn incomparable(a: &[Run], b: &[Run]) -> Vec<String> {
    let mut why = Vec::new();
    for (side, runs) in [("A", a), ("B", b)] {
        if runs.is_empty() {
            why.push(format!("{side} has no run"));
        }
    }
    let all: Vec<&Run> = a.iter().chain(b).collect();
    why.extend(same::differences(&all));
    let loads = |runs: &[Run]| -> Vec<String> {
        runs.iter().flat_map(|run| run.levels.keys().cloned()).collect()
    };
    let (of_a, of_b) = (loads(a), loads(b));
    if why.is_empty() && !of_a.iter().any(|load| of_b.contains(load)) {
        why.push("no load was driven on both sides".to_owned());
    }
    why
}

/// Logarithms of one value a run; of runs in one block their mean, since they are not independent.
fn samples<'r>(runs: impl IntoIterator<Item = &'r Run>, load: &str, metric: Metric) -> Samples {
    let mut by_block: BTreeMap<u32, (f64, f64)> = BTreeMap::new();
    let mut alone = Vec::new();
    for run in runs {
        let Some(value) = run.levels.get(load).and_then(|level| metric.of(level)) else { continue };
        match run.block {
            None => alone.push(value.ln()),
            Some(block) => {
                let entry = by_block.entry(block).or_default();
                entry.0 += value.ln();
                entry.1 += 1.0;
            }
        }
    }
    alone.extend(by_block.into_values().map(|(sum, count)| sum / count));
    Samples::new(alone)
}

fn rows(a: &[Run], b: &[Run], gate: &Gate) -> Vec<Row> {
    let mut found: Vec<(String, Metric, Samples, Samples)> = Vec::new();
    let mut loads: BTreeMap<&str, f64> = BTreeMap::new();
    for (load, level) in a.iter().chain(b).flat_map(|run| &run.levels) {
        loads.insert(load, level.order);
    }
    let mut ordered: Vec<(&str, f64)> = loads.into_iter().collect();
    ordered.sort_by(|x, y| x.1.total_cmp(&y.1));
    for (load, _) in ordered {
        for metric in Metric::ALL {
            let (of_a, of_b) = (samples(a, load, metric), samples(b, load, metric));
            if of_a.count() > 0 && of_b.count() > 0 {
                found.push((load.to_owned(), metric, of_a, of_b));
            }
        }
    }
    // All intervals are to hold together.
    let tests = f64::from(u32::try_from(found.len().max(1)).unwrap_or(u32::MAX));
    let alpha = (1.0 - CONFIDENCE) / tests;
    found.into_iter().map(|(load, metric, a, b)| row(load, metric, &a, &b, alpha, gate)).collect()
}

fn row(load: String, metric: Metric, a: &Samples, b: &Samples, alpha: f64, gate: &Gate) -> Row {
    let percent = |log: f64| (log.exp() - 1.0) * 100.0;
    let welch = stats::welch(a, b, alpha);
    let change = welch.map(|found| {
        Interval::new(
            percent(found.difference - found.half),
            percent(found.difference),
            percent(found.difference + found.half),
        )
    });
    let verdict = match change {
        None => Verdict::TooFewRuns,
        Some(change) if change.low <= 0.0 && change.high >= 0.0 => Verdict::NotShown,
        Some(change) => {
            let better = (change.mid > 0.0) == metric.more_is_better();
            match (better, gate.state) {
                (false, _) => Verdict::Worse,
                (true, GateState::Passed) => Verdict::Better,
                (true, GateState::Failed | GateState::Unknown) => Verdict::OutputsInDoubt,
            }
        }
    };
    Row {
        load,
        metric,
        runs: [a.count(), b.count()],
        means: [a.mean().exp(), b.mean().exp()],
        change_percent: change,
        smallest_percent: welch.map(|found| percent(found.smallest)),
        verdict,
    }
}
