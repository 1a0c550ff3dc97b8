//! Text for the operator: what to set, where, and how to see that it took. Nothing here is done
//! by Peerway.

pub(crate) mod boot;
pub(crate) mod environment;
pub(crate) mod firmware;
pub(crate) mod guest;
pub(crate) mod module;
pub(crate) mod parameters;
pub(crate) mod rebuild;
pub(crate) mod workload;
