//! The published documents of `roads` and `plan`. Field names are fixed; more may be added.

use peerway_core::document::Document;
use schemars::JsonSchema;
use serde::Serialize;

use crate::assess;
use crate::constraint::HeldConstraint;
use crate::goal::Goal;
use crate::plan::Refusal;
use crate::road::Road;
use crate::workload::Workload;

/// Every road on a host, the constraints that hold first.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Roads {
    /// Constraints that hold.
    pub constraints: Vec<HeldConstraint>,
    /// What is to work.
    pub goal: Option<Goal>,
    /// Roads, best first.
    pub roads: Vec<Road>,
    /// The workload with roads and options in one ranking; absent where no model was named.
    pub workload: Option<Workload>,
}

impl From<assess::Roads> for Roads {
    fn from(roads: assess::Roads) -> Self {
        Self {
            constraints: roads.constraints,
            goal: roads.goal,
            roads: roads.roads,
            workload: None,
        }
    }
}

/// A plan, or why there is none.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Plan {
    /// The plan; absent where it was refused.
    pub plan: Option<crate::plan::Plan>,
    /// Why there is none; absent where there is one.
    pub refusal: Option<Refusal>,
}

impl From<crate::plan::Plan> for Plan {
    fn from(plan: crate::plan::Plan) -> Self {
        Self { plan: Some(plan), refusal: None }
    }
}

impl From<Refusal> for Plan {
    fn from(refusal: Refusal) -> Self {
        Self { plan: None, refusal: Some(refusal) }
    }
}

/// Names of the documents that have a schema here.
pub const NAMES: &[&str] = &["roads", "plan"];

/// The JSON Schema of a document by name.
pub fn schema(name: &str) -> Option<schemars::Schema> {
    Some(match name {
        "roads" => schemars::schema_for!(Document<Roads>),
        "plan" => schemars::schema_for!(Document<Plan>),
        _ => return None,
    })
}
