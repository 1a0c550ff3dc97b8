//! `cargo xtask fuzz`: every parser under libFuzzer.
//!
//! Built on the stable toolchain: coverage instrumentation is an LLVM pass, and what needs a
//! nightly compiler (the address sanitizer) is left out, since the parsers are safe code.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use crate::root;

/// Seconds of fuzzing in all that the test command spends.
pub const BRIEF: u64 = 60;

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
    let program = build()?;
    let targets = targets()?;
    let count = u64::try_from(targets.len()).unwrap_or(1).max(1);
    for (number, target) in (0_u64..).zip(&targets) {
        // Whole seconds: what remains goes to the first.
        let share = (seconds / count + u64::from(number < seconds % count)).max(1);
        one(&program, target, share)?;
    }
    println!("== fuzzing: {} targets, {seconds} s", targets.len());
    Ok(())
}

/// Builds the program that holds every target.
fn build() -> Result<PathBuf> {
    let host = host()?;
    let start = Instant::now();
    let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        // With a target named, build scripts and macros are built without the instrumentation,
        // whose runtime they do not have.
        .args(["build", "--release", "--quiet", "--manifest-path", "fuzz/Cargo.toml"])
        .args(["--locked", "--target", &host])
        .current_dir(root())
        .env("RUSTFLAGS", FLAGS)
        .status()
        .context("cannot start cargo")?;
    if !status.success() {
        bail!("the fuzz targets do not build");
    }
    println!("== built in {:.0} s", start.elapsed().as_secs_f64());
    Ok(root().join("fuzz/target").join(host).join("release/fuzz"))
}

/// Replays a target's corpus, then lets it look for new inputs.
fn one(program: &Path, target: &str, seconds: u64) -> Result<()> {
    let corpus = root().join("fuzz/corpus").join(target);
    fs::create_dir_all(&corpus).with_context(|| format!("cannot create {}", corpus.display()))?;
    // New inputs go to a directory of their own, so that a run changes no file of the tree.
    let fresh = root().join("fuzz/target/fresh").join(target);
    fs::create_dir_all(&fresh).with_context(|| format!("cannot create {}", fresh.display()))?;
    let output = Command::new(program)
        .env("TARGET", target)
        .arg(format!("-max_total_time={seconds}"))
        .args(["-timeout=10", "-rss_limit_mb=2048", "-verbosity=0", "-print_final_stats=1"])
        .arg(format!("-artifact_prefix={}/", fresh.display()))
        .arg(&fresh)
        .arg(&corpus)
        .current_dir(root())
        .output()
        .with_context(|| format!("cannot start the fuzz target {target}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        println!("{said}");
        bail!("fuzz target {target} found a crash; the input is below {}", fresh.display());
    }
    let runs = said.lines().find_map(|line| line.strip_prefix("stat::number_of_executed_units:"));
    println!("{target}: {} runs in {seconds} s", runs.unwrap_or("?").trim());
    Ok(())
}

/// The triple that the compiler builds for by itself.
fn host() -> Result<String> {
    let output = Command::new("rustc").arg("-vV").output().context("cannot start rustc")?;
    let text = String::from_utf8_lossy(&output.stdout);
    let line = text.lines().find_map(|line| line.strip_prefix("host: "));
    line.map(str::to_owned).context("rustc names no host")
}

/// Names of the targets, which are those of their files.
fn targets() -> Result<Vec<String>> {
    let path = root().join("fuzz/src/targets");
    let mut names = Vec::new();
    let cannot = || format!("cannot list {}", path.display());
    for entry in fs::read_dir(&path).with_context(cannot)? {
        let name = entry.with_context(cannot)?.file_name();
        names.extend(name.to_str().and_then(|name| name.strip_suffix(".rs")).map(str::to_owned));
    }
    names.sort();
    Ok(names)
}
