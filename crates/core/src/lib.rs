//! What Peerway knows and concludes, as values.
//!
//! This crate does no I/O, reads no clock and holds no unsafe code: every function takes values
//! and returns values. What is read from a host arrives as a [`snapshot::Snapshot`]; what is
//! concluded leaves as documents.
#![forbid(unsafe_code)]

pub mod address;
pub mod boards;
pub mod code;
pub mod diagnose;
pub mod document;
pub mod judge;
pub mod observed;
pub mod route;
pub mod snapshot;
pub mod words;
