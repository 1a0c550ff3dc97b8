//! Where the lab keeps its things.

use std::path::{Path, PathBuf};

/// Root of the repository.
pub fn repository() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// Cache of everything that was downloaded or built: `target/lab`.
pub fn cache() -> PathBuf {
    repository().join("target").join("lab")
}

/// Guest programs and machine descriptions: `lab`.
pub fn sources() -> PathBuf {
    repository().join("lab")
}
