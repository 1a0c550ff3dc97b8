//! What a host is after a line of the script, wherever it was read.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result};
use serde::Deserialize;
use serde_json::Value;

use super::super::{CHANGED, OTHERS};

/// Functions that are compared: those of the changed accelerators and of the other tenant.
pub(super) fn functions() -> Vec<String> {
    let slots = CHANGED.iter().chain(&OTHERS);
    slots.flat_map(|one| [(*one).to_owned(), one.replace(".0", ".1")]).collect()
}

/// A line of `history --format jsonl`, as far as it is compared.
#[derive(Deserialize)]
struct Record {
    state: String,
    steps: Vec<Taken>,
}

/// A step that was begun.
#[derive(Deserialize)]
struct Taken {
    number: u32,
    op: String,
    path: Option<String>,
    way: String,
    done: bool,
}

/// A plan's file, likewise.
#[derive(Deserialize)]
struct Planned {
    steps: Vec<PlannedStep>,
}

#[derive(Deserialize)]
struct PlannedStep {
    number: u32,
    phase: Value,
    op: Value,
    #[serde(default)]
    path: Value,
    #[serde(default)]
    expect: Value,
    #[serde(default)]
    set: Value,
    #[serde(default)]
    inverse: Value,
}

/// The state after a line.
#[derive(Debug, Default)]
pub(super) struct State {
    /// Exit status of the line.
    pub(super) exit: Option<i32>,
    /// What it said.
    pub(super) said: String,
    /// Drivers, overrides and types of the functions, and the environment; steps of a plan.
    pub(super) values: BTreeMap<String, String>,
    /// Where the last transaction stands.
    pub(super) transaction: String,
    /// Its steps, in the order in which they were begun.
    pub(super) steps: Vec<String>,
}

impl State {
    /// Takes over what `history --format jsonl` says of the last transaction.
    pub(super) fn history(&mut self, line: &str) -> Result<()> {
        if line.trim().is_empty() {
            return Ok(());
        }
        let record: Record =
            serde_json::from_str(line).with_context(|| format!("the record {line:?}"))?;
        self.transaction = record.state;
        let spell = |one: &Taken| {
            let path = one.path.as_deref().unwrap_or_default();
            format!("{} {} {path} {} done {}", one.number, one.op, one.way, one.done)
        };
        self.steps = record.steps.iter().map(spell).collect();
        Ok(())
    }

    /// Takes over the steps of a plan, as far as they are not the host's name for itself.
    pub(super) fn plan(&mut self, text: &str) -> Result<()> {
        let plan: Planned = serde_json::from_str(text).context("the plan")?;
        for step in plan.steps {
            let (number, what) = (step.number, [step.phase, step.op, step.path, step.expect]);
            let what = what.into_iter().chain([step.set, step.inverse]);
            let what: Vec<String> = what.map(|value| value.to_string()).collect();
            self.values.insert(format!("plan step {number}"), what.join(" "));
        }
        Ok(())
    }

    /// The environment in a word.
    pub(super) fn environment(&self) -> &str {
        match self.values.get("environment").map(String::as_str) {
            None | Some("") => "none",
            Some(text) if text.contains("NCCL_P2P_DISABLE=1") => "safe",
            Some(_) => "lifted",
        }
    }

    /// The changed functions in a word each.
    pub(super) fn summary(&self) -> String {
        let value = |key: String| self.values.get(&key).cloned().unwrap_or_default();
        let one = |device: &&str| {
            format!("{} {}", value(format!("{device} type")), value(format!("{device} driver")))
        };
        CHANGED.iter().map(one).collect::<Vec<_>>().join(", ")
    }
}
