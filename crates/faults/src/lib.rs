//! What the events of a kernel log mean.
#![forbid(unsafe_code)]
