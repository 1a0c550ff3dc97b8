//! Transactions on simulated hosts.

mod common;
mod crash;
mod transaction;
