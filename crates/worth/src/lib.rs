//! What peer access is worth to an inference workload, beside everything else that could be done.
//!
//! Everything here is a function from values to values: no I/O, no clock, no unsafe code.
//!
//! - [`ModelConfig::parse`](config::ModelConfig::parse) reads a model's `config.json`;
//!   [`hardware`] and [`engine`] are the other tables.
//! - [`estimate()`] gives the terms of a step, tokens a second with and without peer access, and
//!   every option with its gain, as intervals over what had to be assumed.
//! - [`allreduce::Times`] are all-reduce times: measured by `peerway test`, or published ones, and
//!   then said to be assumed.
//!
//! No number is fitted to a single published figure; where the model is off, `docs/worth.md` says by
//! how much.
#![forbid(unsafe_code)]

pub mod allreduce;
pub mod assumption;
pub mod compare;
pub mod config;
pub mod document;
pub mod engine;
pub mod estimate;
pub mod hardware;
pub mod interval;
pub mod known;
pub mod launch;
pub mod layout;
pub mod model;
pub mod options;
pub mod precision;
pub mod published;
pub mod speculation;
pub mod state;
pub mod step;

pub use config::{ConfigError, ModelConfig};
pub use engine::Engine;
pub use estimate::{Estimate, EstimateError, Request, estimate};
pub use interval::Interval;
pub use layout::Layout;
