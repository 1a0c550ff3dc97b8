//! `cargo xtask fuzz`: every parser under libFuzzer.
//!
//! Built on the stable toolchain: coverage instrumentation is an LLVM pass, and what needs a
//! nightly compiler (the address sanitizer) is left out, since the parsers are safe code.

use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use crate::root;

/// Seconds of fuzzing in all that the test command spends.
const BRIEF: u64 = 60;

/// Flags with which LLVM instruments every edge.
const FLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
                     -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
                     -Cllvm-args=-sanitizer-coverage-pc-table -Ccodegen-units=1";

/// Replays the corpora and fuzzes for a minute in all.
///
/// # Errors
/// A crash, with the input's path.
pub fn brief() -> Result<()> {
    run(BRIEF)
}

/// `cargo xtask fuzz [SECONDS]`, in all.
///
/// # Errors
/// As [`brief`].
pub fn main(mut arguments: impl Iterator<Item = String>) -> Result<()> {
    let seconds = match arguments.next() {
        Some(word) => word.parse().with_context(|| format!("{word:?} is no number of seconds"))?,
        None => 600,
    };
    run(seconds)
}

fn run(seconds: u64) -> Result<()> {
    println!("== fuzzing");
    let targets = targets()?;
    let host = host()?;
    let share = (seconds / u64::try_from(targets.len().max(1)).unwrap_or(1)).max(1);
    let status = Command::new("cargo")
        // With a target named, build scripts and macros are built without the instrumentation,
        // whose runtime they do not have.
        .args(["build", "--release", "--manifest-path", "fuzz/Cargo.toml", "--target", &host])
        .current_dir(root())
        .env("RUSTFLAGS", FLAGS)
        .status()
        .context("cannot start cargo")?;
    if !status.success() {
        bail!("the fuzz targets do not build");
    }
    for target in targets {
        let corpus = root().join("fuzz/corpus").join(&target);
        fs::create_dir_all(&corpus)
            .with_context(|| format!("cannot create {}", corpus.display()))?;
        // New inputs go to a directory of their own, so that a run changes no file of the tree.
        let fresh = root().join("fuzz/target/fresh").join(&target);
        fs::create_dir_all(&fresh).with_context(|| format!("cannot create {}", fresh.display()))?;
        let status =
            Command::new(root().join("fuzz/target").join(&host).join("release").join(&target))
                .arg(format!("-max_total_time={share}"))
                .args(["-timeout=10", "-rss_limit_mb=2048", "-verbosity=0", "-print_final_stats=1"])
                .arg(format!("-artifact_prefix={}/", fresh.display()))
                .arg(&fresh)
                .arg(&corpus)
                .current_dir(root())
                .status()
                .with_context(|| format!("cannot start the fuzz target {target}"))?;
        if !status.success() {
            bail!("fuzz target {target} found a crash; the input is below {}", fresh.display());
        }
    }
    Ok(())
}

/// The triple that the compiler builds for by itself.
fn host() -> Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("cannot start rustc")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find_map(|line| line.strip_prefix("host: "));
    line.map(str::to_owned).context("rustc names no host")
}

/// Names of the targets, from the manifest.
fn targets() -> Result<Vec<String>> {
    let path = root().join("fuzz/Cargo.toml");
    let text =
        fs::read_to_string(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let manifest: toml::Table =
        toml::from_str(&text).with_context(|| format!("{} is no TOML", path.display()))?;
    let bins = manifest.get("bin").and_then(|bins| bins.as_array()).cloned().unwrap_or_default();
    Ok(bins.iter().filter_map(|bin| bin.get("name")?.as_str().map(str::to_owned)).collect())
}
