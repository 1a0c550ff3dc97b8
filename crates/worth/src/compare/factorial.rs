//! Runs of a factorial design: effects of each factor where the others stand, and how they act on
//! each other, from one pooled noise.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::design::{Cell, PATHS};
use super::records::Run;
use super::stats::{Samples, t_quantile};
use super::{Gate, GateState, Metric, gate};
use crate::interval::Interval;

/// One contrast of cells.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Effect {
    /// The load.
    pub load: String,
    /// What was measured.
    pub metric: Metric,
    /// What is contrasted, in words.
    pub what: String,
    /// Whether it is an interaction: by how much two factors together differ from both alone.
    pub interaction: bool,
    /// The change, per cent, with an interval that holds for all effects together; absent where a
    /// cell lacks runs.
    pub change_percent: Option<Interval>,
    /// Whether it was shown, and its outputs are the same.
    pub shown: bool,
}

/// Everything that a factorial set of runs says.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Factorial {
    /// Runs by cell.
    pub cells: BTreeMap<String, usize>,
    /// Runs whose names say no cell.
    pub unnamed: Vec<String>,
    /// Outputs of each cell against those of the first, where that was run.
    pub gates: BTreeMap<String, Gate>,
    /// Noise from run to run, per cent, pooled over cells, by load and value.
    pub noise_percent: BTreeMap<String, f64>,
    /// Effects.
    pub effects: Vec<Effect>,
}

struct Contrast {
    what: String,
    interaction: bool,
    terms: Vec<(Cell, f64)>,
}

fn cell(path: &str, mtp: &str) -> Cell {
    Cell { path: path.to_owned(), mtp: mtp.to_owned() }
}

/// All effects that cells of a design can show.
fn contrasts() -> Vec<Contrast> {
    let mut all = Vec::new();
    for (from, to) in [("host", "p2p"), ("p2p", "p2p-kernels"), ("host", "p2p-kernels")] {
        for mtp in ["off", "on"] {
            all.push(Contrast {
                what: format!("{from} to {to}, mtp {mtp}"),
                interaction: false,
                terms: vec![(cell(to, mtp), 1.0), (cell(from, mtp), -1.0)],
            });
        }
        all.push(Contrast {
            what: format!("{from} to {to}, with mtp against without"),
            interaction: true,
            terms: vec![
                (cell(to, "on"), 1.0),
                (cell(from, "on"), -1.0),
                (cell(to, "off"), -1.0),
                (cell(from, "off"), 1.0),
            ],
        });
    }
    for path in PATHS {
        all.push(Contrast {
            what: format!("mtp off to on, {path}"),
            interaction: false,
            terms: vec![(cell(path, "on"), 1.0), (cell(path, "off"), -1.0)],
        });
    }
    all
}

/// Effects of the runs that bear the names of cells.
pub fn analyse(runs: &[Run]) -> Factorial {
    let mut by_cell: BTreeMap<Cell, Vec<Run>> = BTreeMap::new();
    let mut unnamed = Vec::new();
    for run in runs {
        match Cell::parse(&run.name) {
            Some(cell) => by_cell.entry(cell).or_default().push(run.clone()),
            None => unnamed.push(run.name.clone()),
        }
    }
    let base = by_cell.get(&cell("host", "off"));
    let gates: BTreeMap<Cell, Gate> = base
        .map(|base| {
            by_cell
                .iter()
                .filter(|(one, _)| **one != cell("host", "off"))
                .map(|(one, runs)| (one.clone(), gate::judge(base, runs)))
                .collect()
        })
        .unwrap_or_default();
    let loads: std::collections::BTreeSet<&String> =
        runs.iter().flat_map(|run| run.levels.keys()).collect();
    let metrics = [Metric::TokensPerSecond, Metric::SecondsPerToken];
    let contrasts = contrasts();
    let tests = loads.len() * metrics.len() * contrasts.len();
    let mut effects = Vec::new();
    let mut noise = BTreeMap::new();
    for load in loads {
        for metric in metrics {
            let samples: BTreeMap<&Cell, Samples> = by_cell
                .iter()
                .map(|(cell, runs)| {
                    let values = runs.iter().filter_map(|run| metric.of(run.levels.get(load)?));
                    (cell, Samples::new(values.map(f64::ln).collect()))
                })
                .collect();
            let pooled = Pooled::of(&samples);
            if let Some(pooled) = &pooled {
                noise.insert(
                    format!("{load}, {}", metric.words()),
                    (pooled.variance.sqrt().exp() - 1.0) * 100.0,
                );
            }
            for contrast in &contrasts {
                let change = pooled.as_ref().and_then(|one| one.effect(&samples, contrast, tests));
                effects.push(effect(load, metric, contrast, change, &gates));
            }
        }
    }
    effects.retain(|one| one.change_percent.is_some());
    Factorial {
        cells: by_cell.iter().map(|(cell, runs)| (cell.label(), runs.len())).collect(),
        unnamed,
        gates: gates.into_iter().map(|(cell, gate)| (cell.label(), gate)).collect(),
        noise_percent: noise,
        effects,
    }
}

fn effect(
    load: &str,
    metric: Metric,
    contrast: &Contrast,
    change: Option<Interval>,
    gates: &BTreeMap<Cell, Gate>,
) -> Effect {
    let same = contrast
        .terms
        .iter()
        .all(|(cell, _)| gates.get(cell).is_none_or(|gate| gate.state == GateState::Passed));
    let away = change.is_some_and(|change| change.low > 0.0 || change.high < 0.0);
    Effect {
        load: load.to_owned(),
        metric,
        what: contrast.what.clone(),
        interaction: contrast.interaction,
        change_percent: change,
        shown: away && same,
    }
}

struct Pooled {
    variance: f64,
    freedom: f64,
}

impl Pooled {
    /// Variance within cells; absent without a repeated cell.
    fn of(samples: &BTreeMap<&Cell, Samples>) -> Option<Self> {
        let mut squares = 0.0;
        let mut freedom = 0.0;
        for one in samples.values().filter(|one| one.count() > 1) {
            let n = f64::from(u32::try_from(one.count()).unwrap_or(u32::MAX)) - 1.0;
            squares += one.variance() * n;
            freedom += n;
        }
        (freedom > 0.0).then(|| Self { variance: (squares / freedom).max(1e-6), freedom })
    }

    fn effect(
        &self,
        samples: &BTreeMap<&Cell, Samples>,
        contrast: &Contrast,
        tests: usize,
    ) -> Option<Interval> {
        let mut value = 0.0;
        let mut shares = 0.0;
        for (cell, weight) in &contrast.terms {
            let one = samples.get(cell).filter(|one| one.count() > 0)?;
            value += weight * one.mean();
            shares += weight * weight / f64::from(u32::try_from(one.count()).unwrap_or(u32::MAX));
        }
        let tests = f64::from(u32::try_from(tests.max(1)).unwrap_or(u32::MAX));
        let t = t_quantile(1.0 - 0.025 / tests, self.freedom);
        let half = t * (self.variance * shares).sqrt();
        let percent = |log: f64| (log.exp() - 1.0) * 100.0;
        Some(Interval::new(percent(value - half), percent(value), percent(value + half)))
    }
}
