//! Which runs to do, how many, and in which order.
//!
//! P2P, the way of summing and speculation act on each other, so each combination is a cell of its
//! own. One-shot kernels need peer access: without it they spin for ever, so that cell is left out.

use schemars::JsonSchema;
use serde::Serialize;
use thiserror::Error;

use super::stats::t_quantile;

/// How sums travel.
pub const PATHS: [&str; 3] = ["host", "p2p", "p2p-kernels"];

/// Speculation.
pub const SPECULATION: [&str; 2] = ["off", "on"];

/// A combination.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub struct Cell {
    /// How sums travel.
    pub path: String,
    /// Whether it speculates.
    pub mtp: String,
}

impl Cell {
    /// The name that a run of it bears: `path=p2p,mtp=on`.
    pub fn label(&self) -> String {
        format!("path={},mtp={}", self.path, self.mtp)
    }

    /// From the name of a run that begins with a label; what follows a `#` is its number.
    pub fn parse(name: &str) -> Option<Self> {
        let label = name.split('#').next()?.trim();
        let mut path = None;
        let mut mtp = None;
        for part in label.split(',') {
            match part.split_once('=')? {
                ("path", value) if PATHS.contains(&value) => path = Some(value.to_owned()),
                ("mtp", value) if SPECULATION.contains(&value) => mtp = Some(value.to_owned()),
                _ => return None,
            }
        }
        Some(Self { path: path?, mtp: mtp? })
    }
}

/// Why no design can be made.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("{what} has to lie between {least} and {most} per cent")]
pub struct DesignError {
    what: &'static str,
    least: &'static str,
    most: &'static str,
}

/// A run to be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Planned {
    /// Which one, from 1.
    pub place: u32,
    /// Block: within one, how sums travel does not change between peer access and none.
    pub block: u32,
    /// Name to give it.
    pub name: String,
    /// Whether peer access has to be switched before it.
    pub switch: bool,
}

/// The runs.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Design {
    /// Change that is to be seen, per cent.
    pub effect_percent: f64,
    /// Noise from run to run, per cent of the value.
    pub noise_percent: f64,
    /// Whether the noise was taken from runs.
    pub noise_measured: bool,
    /// Cells.
    pub cells: Vec<Cell>,
    /// Runs of each cell.
    pub runs_per_cell: u32,
    /// Runs in their order.
    pub order: Vec<Planned>,
    /// What to know.
    pub notes: Vec<String>,
}

/// Fewest runs of a cell: in two blocks.
const FEWEST: u32 = 4;

/// More than this nobody does; the effect is then too small for the noise.
const MOST: u32 = 40;

/// What the analysis of a design does with its runs.
#[derive(Clone, Copy, Debug)]
pub struct Analysis {
    /// Cells.
    pub cells: u32,
    /// Intervals that are to hold together.
    pub tests: u32,
    /// Whether interactions are to be seen too: a difference of two differences varies twice as
    /// much as one.
    pub interactions: bool,
}

/// Runs of a cell that show an effect four times of five, as the analysis looks for it: intervals
/// that hold together, and the mean of a block as one observation, two runs of a cell in most.
pub fn runs_for(effect_percent: f64, noise_percent: f64, analysis: Analysis) -> u32 {
    let effect = (1.0 + effect_percent / 100.0).ln().abs();
    let noise = (noise_percent / 100.0).max(1e-4);
    let shares = if analysis.interactions { 4.0 } else { 2.0 };
    let mut runs = FEWEST;
    while runs < MOST {
        let blocks = f64::from(runs.div_ceil(2));
        let freedom = f64::from(analysis.cells) * (blocks - 1.0);
        let apart = 1.0 - 0.025 / f64::from(analysis.tests.max(1));
        let factor = t_quantile(apart, freedom) + t_quantile(0.8, freedom);
        if factor * noise * (shares / f64::from(runs)).sqrt() <= effect {
            break;
        }
        runs += 2;
    }
    runs
}

