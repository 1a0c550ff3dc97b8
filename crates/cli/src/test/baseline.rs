//! Comparison with an earlier measurement of the same GPUs.

use std::collections::BTreeMap;
use std::path::Path;

use peerway_cli_read::Exit;
use peerway_core::address::PciAddress;
use peerway_gpu::{
    AllReduceResult, Arm, Depth, Engine, GpuSeen, Measurement, Mode, PairResult, Verdict,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Answers are some hundred kilobytes.
const MOST: usize = 64 << 20;

/// Slower by more than this is a change. Repeated measurements of one host stay well within, but for
/// times below [`SHORT`].
const TOLERANCE: f64 = 0.10;
/// Those have to be slower by more than this factor: the host's scheduling decides them, and two
/// measurements of one host within minutes differed by a factor of 1.47 (two H200, NCCL in one
/// process).
const SHORT_RATIO: f64 = 2.0;
/// Seconds.
const SHORT: f64 = 100e-6;

/// What is taken of an earlier answer.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Baseline {
    schema: String,
    generated_at: String,
    #[serde(default)]
    depth: Option<Depth>,
    #[serde(default)]
    gpus: Vec<GpuSeen>,
    pairs: Vec<PairResult>,
    #[serde(default)]
    all_reduce: Vec<AllReduceResult>,
}

/// What changed since.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(super) struct Comparison {
    /// When the earlier answer was given.
    pub(super) baseline: String,
    /// Rows that both have.
    pub(super) compared: u32,
    /// Rows that only the earlier one has: not measured now.
    pub(super) missing: Vec<String>,
    /// Of those, the ones that were right: they may be wrong now.
    pub(super) missing_right: u32,
    /// Why figures, or anything, were not compared.
    pub(super) notes: Vec<String>,
    /// What is worse now.
    pub(super) worse: Vec<Change>,
    /// What is better now.
    pub(super) better: Vec<Change>,
}

/// One figure that changed by more than the tolerance, or a verdict that is another one.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub(super) struct Change {
    /// What was measured: pair, mode and engine, or the all-reduce.
    pub(super) what: String,
    /// Which figure, or `verdict`.
    pub(super) figure: String,
    /// Then; the verdict's word, or the figure.
    pub(super) before: String,
    /// Now.
    pub(super) now: String,
    /// Now over then, for figures.
    pub(super) ratio: Option<f64>,
}

/// Reads an earlier answer.
pub(super) fn read(path: &Path) -> Result<Baseline, String> {
    let why = |why: String| format!("cannot compare with {}: {why}", path.display());
    let bytes = peerway_cli_read::host::read_option_file(path, MOST).map_err(why)?;
    let baseline: Baseline = serde_json::from_slice(&bytes)
        .map_err(|error| why(format!("it is no answer of peerway test --format json ({error})")))?;
    if baseline.schema == "peerway/test/1" {
        Ok(baseline)
    } else {
        Err(why(format!("it is a document {:?}", baseline.schema)))
    }
}

type PairKey = (PciAddress, PciAddress, Mode, Engine);
type SumKey = (Arm, u32, u64);

fn pairs(rows: &[PairResult]) -> BTreeMap<PairKey, &PairResult> {
    rows.iter().map(|row| ((row.from, row.to, row.mode, row.engine), row)).collect()
}

fn sums(rows: &[AllReduceResult]) -> BTreeMap<SumKey, &AllReduceResult> {
    rows.iter().map(|row| ((row.arm, row.processes, row.bytes), row)).collect()
}

