//! What a version refuses, or changes without a word.

mod layouts;
mod table;

use schemars::JsonSchema;
use serde::Serialize;

use super::{Line, Wanted, spelling};
use crate::engine::{EngineName, Version};

/// What the engine does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It does not start.
    Refused,
    /// It starts and does something else, without a word or with a warning.
    Changed,
    /// It starts, and may hang or compute wrong sums: nothing proves what it rests on.
    Unsafe,
}

/// One of them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Refusal {
    /// What is refused or changed.
    pub what: String,
    /// What the engine does.
    pub outcome: Outcome,
    /// What happens, and what to do.
    pub why: String,
    /// Where it was read.
    pub source: &'static str,
}

/// What the version refuses or changes of a line.
pub fn check(wanted: &Wanted, version: Version, line: &Line) -> Vec<Refusal> {
    if *line == Line::default() {
        return Vec::new();
    }
    let engine = wanted.engine.name;
    let mut found: Vec<Refusal> = table::RULES
        .iter()
        .chain(layouts::RULES)
        .filter(|rule| {
            rule.engine == engine
                && version >= rule.since
                && rule.until.is_none_or(|until| version < until)
                && (rule.holds)(line, wanted)
        })
        .map(|rule| Refusal {
            what: rule.what.to_owned(),
            outcome: rule.outcome,
            why: rule.why.to_owned(),
            source: rule.source,
        })
        .collect();
    if engine == EngineName::Sglang {
        let words = line.flags.keys().chain(line.environment.keys());
        for word in words {
            if let Some((refused, why)) = spelling::complaint(word, version) {
                // A variable that nobody reads stops nothing.
                let outcome = if refused && word.starts_with('-') {
                    Outcome::Refused
                } else {
                    Outcome::Changed
                };
                found.push(Refusal {
                    what: word.clone(),
                    outcome,
                    why,
                    source: "server_args.py of the versions that were read",
                });
            }
        }
    }
    found
}
