//! Runs of a factorial design: effects of each factor where the others stand, and how they act on
//! each other, from one pooled noise.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::design::{Cell, PATHS};
use super::records::Run;
use super::stats::{Samples, t_quantile};
use super::{Gate, GateState, Metric, gate, same};
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
    /// Why the runs cannot stand beside each other; then there are no effects.
    pub incomparable: Vec<String>,
    /// Outputs of the cells of each effect against each other.
    pub gates: BTreeMap<String, Gate>,
    /// Noise from run to run, per cent, pooled over cells, by load and value.
    pub noise_percent: BTreeMap<String, f64>,
    /// Effects.
    pub effects: Vec<Effect>,
    /// What to know.
    pub notes: Vec<String>,
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
    let named: Vec<&Run> = by_cell.values().flatten().collect();
    let mut found = Factorial {
        cells: by_cell.iter().map(|(cell, runs)| (cell.label(), runs.len())).collect(),
        unnamed,
        incomparable: same::differences(&named),
        gates: BTreeMap::new(),
        noise_percent: BTreeMap::new(),
        effects: Vec::new(),
        notes: named.iter().flat_map(|run| same::reservations(run)).collect(),
    };
    if named.iter().any(|run| run.block.is_none()) {
        found.notes.push(
            "runs of one boot are not independent: name them by block (#1/b1), as worth compare \
             --propose does, so that the mean of a block is one observation"
                .to_owned(),
        );
    }
    if !found.incomparable.is_empty() {
        return found;
    }
    let contrasts: Vec<(Contrast, Gate)> = contrasts_of(&|cell| by_cell.contains_key(cell))
        .into_iter()
        .filter_map(|contrast| contrast.gate(&by_cell).map(|gate| (contrast, gate)))
        .collect();
    let loads: std::collections::BTreeSet<&String> =
        named.iter().flat_map(|run| run.levels.keys()).collect();
    let tests = loads.len() * METRICS.len() * contrasts.len();
    for load in loads {
        for metric in METRICS {
            let samples: BTreeMap<&Cell, Samples> = by_cell
                .iter()
                .map(|(cell, runs)| (cell, super::samples(runs, load, metric)))
                .collect();
            let Some(pooled) = Pooled::of(&samples) else { continue };
            found.noise_percent.insert(
                format!("{load}, {}", metric.words()),
                (pooled.variance.sqrt().exp() - 1.0) * 100.0,
            );
            found.effects.extend(contrasts.iter().filter_map(|(contrast, gate)| {
                let change = pooled.effect(&samples, contrast, tests)?;
                Some(effect(load, metric, contrast, change, gate))
            }));
        }
    }
    for (contrast, gate) in contrasts.into_iter().filter(|(one, _)| !one.interaction) {
        found.gates.insert(contrast.what, gate);
    }
    found
}

/// What is contrasted: rates and the time between tokens.
const METRICS: [Metric; 2] = [Metric::TokensPerSecond, Metric::SecondsPerToken];

/// Contrasts whose cells are all there.
fn contrasts_of(there: &dyn Fn(&Cell) -> bool) -> Vec<Contrast> {
    let mut all = contrasts();
    all.retain(|one| one.terms.iter().all(|(cell, _)| there(cell)));
    all
}

/// Intervals that hold together in the analysis of these cells at one load, and whether an
/// interaction is among them.
pub(super) fn tests(cells: &[Cell]) -> (u32, bool) {
    let all = contrasts_of(&|cell| cells.contains(cell));
    let count = u32::try_from(all.len() * METRICS.len()).unwrap_or(u32::MAX);
    (count.max(1), all.iter().any(|one| one.interaction))
}

impl Contrast {
    /// Outputs of its cells against those of the one that it starts from, which comes last.
    fn gate(&self, by_cell: &BTreeMap<Cell, Vec<Run>>) -> Option<Gate> {
        let ((base, _), others) = self.terms.split_last()?;
        let base = by_cell.get(base)?;
        let mut worst: Option<Gate> = None;
        for (cell, _) in others {
            let gate = gate::judge(base, by_cell.get(cell)?);
            let rank = |one: &Gate| match one.state {
                GateState::Passed => 0,
                GateState::Unknown => 1,
                GateState::Failed => 2,
            };
            if worst.as_ref().is_none_or(|before| rank(&gate) > rank(before)) {
                worst = Some(gate);
            }
        }
        worst
    }
}

fn effect(
    load: &str,
    metric: Metric,
    contrast: &Contrast,
    change: Interval,
    gate: &Gate,
) -> Effect {
    let away = change.low > 0.0 || change.high < 0.0;
    Effect {
        load: load.to_owned(),
        metric,
        what: contrast.what.clone(),
        interaction: contrast.interaction,
        change_percent: Some(change),
        shown: away && gate.state == GateState::Passed,
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
