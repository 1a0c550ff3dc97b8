//! The published documents of `worth`. Field names are fixed; more may be added.

use peerway_core::document::Document;

use crate::estimate::Estimate;

/// Names of the documents that have a schema here.
pub const NAMES: &[&str] = &["worth-estimate"];

/// The JSON Schema of a document by name.
pub fn schema(name: &str) -> Option<schemars::Schema> {
    Some(match name {
        "worth-estimate" => schemars::schema_for!(Document<Estimate>),
        _ => return None,
    })
}
