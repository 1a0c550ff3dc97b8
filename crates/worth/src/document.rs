//! The published documents of `worth`. Field names are fixed; more may be added.

use peerway_core::document::Document;

use crate::compare::Comparison;
use crate::compare::design::Design;
use crate::compare::factorial::Factorial;
use crate::estimate::Estimate;
use crate::launch::Launch;

/// Names of the documents that have a schema here.
pub const NAMES: &[&str] =
    &["worth-estimate", "worth-compare", "worth-design", "worth-factorial", "worth-launch"];

/// The JSON Schema of a document by name.
pub fn schema(name: &str) -> Option<schemars::Schema> {
    Some(match name {
        "worth-estimate" => schemars::schema_for!(Document<Estimate>),
        "worth-compare" => schemars::schema_for!(Document<Comparison>),
        "worth-design" => schemars::schema_for!(Document<Design>),
        "worth-factorial" => schemars::schema_for!(Document<Factorial>),
        "worth-launch" => schemars::schema_for!(Document<Launch>),
        _ => return None,
    })
}
