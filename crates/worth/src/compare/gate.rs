//! Does B say what A says? Broken peer access often makes a server faster: answers that are one
//! repeated character, or that end early.

use schemars::JsonSchema;
use serde::Serialize;

use super::records::{Answer, Run};

/// What the gate came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum GateState {
    /// B says what A says, as far as A says the same twice.
    Passed,
    /// It does not.
    Failed,
    /// It could not be seen.
    Unknown,
}

/// The gate, with what it rests on.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Gate {
    /// What it came to.
    pub state: GateState,
    /// Share of an answer that runs of A have in common, from its beginning; absent with one run.
    pub alike_within: Option<f64>,
    /// Share of an answer that runs of A and of B have in common.
    pub alike_across: Option<f64>,
    /// Prompts that were compared.
    pub prompts: usize,
    /// Why.
    pub reasons: Vec<String>,
}

/// Share of what runs of one side have in common that the two sides must have: the order of a batch
/// changes the order of sums, and so, rarely, a word.
const SHARE: f64 = 0.95;

/// Least that runs of A must have in common for their answers to tell anything.
const LEAST_WITHIN: f64 = 0.5;

/// How far the shares of finish reasons may differ.
const FINISH: f64 = 0.05;

/// Most answers of one repeated character that are chance.
const MOST_DEGENERATE: f64 = 0.01;

/// How far the mean length of answers may differ.
const LENGTH: f64 = 0.05;

pub(super) fn judge(a: &[Run], b: &[Run]) -> Gate {
    let mut failed = Vec::new();
    let mut unknown = Vec::new();
    signs(a, b, &mut failed, &mut unknown);
    let greedy = a.iter().chain(b).all(|run| run.temperature <= 0.0);
    let pairs = |left: &[Run], right: &[Run], same: bool| likeness(left, right, same);
    let (within, across) = (pairs(a, a, true), pairs(a, b, false));
    let mean = |values: &[f64]| {
        (!values.is_empty()).then(|| {
            values.iter().sum::<f64>() / f64::from(u32::try_from(values.len()).unwrap_or(u32::MAX))
        })
    };
    let (of_within, of_across) = (mean(&within), mean(&across));
    if greedy {
        match (of_within, of_across) {
            (_, None) => unknown.push("no prompt was answered on both sides".to_owned()),
            (None, Some(across)) if across >= 1.0 => {}
            (None, Some(across)) => unknown.push(format!(
                "answers of the two sides have {:.0} % in common, and with one run of A it is not \
                 known how much two runs of A have",
                across * 100.0
            )),
            (Some(one), Some(two)) => {
                let error = 2.0 * spread(&within).hypot(spread(&across));
                let least = SHARE * one;
                if two + error < least {
                    failed.push(format!(
                        "answers of A and B have {:.0} % in common, those of two runs of A {:.0} %",
                        two * 100.0,
                        one * 100.0
                    ));
                } else if one < LEAST_WITHIN {
                    unknown.push(format!(
                        "two runs of A have only {:.0} % of their answers in common, so nothing can \
                         be told from those of B: run greedy, one at a time, or with deterministic \
                         kernels",
                        one * 100.0
                    ));
                } else if two < least || (two - error < least && two < one) {
                    unknown.push(format!(
                        "too few answers: {:.0} % in common across, {:.0} % within A",
                        two * 100.0,
                        one * 100.0
                    ));
                }
            }
        }
    } else {
        unknown.push("the runs were not greedy (temperature 0): outputs differ anyhow".to_owned());
    }
    let state = match (failed.is_empty(), unknown.is_empty()) {
        (false, _) => GateState::Failed,
        (true, false) => GateState::Unknown,
        (true, true) => GateState::Passed,
    };
    Gate {
        state,
        alike_within: of_within,
        alike_across: of_across,
        prompts: across.len(),
        reasons: failed.into_iter().chain(unknown).collect(),
    }
}

/// Standard error of a mean of shares.
fn spread(values: &[f64]) -> f64 {
    let samples = super::Samples::new(values.to_vec());
    let size = f64::from(u32::try_from(samples.count().max(1)).unwrap_or(u32::MAX));
    (samples.variance() / size).sqrt()
}

