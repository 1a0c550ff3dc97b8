//! A stand-in for `libcuda.so.1` (and `libnccl.so.2`) that tests load as the real library.
//!
//! It has GPUs of plain host memory, streams that are threads, and a clock that counts what
//! transfers would take. It behaves, or it misbehaves as a [`Script`] says: it loses writes, answers
//! reads with zeros, keeps private mirrors, wraps addresses, lets flags overtake data, hangs,
//! fails, and claims what it can't do. The script is in an environment variable that nothing else
//! reads. Kernels are known by name and done anew here; nothing is shared with the product.
#![expect(unsafe_code, reason = "a C library to its users, raw memory within")]

mod calls;
mod kernels;
mod link;
mod machine;
mod memory;
mod nccl;
mod queue;
mod script;

pub use script::{Engine, FILE, Fault, Kind, Script, VARIABLE};
