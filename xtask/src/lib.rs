//! The chores of the project as a library, so that tests can call them.

pub mod lab;
