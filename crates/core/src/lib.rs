//! What Peerway knows and concludes, as values.
//!
//! This crate does no I/O, reads no clock and holds no unsafe code: every function takes values
//! and returns values. What is read from a host arrives as a [`snapshot::Snapshot`]; what is
//! concluded leaves as documents.
//!
//! - [`observed`], [`address`], [`code`]: known, absent or unreadable; addresses; codes of findings.
//! - [`snapshot`]: everything that was read of a host, as one value.
//! - [`boards`], [`command_line`]: tables of what boards and words of the kernel's command line are.
//! - [`route`], [`judge`]: the way of a request, and the verdict on a pair.
//! - [`diagnose`]: pairs, rules, findings, and the summary of an imported log.
//! - [`document`]: what leaves as JSON, with its schemas.
#![forbid(unsafe_code)]

pub mod address;
pub mod boards;
pub mod code;
pub mod command_line;
pub mod diagnose;
pub mod document;
pub mod judge;
pub mod observed;
pub mod route;
pub mod snapshot;
