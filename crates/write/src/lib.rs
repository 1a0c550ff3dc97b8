//! The only crate that changes a host.
//!
//! A [`Plan`](peerway_roads::Plan) holds every choice; this crate carries it out and takes it back:
//!
//! - [`store`]: the lock of a host, and the file that the journal is in.
//! - [`grant::WriteGrant`]: the right to change it, over an open store.
//! - [`mutator::Host`]: what can be changed and seen; [`simulated`] and [`live`] implement it.
//! - [`scope`]: what a plan may touch, asked of the host and not of the plan.
//! - [`journal`]: append-only records, each synced before the act that it announces.
//! - [`executor`]: one loop for both directions, without an opinion.
//! - [`transaction`]: preflight, phases, verification, confirmation.
//! - [`proof`]: whether data still arrives under what is in force.
//! - [`recovery`]: back to the first state, or on to the last; never a third.
#![forbid(unsafe_code)]

pub mod executor;
pub mod grant;
pub mod health;
pub mod history;
pub mod journal;
pub mod live;
pub mod mutator;
pub mod proof;
pub mod recovery;
pub mod scope;
pub mod simulated;
pub mod store;
pub mod transaction;
pub mod untouched;
pub mod wait;

pub use grant::WriteGrant;
pub use journal::{Entry, Journal};
pub use mutator::{Host, Mutator, WriteError};
pub use recovery::{recover, roll_back};
pub use transaction::{Settings, apply, confirm};
