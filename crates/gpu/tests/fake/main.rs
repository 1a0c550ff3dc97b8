//! Measurements on the stand-in library.

mod common;
mod seeds;
