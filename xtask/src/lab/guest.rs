//! The guest's own programs, built from `lab/`.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use super::{paths, process};

/// The only target that the lab's emulator and kernels are of.
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// Programs that go into every guest.
pub(super) const PROGRAMS: [&str; 7] =
    ["lab-init", "lab-copy", "lab-crash", "lab-still", "lab-sysfs", "lab-systemd", "lab-vfio"];

/// Builds them, and gives the directory they are in.
///
/// # Errors
/// What the compiler said, on standard error.
pub(super) fn build() -> Result<PathBuf> {
    let into = paths::cache().join("guest");
    process::run(
        Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
            .args(["build", "--quiet", "--release", "--locked", "--target", TARGET, "--target-dir"])
            .arg(&into)
            // The static linking flag stands in the configuration file of this directory, which flags in
            // the environment would replace.
            .current_dir(paths::sources())
            .env_remove("RUSTFLAGS")
            .env_remove("CARGO_ENCODED_RUSTFLAGS"),
    )?;
    Ok(into.join(TARGET).join("release"))
}
