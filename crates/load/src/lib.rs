//! Drives an inference server that streams tokens, and tells what it did.
//!
//! One thread, one connection a request in flight, the answer read where it lies: sockets
//! ([`stream`]), bodies ([`http1`]), events ([`sse`]), fields ([`chunk`], [`json`]), tokens
//! ([`tokens`]), sums and percentiles ([`stats`]). Requests have moments at which they are to be sent
//! ([`ticks`]), and what the client itself is late by is part of the result. Every wait has an end
//! ([`exchange::Limits`]), and memory does not grow with the number of requests: each goes to the
//! records ([`record`]) and into sums.

pub mod chunk;
pub mod clock;
pub mod exchange;
pub mod fetch;
mod gather;
pub mod http1;
mod insecure;
pub mod json;
mod level;
pub mod metrics;
mod probe;
pub mod prompt;
pub mod record;
pub mod reply;
pub mod report;
mod run;
pub mod sse;
pub mod stats;
pub mod stream;
mod sums;
pub mod target;
pub mod ticks;
pub mod tokens;
mod verdict;

pub use report::{Bench, Load};
pub use run::{MetricsAt, Progress, RunError, Settings, run};
pub use verdict::longest;
