//! Python programs to compare with, from their packages, in environments below `target`.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::root;

/// The interpreter of an environment with these packages; made where it is missing.
///
/// # Errors
/// No Python, or packages that cannot be had.
pub fn environment(name: &str, packages: &[&str]) -> Result<PathBuf> {
    let place = root().join("target/bench/python").join(name);
    let python = place.join("bin/python");
    if !python.is_file() {
        run(Command::new("python3").args(["-m", "venv"]).arg(&place))?;
    }
    let mut install = Command::new(&python);
    install.args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]);
    run(install.args(packages))?;
    Ok(python)
}

/// Runs a command to its end.
///
/// # Errors
/// It cannot be started, or fails.
pub fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    if !status.success() {
        bail!("{command:?} failed: {status}");
    }
    Ok(())
}

/// Version of an interpreter.
///
/// # Errors
/// It cannot be started.
pub fn version(python: &Path) -> Result<String> {
    let output = Command::new(python).arg("--version").output().context("cannot start python")?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
