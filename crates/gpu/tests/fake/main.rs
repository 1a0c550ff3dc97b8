//! Measurements on the stand-in library.

mod common;
mod figures;
mod preconditions;
mod seeds;
mod trouble;