/// Signs of broken sums that need no second run.
fn signs(a: &[Run], b: &[Run], failed: &mut Vec<String>, unknown: &mut Vec<String>) {
    let tally = |runs: &[Run]| {
        let mut tally = Tally::default();
        for answer in
            runs.iter().flat_map(|run| run.levels.values()).flat_map(|l| l.requests.values())
        {
            tally.add(answer);
        }
        tally
    };
    let (of_a, of_b) = (tally(a), tally(b));
    let degenerate = of_b.share(of_b.degenerate);
    if degenerate > MOST_DEGENERATE && degenerate > 2.0 * of_a.share(of_a.degenerate) {
        failed.push(format!(
            "{:.0} % of B's answers are one repeated character, the sign of damaged sums",
            degenerate * 100.0
        ));
    }
    let of_own = of_a.share(of_a.degenerate);
    if of_own > MOST_DEGENERATE {
        unknown.push(format!(
            "{:.0} % of A's own answers are one repeated character: A proves nothing about B",
            of_own * 100.0
        ));
    }
    let errors = of_b.share(of_b.failed) - of_a.share(of_a.failed);
    if errors > 0.01 {
        failed.push(format!("{:.0} % more of B's requests failed", errors * 100.0));
    }
    let silent = of_a.share(of_a.silent).max(of_b.share(of_b.silent));
    if silent > MOST_DEGENERATE {
        unknown.push(format!(
            "{:.0} % of the answers of a side have tokens and no text: there is nothing to compare",
            silent * 100.0
        ));
    }
    if let Some((reason, one, two)) = of_a.other_finish(&of_b) {
        failed.push(format!(
            "{:.0} % of B's answers ended with {reason:?}, and {:.0} % of A's",
            two * 100.0,
            one * 100.0
        ));
    }
    if let (Some(one), Some(two)) = (of_a.length(), of_b.length())
        && (two / one - 1.0).abs() > LENGTH
    {
        failed.push(format!(
            "answers of B have {two:.0} tokens in the mean, those of A {one:.0}: not the same work"
        ));
    }
}

#[derive(Default)]
struct Tally {
    all: f64,
    failed: f64,
    degenerate: f64,
    complete: f64,
    tokens: f64,
    /// Answers with tokens and without text.
    silent: f64,
    finish: std::collections::BTreeMap<String, f64>,
}

impl Tally {
    fn add(&mut self, answer: &Answer) {
        self.all += 1.0;
        if answer.complete {
            self.complete += 1.0;
            self.tokens += f64::from(u32::try_from(answer.tokens).unwrap_or(u32::MAX));
            let reason = answer.finish.clone().unwrap_or_else(|| "none".to_owned());
            *self.finish.entry(reason).or_default() += 1.0;
            if answer.tokens > 0 && answer.text.is_empty() {
                self.silent += 1.0;
            }
        } else {
            self.failed += 1.0;
        }
        if degenerate(&answer.text) {
            self.degenerate += 1.0;
        }
    }

    fn share(&self, part: f64) -> f64 {
        if self.all > 0.0 { part / self.all } else { 0.0 }
    }

    /// The finish reason whose share differs most, with both shares, where that is too much.
    fn other_finish(&self, other: &Self) -> Option<(String, f64, f64)> {
        if self.complete <= 0.0 || other.complete <= 0.0 {
            return None;
        }
        let share = |tally: &Self, reason: &str| {
            tally.finish.get(reason).copied().unwrap_or(0.0) / tally.complete
        };
        self.finish
            .keys()
            .chain(other.finish.keys())
            .map(|reason| (reason.clone(), share(self, reason), share(other, reason)))
            .max_by(|x, y| (x.1 - x.2).abs().total_cmp(&(y.1 - y.2).abs()))
            .filter(|(_, one, two)| (one - two).abs() > FINISH)
    }

    fn length(&self) -> Option<f64> {
        (self.complete > 0.0 && self.tokens > 0.0).then(|| self.tokens / self.complete)
    }
}

/// Whether a text is one character over and over.
fn degenerate(text: &str) -> bool {
    let mut counts = std::collections::BTreeMap::new();
    let mut all = 0_u32;
    for character in text.chars().filter(|character| !character.is_whitespace()) {
        *counts.entry(character).or_insert(0_u32) += 1;
        all += 1;
    }
    let most = counts.values().copied().max().unwrap_or(0);
    all >= 16 && f64::from(most) >= 0.9 * f64::from(all)
}

/// How much answers to the same prompts have in common: for each load and number, the mean over
/// pairs of runs of the share of the longer text that both begin with.
fn likeness(left: &[Run], right: &[Run], same: bool) -> Vec<f64> {
    let mut by_prompt: std::collections::BTreeMap<(&str, u64), (f64, f64)> =
        std::collections::BTreeMap::new();
    for (at, one) in left.iter().enumerate() {
        for other in right.iter().skip(if same { at + 1 } else { 0 }) {
            for (load, level) in &one.levels {
                let Some(beside) = other.levels.get(load) else { continue };
                for (number, answer) in &level.requests {
                    let Some(there) = beside.requests.get(number) else { continue };
                    let said = !answer.text.is_empty() || !there.text.is_empty();
                    if answer.complete && there.complete && said {
                        let entry = by_prompt.entry((load, *number)).or_default();
                        entry.0 += common(&answer.text, &there.text);
                        entry.1 += 1.0;
                    }
                }
            }
        }
    }
    by_prompt.into_values().map(|(sum, pairs)| sum / pairs).collect()
}

fn common(a: &str, b: &str) -> f64 {
    let longest = a.len().max(b.len());
    if longest == 0 {
        return 1.0;
    }
    let shared = a.bytes().zip(b.bytes()).take_while(|(x, y)| x == y).count();
    let number = |count: usize| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    number(shared) / number(longest)
}
