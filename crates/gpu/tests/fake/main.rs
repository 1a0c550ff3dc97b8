//! Measurements on the stand-in library.

// The attribute tells clippy that helpers are tests too.
#[cfg(test)]
mod common;
#[cfg(test)]
mod figures;
#[cfg(test)]
mod preconditions;
#[cfg(test)]
mod seeds;
#[cfg(test)]
mod trouble;
