//! The only reader of a host.
//!
//! [`root::Root`] opens files, and nothing else in this crate does; `parse` holds pure parsers,
//! one kernel format a file; `collect` pairs a path with a parser, one part of the snapshot a
//! file.
#![forbid(unsafe_code)]

pub mod collect;
pub mod error;
pub mod host;
pub mod host_file;
pub mod parse;
pub mod root;
pub mod tree;
