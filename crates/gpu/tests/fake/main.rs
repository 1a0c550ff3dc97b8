//! Measurements on the stand-in library.

// The attribute tells clippy that all of it is test code.
#[cfg(test)]
mod common;
#[cfg(test)]
#[path = "../support/container.rs"]
mod container;
#[cfg(test)]
mod evidence;
#[cfg(test)]
mod figures;
#[cfg(test)]
mod preconditions;
#[cfg(test)]
mod seeds;
#[cfg(test)]
mod trouble;
#[cfg(test)]
mod views;
