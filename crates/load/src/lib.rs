//! Drives an inference server that streams tokens, and tells what it did.

pub mod chunk;
pub mod http1;
pub mod json;
pub mod sse;
pub mod stats;
pub mod tokens;