/// Proposes a design.
///
/// # Errors
/// An effect or a noise out of range.
pub fn propose(
    effect_percent: f64,
    noise: Option<f64>,
    with_mtp: bool,
    with_kernels: bool,
    loads: u32,
    seed: u64,
) -> Result<Design, DesignError> {
    if !(0.1..=500.0).contains(&effect_percent) {
        return Err(DesignError { what: "the effect", least: "0.1", most: "500" });
    }
    let noise_percent = noise.unwrap_or(2.0);
    if !(0.0..=100.0).contains(&noise_percent) {
        return Err(DesignError { what: "the noise", least: "0", most: "100" });
    }
    let cells: Vec<Cell> = PATHS
        .iter()
        .filter(|path| with_kernels || **path != "p2p-kernels")
        .flat_map(|path| {
            SPECULATION
                .iter()
                .filter(move |mtp| with_mtp || **mtp == "off")
                .map(move |mtp| Cell { path: (*path).to_owned(), mtp: (*mtp).to_owned() })
        })
        .collect();
    let count = u32::try_from(cells.len()).unwrap_or(u32::MAX);
    let (tests, interactions) = super::factorial::tests(&cells);
    let tests = tests.saturating_mul(loads.max(1));
    let analysis = Analysis { cells: count, tests, interactions };
    let runs_per_cell = runs_for(effect_percent, noise_percent, analysis);
    let order = order(&cells, runs_per_cell, seed);
    let mut notes = vec![
        "restart the server before each run, keep seed, prompts and lengths, and name the run as \
         here: worth bench --run NAME"
            .to_owned(),
        "peer access is switched between blocks only: off, on, on, off and so on, so that a drift \
         of the host does not look like its effect"
            .to_owned(),
        "runs of one block share a boot and are not independent: the analysis takes their mean as \
         one observation. What differs from boot to boot is not in the noise from run to run, and \
         needs more blocks where it is large"
            .to_owned(),
        format!(
            "counted for {} at once and {tests} intervals that hold together{}",
            if loads > 1 { format!("{loads} loads") } else { "one load".to_owned() },
            if interactions { ", interactions among them" } else { "" }
        ),
    ];
    if noise.is_none() {
        notes.push(
            "the noise is assumed to be 2 %: give runs of one cell to take it from them".to_owned(),
        );
    }
    if runs_per_cell == MOST {
        notes.push(format!(
            "an effect of {effect_percent} % would need more than {MOST} runs a cell with this \
             noise: find the source of the noise first"
        ));
    }
    Ok(Design {
        effect_percent,
        noise_percent,
        noise_measured: noise.is_some(),
        cells,
        runs_per_cell,
        order,
        notes,
    })
}

/// Blocks off, on, on, off…; within a block the cells in an order drawn from the seed.
fn order(cells: &[Cell], runs_per_cell: u32, seed: u64) -> Vec<Planned> {
    let mut state = seed ^ 0x9e37_79b9_7f4a_7c15;
    let mut planned = Vec::new();
    let mut place = 0;
    let mut block = 0;
    let mut last_on = None;
    for round in 0..runs_per_cell {
        let sides = if round % 2 == 0 { [false, true] } else { [true, false] };
        for on in sides {
            let mut here: Vec<&Cell> =
                cells.iter().filter(|cell| (cell.path != "host") == on).collect();
            shuffle(&mut here, &mut state);
            if last_on != Some(on) {
                block += 1;
            }
            for (index, cell) in here.into_iter().enumerate() {
                place += 1;
                planned.push(Planned {
                    place,
                    block,
                    name: format!("{}#{}/b{block}", cell.label(), round + 1),
                    switch: index == 0 && last_on != Some(on),
                });
            }
            last_on = Some(on);
        }
    }
    planned
}

/// Fisher and Yates, with a generator of 64 bits (splitmix).
fn shuffle(cells: &mut [&Cell], state: &mut u64) {
    for end in (1..cells.len()).rev() {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = *state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let drawn = (z ^ (z >> 31)) % u64::try_from(end + 1).unwrap_or(1);
        cells.swap(end, usize::try_from(drawn).unwrap_or(0));
    }
}
