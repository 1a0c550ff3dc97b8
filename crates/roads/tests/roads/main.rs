//! Roads and plans on simulated and on random hosts.
#![cfg(test)]

mod build;
mod host;
mod plans;
mod policy;
mod properties;
mod random;
mod refusals;
mod table;
