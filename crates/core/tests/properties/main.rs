//! What must hold of every host: properties of the verdicts, over the hosts with expectations and
#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "helpers of tests")]
//! over generated ones.

mod facts;
mod generated;
mod machine;
mod unreadable;
