//! The chores of the project as a library, so that tests can call them.

pub mod bench;
pub mod docs;
pub mod fuzz;
pub mod hardware;
pub mod lab;
pub mod suite;
pub mod worth;

use std::path::{Path, PathBuf};

/// The project's root directory.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap_or(Path::new(".")).to_owned()
}
