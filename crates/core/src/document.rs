//! The published documents: what `--format json` prints. Field names are fixed; more may be added.
//!
//! Bus addresses are strings, sizes and counts are numbers. Yes, no and unknown are the strings
//! `yes`, `no` and `unknown`. What is absent is `null`; what could not be read is `null` too, and
//! its name stands in `unreadable` with the reason.

pub mod diagnose;
pub mod path;
pub mod scan;
pub mod status;

use schemars::JsonSchema;
use serde::Serialize;

/// Head of every document.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Head {
    /// Name and number of the schema: `peerway/scan/1`.
    pub schema: String,
    /// Version of the program that wrote it.
    pub tool_version: String,
    /// What was looked at: `live`, a path, `sim:NAME`.
    pub host: String,
    /// When, RFC 3339, UTC.
    pub generated_at: String,
}

/// A document: its head and its body in one object.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Document<T> {
    /// The head.
    #[serde(flatten)]
    pub head: Head,
    /// The body.
    #[serde(flatten)]
    pub body: T,
}

/// Names of the documents that have a schema.
pub const NAMES: &[&str] = &["scan", "diagnose", "path", "status"];

/// The JSON Schema of a document by name.
pub fn schema(name: &str) -> Option<schemars::Schema> {
    Some(match name {
        "scan" => schemars::schema_for!(Document<scan::Scan>),
        "diagnose" => schemars::schema_for!(Document<diagnose::Diagnose>),
        "path" => schemars::schema_for!(Document<path::Path>),
        "status" => schemars::schema_for!(Document<status::Status>),
        _ => return None,
    })
}