impl Baseline {
    /// What changed.
    pub(super) fn compare(&self, measured: &Measurement, depth: Depth) -> Comparison {
        let mut comparison = Comparison {
            baseline: self.generated_at.clone(),
            compared: 0,
            missing: Vec::new(),
            missing_right: 0,
            notes: Vec::new(),
            worse: Vec::new(),
            better: Vec::new(),
        };
        let others = self.other_gpus(measured);
        if !others.is_empty() {
            let text = format!("another GPU than then is at {}", others.join(", "));
            comparison.notes.push(text);
        }
        // Figures depend on how much is moved at a time.
        let figures = self.depth == Some(depth) && others.is_empty();
        if self.depth != Some(depth) {
            let then = self.depth.map_or("an unknown depth".to_owned(), |then| format!("{then:?}"));
            let text = format!("depth was {then}, and is {depth:?}: only verdicts are compared");
            comparison.notes.push(text.to_lowercase());
        }
        let now = pairs(&measured.pairs);
        for (key, before) in pairs(&self.pairs) {
            let what = format!("{} > {} {:?} {:?}", key.0, key.1, key.2, key.3).to_lowercase();
            let Some(now) = now.get(&key) else {
                comparison.miss(what, before.verdict);
                continue;
            };
            comparison.compared += 1;
            comparison.verdict(&what, before.verdict, now.verdict);
            if !figures {
                continue;
            }
            for (figure, before, now, more_is_better) in [
                ("write", before.bandwidth_bytes_per_second, now.bandwidth_bytes_per_second, true),
                ("read", before.read_bytes_per_second, now.read_bytes_per_second, true),
                (
                    "both ways",
                    before.both_ways_bytes_per_second,
                    now.both_ways_bytes_per_second,
                    true,
                ),
                ("latency", before.latency_seconds, now.latency_seconds, false),
            ] {
                comparison.figure(&what, figure, (before, now), more_is_better);
            }
        }
        let now = sums(&measured.all_reduce);
        for (key, before) in sums(&self.all_reduce) {
            let (arm, processes, bytes) = key;
            let what = format!("all-reduce {arm:?} of {bytes} bytes, {processes} processes")
                .to_lowercase();
            let Some(now) = now.get(&key) else {
                // Another depth has other sizes.
                if figures {
                    comparison.miss(what, before.verdict);
                }
                continue;
            };
            comparison.compared += 1;
            comparison.verdict(&what, before.verdict, now.verdict);
            if figures {
                comparison.figure(&what, "time", (before.seconds, now.seconds), false);
            }
        }
        comparison
    }

    /// Addresses at which another GPU was then.
    fn other_gpus(&self, measured: &Measurement) -> Vec<String> {
        let now = |gpu: &GpuSeen| measured.gpus.iter().find(|now| now.address == gpu.address);
        let other = |gpu: &&GpuSeen| now(gpu).is_some_and(|now| now.uuid != gpu.uuid);
        self.gpus.iter().filter(other).map(|gpu| gpu.address.to_string()).collect()
    }
}

impl Comparison {
    fn miss(&mut self, what: String, before: Verdict) {
        self.missing_right += u32::from(before == Verdict::Intact);
        self.missing.push(what);
    }

    fn verdict(&mut self, what: &str, before: Verdict, now: Verdict) {
        let change = || Change {
            what: what.to_owned(),
            figure: "verdict".to_owned(),
            before: format!("{before:?}").to_lowercase(),
            now: format!("{now:?}").to_lowercase(),
            ratio: None,
        };
        match (before == Verdict::Intact, now == Verdict::Intact) {
            (true, false) => self.worse.push(change()),
            (false, true) => self.better.push(change()),
            _ => {}
        }
    }

    fn figure(
        &mut self,
        what: &str,
        figure: &str,
        (before, now): (Option<f64>, Option<f64>),
        more_is_better: bool,
    ) {
        let (Some(before), Some(now)) = (before, now) else { return };
        if !(before > 0.0 && now > 0.0) {
            return;
        }
        let change = Change {
            what: what.to_owned(),
            figure: figure.to_owned(),
            before: format!("{before:.4e}"),
            now: format!("{now:.4e}"),
            ratio: Some(now / before),
        };
        let gain = if more_is_better { now / before } else { before / now };
        let short = !more_is_better && before.min(now) < SHORT;
        let (worse, better) = if short {
            (1.0 / SHORT_RATIO, SHORT_RATIO)
        } else {
            (1.0 - TOLERANCE, 1.0 + TOLERANCE)
        };
        if gain < worse {
            self.worse.push(change);
        } else if gain > better {
            self.better.push(change);
        }
    }

