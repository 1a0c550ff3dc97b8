//! Ways to get peer access working on a host, or to live without it, and the plans to walk them.
//!
//! Everything here is a function from values to values: no I/O, no clock, no unsafe code.
//!
//! - [`roads()`] judges every [`RoadId`] on a snapshot under [`Constraints`]: each road is open,
//!   closed or unknown by its [`Gate`]s, and ranked.
//! - [`plan()`] turns an open road that Peerway walks itself into a [`Plan`]: the exact steps, each
//!   with its inverse, and the fingerprint of what they rest on. A closed road gives a
//!   [`Refusal`].
//! - [`Knowledge`] is what the gates know about kernels, drivers and boards, as data.
//! - [`explain`] gives the page of a gate.
//!
//! Two rules hold everywhere: a gate never passes on an unknown, and no step touches a device, a
//! group or a tenant of somebody else; a plan names those only to keep them as they are.
#![forbid(unsafe_code)]

mod assess;
mod canonical;
pub mod constraint;
pub mod document;
pub mod gain;
pub mod gate;
mod gates;
mod goal;
pub mod guide;
mod id;
pub mod knowledge;
pub mod lasting;
pub mod op;
mod operator;
pub mod pages;
pub mod plan;
mod rank;
pub mod road;
mod scene;
pub mod service;
pub mod version;
pub mod workload;

pub use assess::{Request, Roads, SeenFault, roads};
pub use constraint::{Accepted, ConstraintError, Constraints, Lifted, Stop};
pub use gain::Gain;
pub use gate::{Gate, GateCode, Passed};
pub use goal::Goal;
pub use id::RoadId;
pub use knowledge::{Knowledge, Outcome};
pub use lasting::Lasting;
pub use op::Op;
pub use pages::{Page, explain};
pub use plan::{Plan, PlanError, Refusal, plan};
pub use road::{Road, State};
pub use service::Service;
