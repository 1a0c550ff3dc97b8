//! Raw records of `worth bench`: JSON lines, one a request.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;

/// Why records cannot be used.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordError {
    /// A line that is no JSON; the last line of a file may be, where a run was broken off.
    #[error("line {line} is no JSON: {why}")]
    NotJson {
        /// Its number, from 1.
        line: usize,
        /// Why.
        why: String,
    },
    /// A line of a known kind that lacks what it needs.
    #[error("line {line}: {why}")]
    Malformed {
        /// Its number, from 1.
        line: usize,
        /// Why.
        why: String,
    },
    /// A request before any run.
    #[error("line {line} belongs to no run: a line of kind run has to come first")]
    NoRun {
        /// Its number, from 1.
        line: usize,
    },
    /// Nothing.
    #[error("there is no run in it; peerway worth bench --record writes such files")]
    Empty,
}

/// One run of a load generator against one server.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Its name.
    pub name: String,
    /// The model.
    pub model: String,
    /// Engine and version, where the server said so.
    pub engine: Option<String>,
    /// Seed of prompts and sampling.
    pub seed: u64,
    /// Temperature; 0 is greedy.
    pub temperature: f64,
    /// Most tokens of an answer.
    pub output_tokens: u64,
    /// Whether answers were asked to be of the full length.
    pub ignore_eos: bool,
    /// Where its prompts come from, how many or how long they are, and a hash of what was asked;
    /// absent in records of before.
    pub prompts: Option<(String, u64, String)>,
    /// When it began; absent where its records do not say.
    pub began: Option<String>,
    /// Block of a design, within which nothing was booted or switched: runs of one are not
    /// independent. From a name such as `path=host,mtp=off#3/b2`.
    pub block: Option<u32>,
    /// Hash of its records: the same run given twice.
    pub digest: u64,
    /// Whether its last line was there.
    pub ended: bool,
    /// What was driven, by load in words.
    pub levels: BTreeMap<String, Level>,
}

/// One load of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Level {
    /// Where it stands among the loads.
    pub order: f64,
    /// Seconds of the window.
    pub window_seconds: Option<f64>,
    /// Tokens that came within it.
    pub window_tokens: u64,
    /// Why the client spoiled the figures, where it did.
    pub lagged: Option<String>,
    /// What is to be known before the figures are used.
    pub findings: Vec<String>,
    /// Measured requests by number: the same number is the same prompt.
    pub requests: BTreeMap<u64, Answer>,
}

/// The answer to one request.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    /// Whether it came to its end.
    pub complete: bool,
    /// `finish_reason`.
    pub finish: Option<String>,
    /// Tokens.
    pub tokens: u64,
    /// Tokens that came with the first one; absent in records of before.
    pub in_first: Option<u64>,
    /// Tokens of the prompt, as the server counted them.
    pub prompt_tokens: Option<u64>,
    /// Seconds from sending to the first token.
    pub first_token: Option<f64>,
    /// Seconds from the first to the last token.
    pub streaming: Option<f64>,
    /// The text.
    pub text: String,
}

impl Level {
    pub(super) fn tokens_per_second(&self) -> Option<f64> {
        let seconds = self.window_seconds.filter(|seconds| *seconds > 0.0)?;
        Some(count(self.window_tokens) / seconds)
    }

    /// Tokens that came with the first one are not counted: longer chunks are no faster tokens.
    /// Absent where the records do not say how many those were.
    pub(super) fn seconds_per_token(&self) -> Option<f64> {
        let mut seconds = 0.0;
        let mut tokens = 0.0;
        for answer in self.requests.values().filter(|one| one.complete && one.tokens > 1) {
            let behind = answer.tokens.saturating_sub(answer.in_first?);
            if let Some(streaming) = answer.streaming.filter(|_| behind > 0) {
                seconds += streaming;
                tokens += count(behind);
            }
        }
        (tokens > 0.0).then(|| seconds / tokens)
    }

    pub(super) fn first_token_seconds(&self) -> Option<f64> {
        let mut all: Vec<f64> = self
            .requests
            .values()
            .filter(|one| one.complete)
            .filter_map(|one| one.first_token)
            .collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied()
    }
}

/// A count as a number; beyond 2^53 nothing is counted here.
fn count(number: u64) -> f64 {
    #[expect(clippy::as_conversions, clippy::cast_precision_loss, reason = "far below 2^53")]
    let value = number as f64;
    value
}

#[derive(Deserialize)]
struct RunLine {
    run: String,
    model: String,
    engine: Option<String>,
    engine_version: Option<String>,
    seed: u64,
    temperature: f64,
    output_tokens: u64,
    #[serde(default)]
    ignore_eos: bool,
    began: Option<String>,
    prompts: Option<String>,
    prompt_size: Option<u64>,
    bodies_hash: Option<String>,
}

