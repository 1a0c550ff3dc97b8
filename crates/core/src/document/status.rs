//! The document of `status`: the answer on one page.

use schemars::JsonSchema;
use serde::Serialize;

use super::diagnose::Diagnose;
use super::scan::Scan;

/// The answer.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Status {
    /// The inventory.
    #[serde(flatten)]
    pub scan: Scan,
    /// Pairs, findings, assessment.
    #[serde(flatten)]
    pub diagnose: Diagnose,
    /// What this program does not look at yet.
    pub not_looked_at: Vec<String>,
}
