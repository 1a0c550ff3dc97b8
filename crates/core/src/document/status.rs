//! The document of `status`: the answer on one page.

use schemars::JsonSchema;
use serde::Serialize;

use super::diagnose::Diagnose;
use super::scan::Scan;
use crate::snapshot::measured::LastTest;

/// A kept measurement, with what it is worth now.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct ShownTest {
    /// What was kept.
    #[serde(flatten)]
    pub test: LastTest,
    /// How long ago it ended.
    pub age_seconds: Option<i64>,
    /// Same boot, and the same binding of every GPU: it says something about now.
    pub holds: bool,
    /// Why not, if not.
    pub old_because: Option<String>,
}

/// The answer.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Status {
    /// The inventory.
    #[serde(flatten)]
    pub scan: Scan,
    /// Pairs, findings, assessment.
    #[serde(flatten)]
    pub diagnose: Diagnose,
    /// The last measurement that `test` kept on the host.
    pub last_test: Option<ShownTest>,
}
