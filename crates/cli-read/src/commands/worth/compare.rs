//! `worth compare`: two sets of runs, or a factorial design.

use std::path::Path;

use clap::Args;
use peerway_worth::Interval;
use peerway_worth::compare::design::{self, Design};
use peerway_worth::compare::factorial::{self, Factorial};
use peerway_worth::compare::{Comparison, Gate, GateState, Metric, Row, Run, Verdict, compare};

use super::{document, text_of, walls};
use crate::args::{Format, Global};
use crate::error::CliError;
use crate::exit::Exit;
use crate::output::Output;
use crate::text::{add, bold, wrap};

/// A run of a million requests with their texts.
const MOST_RECORDS: usize = 4 << 30;

/// Arguments of `worth compare`.
#[derive(Args, Clone, Debug)]
pub struct CompareArgs {
    /// Raw records before and after: A B, each a file or several with commas between; or all files
    /// of a design
    #[arg(value_name = "FILES")]
    pub files: Vec<String>,
    /// The files hold runs of a design: effects and interactions, by the names of the runs
    #[arg(long)]
    pub factorial: bool,
    /// Propose the runs of a design (P2P x all-reduce x MTP) that shows a change of so many per
    /// cent; files given beside it tell the noise
    #[arg(long, value_name = "PERCENT", conflicts_with = "factorial")]
    pub propose: Option<f64>,
    /// A design without speculation
    #[arg(long, requires = "propose")]
    pub no_mtp: bool,
    /// A design without one-shot kernels
    #[arg(long, requires = "propose")]
    pub no_kernels: bool,
    /// Seed of the order of the runs
    #[arg(long, value_name = "N", default_value_t = 1, requires = "propose")]
    pub seed: u64,
}

/// Runs the command.
pub fn run(global: &Global, wanted: &CompareArgs, output: &mut Output) -> Result<Exit, CliError> {
    let groups: Vec<Vec<&Path>> =
        wanted.files.iter().map(|word| word.split(',').map(Path::new).collect()).collect();
    walls(&groups.concat())?;
    let text = global.format == Format::Text;
    if let Some(effect) = wanted.propose {
        let design = propose(wanted, effect, &read(&groups.concat())?)?;
        if text {
            output.push(&design_page(&design));
        } else {
            document(output, "worth-design", design)?;
        }
        return Ok(Exit::Fine);
    }
    if wanted.factorial {
        let found = factorial::analyse(&read(&groups.concat())?);
        let failed = found.gates.values().any(|gate| gate.state == GateState::Failed);
        let empty = found.effects.is_empty() || !found.incomparable.is_empty();
        if text {
            output.push(&factorial_page(&found));
        } else {
            document(output, "worth-factorial", found)?;
        }
        return Ok(if failed {
            Exit::WrongData
        } else if empty {
            Exit::Undecided
        } else {
            Exit::Fine
        });
    }
    let [before, after] = groups.as_slice() else {
        return Err(CliError::Wishes {
            why: "give the records before and after: worth compare A B, each a file, or several \
                  with commas between"
                .to_owned(),
        });
    };
    let (a, b) = (read(before)?, read(after)?);
    let comparison = compare(&a, &b);
    let exit = exit_of(&comparison);
    if text {
        output.push(&page(&comparison));
    } else {
        document(output, "worth-compare", comparison)?;
    }
    Ok(exit)
}

fn read(files: &[&Path]) -> Result<Vec<Run>, CliError> {
    let mut runs = Vec::new();
    for path in files {
        let text = text_of("the records", path, MOST_RECORDS)?;
        runs.extend(Run::parse(&text).map_err(|error| CliError::OptionFile {
            what: "the records",
            path: path.display().to_string(),
            why: error.to_string(),
        })?);
    }
    Ok(runs)
}

fn exit_of(comparison: &Comparison) -> Exit {
    if comparison.gate.state == GateState::Failed {
        Exit::WrongData
    } else if !comparison.incomparable.is_empty()
        || comparison.rows.iter().all(|row| row.verdict == Verdict::TooFewRuns)
    {
        Exit::Undecided
    } else {
        Exit::Fine
    }
}

/// Noise of the first load's rate from run to run, per cent, where there are two runs.
fn noise(runs: &[Run]) -> Option<f64> {
    let load = runs.first()?.levels.iter().min_by(|a, b| a.1.order.total_cmp(&b.1.order))?.0;
    let logs: Vec<f64> = runs
        .iter()
        .filter_map(|run| Metric::TokensPerSecond.of(run.levels.get(load)?).map(f64::ln))
        .collect();
    let samples = peerway_worth::compare::stats::Samples::new(logs);
    (samples.count() > 1).then(|| (samples.variance().sqrt().exp() - 1.0) * 100.0)
}

fn propose(wanted: &CompareArgs, effect: f64, pilot: &[Run]) -> Result<Design, CliError> {
    let loads: std::collections::BTreeSet<&String> =
        pilot.iter().flat_map(|run| run.levels.keys()).collect();
    let loads = u32::try_from(loads.len()).unwrap_or(u32::MAX);
    let noise = noise(pilot);
    design::propose(effect, noise, !wanted.no_mtp, !wanted.no_kernels, loads, wanted.seed)
        .map_err(|error| CliError::Wishes { why: error.to_string() })
}