#[derive(Deserialize)]
struct RequestLine {
    load: Value,
    phase: String,
    number: u64,
    sent_ns: Option<u64>,
    first_ns: Option<u64>,
    last_ns: Option<u64>,
    outcome: String,
    finish: Option<String>,
    completion_tokens: u64,
    first_group_tokens: Option<u64>,
    prompt_tokens: Option<u64>,
    #[serde(default)]
    output: String,
}

#[derive(Deserialize)]
struct LevelLine {
    load: Value,
    window_seconds: Option<f64>,
    window_tokens: u64,
    client_lagged: Option<String>,
    #[serde(default)]
    findings: Vec<String>,
}

impl Run {
    /// Every run of a file, in its order.
    ///
    /// # Errors
    /// A line that is damaged, by its number.
    pub fn parse(text: &str) -> Result<Vec<Self>, RecordError> {
        let lines = text.lines().count();
        let mut runs: Vec<Self> = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let number = index + 1;
            if line.trim().is_empty() {
                continue;
            }
            let value: Value = match serde_json::from_str(line) {
                Ok(value) => value,
                // Cut in the middle of a line: the run shows that it was broken off.
                Err(_) if number == lines && !runs.is_empty() => break,
                Err(error) => {
                    return Err(RecordError::NotJson { line: number, why: error.to_string() });
                }
            };
            take(&mut runs, value, number)?;
            if let Some(run) = runs.last_mut() {
                run.digest = digest(run.digest, line);
            }
        }
        if runs.is_empty() { Err(RecordError::Empty) } else { Ok(runs) }
    }
}

/// FNV-1a, 64 bits, going on from an earlier line.
fn digest(before: u64, line: &str) -> u64 {
    line.bytes().fold(before, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// The block that a name of a design bears behind its number: `#3/b2`.
fn block_of(name: &str) -> Option<u32> {
    name.split_once('#')?.1.split_once("/b")?.1.parse().ok()
}

fn read<T: for<'de> Deserialize<'de>>(value: Value, line: usize) -> Result<T, RecordError> {
    serde_json::from_value(value)
        .map_err(|error| RecordError::Malformed { line, why: error.to_string() })
}

fn take(runs: &mut Vec<Run>, value: Value, line: usize) -> Result<(), RecordError> {
    let kind = value.get("kind").and_then(Value::as_str).unwrap_or_default().to_owned();
    if kind == "run" {
        let read: RunLine = read(value, line)?;
        let block = block_of(&read.run);
        runs.push(Run {
            name: read.run,
            model: read.model,
            engine: read.engine.map(|engine| match read.engine_version {
                Some(version) => format!("{engine} {version}"),
                None => engine,
            }),
            seed: read.seed,
            temperature: read.temperature,
            output_tokens: read.output_tokens,
            ignore_eos: read.ignore_eos,
            prompts: match (read.prompts, read.prompt_size, read.bodies_hash) {
                (Some(kind), Some(size), Some(hash)) => Some((kind, size, hash)),
                _ => None,
            },
            began: read.began,
            block,
            digest: 0xcbf2_9ce4_8422_2325,
            ended: false,
            levels: BTreeMap::new(),
        });
        return Ok(());
    }
    if !matches!(kind.as_str(), "request" | "level" | "end") {
        return Ok(());
    }
    let run = runs.last_mut().ok_or(RecordError::NoRun { line })?;
    match kind.as_str() {
        "request" => {
            let read: RequestLine = read(value, line)?;
            if read.phase == "measured" {
                let number = read.number;
                run.level(&read.load, line)?.requests.insert(number, answer(read));
            }
        }
        "level" => {
            let read: LevelLine = read(value, line)?;
            let level = run.level(&read.load, line)?;
            level.window_seconds = read.window_seconds;
            level.window_tokens = read.window_tokens;
            level.lagged = read.client_lagged;
            level.findings = read.findings;
        }
        _ => run.ended = true,
    }
    Ok(())
}

impl Run {
    fn level(&mut self, load: &Value, line: usize) -> Result<&mut Level, RecordError> {
        let number = |name: &str| load.get(name).and_then(Value::as_f64);
        let (words, order) = match (number("concurrency"), number("rate")) {
            (Some(count), _) => (format!("{count} at a time"), count),
            // Rates come after concurrencies.
            (None, Some(rate)) => (format!("{rate} a second"), 1e9 + rate),
            (None, None) => {
                let why = "load is neither a concurrency nor a rate".to_owned();
                return Err(RecordError::Malformed { line, why });
            }
        };
        let level = self.levels.entry(words).or_default();
        level.order = order;
        Ok(level)
    }
}

fn answer(read: RequestLine) -> Answer {
    let between = |from: Option<u64>, to: Option<u64>| {
        to?.checked_sub(from?).map(|nanoseconds| count(nanoseconds) / 1e9)
    };
    Answer {
        complete: read.outcome == "complete",
        finish: read.finish,
        tokens: read.completion_tokens,
        in_first: read.first_group_tokens,
        prompt_tokens: read.prompt_tokens,
        first_token: between(read.sent_ns, read.first_ns),
        streaming: between(read.first_ns, read.last_ns),
        text: read.output,
    }
}
