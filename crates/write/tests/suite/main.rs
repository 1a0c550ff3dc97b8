//! Transactions on simulated hosts.

#[cfg(test)]
mod back;
#[cfg(test)]
mod between;
#[cfg(test)]
mod common;
#[cfg(test)]
mod crash;
#[cfg(test)]
mod ladder;
#[cfg(test)]
mod lasting;
#[cfg(test)]
mod transaction;
