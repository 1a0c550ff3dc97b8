//! Roads and plans on simulated and on random hosts.
#![cfg(test)]

mod build;
mod host;
mod plans;
mod properties;
mod random;
mod refusals;
mod table;