fn change(value: Interval) -> String {
    format!("{:+.1} % ({:+.1} to {:+.1})", value.mid, value.low, value.high)
}

fn gate_lines(gate: &Gate, head: &str) -> String {
    let word = match gate.state {
        GateState::Passed => "the same, as far as runs of A are",
        GateState::Failed => "NOT the same",
        GateState::Unknown => "not shown to be the same",
    };
    let mut out = wrap(&format!("{word} ({} prompts compared)", gate.prompts), head, "         ");
    for reason in &gate.reasons {
        out.push_str(&wrap(reason, "         ", "         "));
    }
    out
}

fn page(comparison: &Comparison) -> String {
    let [a, b] = &comparison.runs;
    let mut out = wrap(&a.join(" "), "A: ", "   ");
    out.push_str(&wrap(&b.join(" "), "B: ", "   "));
    for why in &comparison.incomparable {
        out.push_str(&wrap(why, "cannot be compared: ", "  "));
    }
    out.push_str(&gate_lines(&comparison.gate, "outputs: "));
    for row in &comparison.rows {
        out.push_str(&row_lines(row));
    }
    for note in &comparison.notes {
        out.push_str(&wrap(note, "note: ", "      "));
    }
    if !comparison.rows.is_empty() {
        let text = format!(
            "intervals hold together with {:.0} % confidence; a run is one observation",
            comparison.confidence * 100.0
        );
        out.push_str(&wrap(&text, "", ""));
    }
    out
}

fn row_lines(row: &Row) -> String {
    let verdict = match row.verdict {
        Verdict::Better => "better",
        Verdict::Worse => "worse",
        Verdict::NotShown => "no difference shown",
        Verdict::OutputsInDoubt => "differs, and so may the outputs: not called a gain",
        Verdict::TooFewRuns => "too few runs",
    };
    let change = row.change_percent.map_or(String::new(), |value| format!(" {}", change(value)));
    let smallest = match (row.verdict, row.smallest_percent) {
        (Verdict::NotShown, Some(smallest)) => {
            format!("; so many runs would show {smallest:.1} % and more")
        }
        _ => String::new(),
    };
    let [a, b] = row.means;
    let text = format!(
        "{} {}: {:.4} to {:.4}{change}: {}{smallest}",
        row.load,
        row.metric.words(),
        a,
        b,
        bold(verdict)
    );
    wrap(&text, "  ", "      ")
}

fn design_page(design: &Design) -> String {
    let measured = if design.noise_measured { "measured" } else { "assumed" };
    let mut out = wrap(
        &format!(
            "{} cells, {} runs each: a change of {} % is seen four times of five, with a noise of \
             {:.1} % ({measured})",
            design.cells.len(),
            design.runs_per_cell,
            design.effect_percent,
            design.noise_percent
        ),
        "",
        "",
    );
    for note in &design.notes {
        out.push_str(&wrap(note, "note: ", "      "));
    }
    let mut block = 0;
    for run in &design.order {
        if run.block != block {
            block = run.block;
            let path = if run.name.contains("path=host") { "off" } else { "on" };
            add(&mut out, &format!("block {block}: peer access {path}\n"));
        }
        add(&mut out, &format!("  {:>3}  {}\n", run.place, run.name));
    }
    out
}

fn factorial_page(found: &Factorial) -> String {
    let mut out = String::new();
    for (cell, runs) in &found.cells {
        add(&mut out, &format!("  {cell}: {runs} runs\n"));
    }
    for name in &found.unnamed {
        out.push_str(&wrap(
            &format!("run {name:?} bears no name of a cell (path=host,mtp=off): left out"),
            "note: ",
            "      ",
        ));
    }
    for why in &found.incomparable {
        out.push_str(&wrap(why, "cannot be compared: ", "  "));
    }
    for note in &found.notes {
        out.push_str(&wrap(note, "note: ", "      "));
    }
    for (cells, gate) in &found.gates {
        out.push_str(&gate_lines(gate, &format!("outputs, {cells}: ")));
    }
    for (what, noise) in &found.noise_percent {
        add(&mut out, &format!("noise, {what}: {noise:.1} %\n"));
    }
    for effect in &found.effects {
        let kind = if effect.interaction { "interaction, " } else { "" };
        let shown = if effect.shown { "shown" } else { "not shown" };
        let value = effect.change_percent.map_or("no runs".to_owned(), change);
        let text = format!(
            "{} {}: {kind}{}: {value}: {}",
            effect.load,
            effect.metric.words(),
            effect.what,
            bold(shown)
        );
        out.push_str(&wrap(&text, "  ", "      "));
    }
    if found.effects.is_empty() && found.incomparable.is_empty() {
        out.push_str("no effect can be told: no two cells were run, or none of them twice\n");
    }
    out
}