    /// Something that is worse is a finding; without a common row nothing is decided.
    pub(super) fn exit(&self) -> Exit {
        if !self.worse.is_empty() {
            Exit::Findings
        } else if self.compared == 0 || self.missing_right > 0 {
            Exit::Undecided
        } else {
            Exit::Fine
        }
    }

    /// In lines for people.
    pub(super) fn describe(&self) -> Vec<String> {
        let mut lines = vec![format!(
            "{} rows compared; {} worse, {} better (figures by more than {:.0} %, times below {:.0} us \
             by more than twice)",
            self.compared,
            self.worse.len(),
            self.better.len(),
            TOLERANCE * 100.0,
            SHORT * 1e6
        )];
        for (word, changes) in [("WORSE", &self.worse), ("better", &self.better)] {
            for change in changes {
                let ratio = change.ratio.map_or(String::new(), |ratio| format!(" (x{ratio:.2})"));
                lines.push(format!(
                    "{word}: {} {}: {} before, {} now{ratio}",
                    change.what, change.figure, change.before, change.now
                ));
            }
        }
        lines.extend(self.notes.iter().cloned());
        lines.extend(self.missing.iter().map(|what| format!("not measured now: {what}")));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comparison() -> Comparison {
        Comparison {
            baseline: String::new(),
            compared: 1,
            missing: Vec::new(),
            missing_right: 0,
            notes: Vec::new(),
            worse: Vec::new(),
            better: Vec::new(),
        }
    }

    #[test]
    fn a_row_that_was_right_and_is_not_there_is_undecided() {
        let mut all = comparison();
        all.miss("x".to_owned(), Verdict::Refused);
        assert_eq!(all.exit(), Exit::Fine);
        all.miss("y".to_owned(), Verdict::Intact);
        assert_eq!(all.exit(), Exit::Undecided);
        assert!(all.describe().iter().any(|line| line == "not measured now: y"));
    }

    #[track_caller]
    fn check(before: f64, now: f64, more_is_better: bool, exit: Exit, better: usize) {
        let mut all = comparison();
        all.figure("x", "y", (Some(before), Some(now)), more_is_better);
        assert_eq!((all.exit(), all.better.len()), (exit, better));
    }

    #[test]
    fn only_what_is_beyond_the_tolerance_counts() {
        check(100.0, 91.0, true, Exit::Fine, 0);
        check(100.0, 89.0, true, Exit::Findings, 0);
        check(100.0, 111.0, true, Exit::Fine, 1);
        check(10.0, 10.9, false, Exit::Fine, 0);
        check(10.0, 12.0, false, Exit::Findings, 0);
        check(10.0, 9.0, false, Exit::Fine, 1);
        check(12e-6, 18e-6, false, Exit::Fine, 0);
        check(12e-6, 25e-6, false, Exit::Findings, 0);
        check(99e-6, 250e-6, false, Exit::Findings, 0);
        check(25e-6, 12e-6, false, Exit::Fine, 1);
    }

    #[test]
    fn verdicts_count_whatever_the_figures() {
        let mut all = comparison();
        all.verdict("x", Verdict::Intact, Verdict::Damaged);
        assert_eq!(all.exit(), Exit::Findings);
        let mut all = comparison();
        all.verdict("x", Verdict::Hung, Verdict::Intact);
        assert_eq!((all.exit(), all.better.len()), (Exit::Fine, 1));
        let nothing = Comparison { compared: 0, ..comparison() };
        assert_eq!(nothing.exit(), Exit::Undecided);
    }
}
