//! Text for the operator where a road is theirs to walk.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// One piece of advice: what it is about, and its lines, to be read or copied as they stand.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Guide {
    /// What it is about.
    pub title: String,
    /// Lines in order. Commands stand alone on a line; remarks begin with `#`.
    pub lines: Vec<String>,
}

impl Guide {
    pub(crate) fn new(title: impl Into<String>, lines: &[&str]) -> Self {
        Self { title: title.into(), lines: lines.iter().map(|line| (*line).to_owned()).collect() }
    }

    pub(crate) fn line(mut self, line: impl Into<String>) -> Self {
        self.lines.push(line.into());
        self
    }
}
