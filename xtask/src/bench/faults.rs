//! `faults` on kernel logs of a gigabyte, beside `rg -c` for the bare keyword on the same files.
//!
//! The logs follow from a seed: three dialects, 64 requesters, random addresses, mixed envelopes;
//! one has faults in half of its lines, the other none. `rg` counts lines with a word, Peerway
//! parses every fault, attributes and aggregates it; its counts are held against the generator's.

use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use peerway_klog::generate::{Generator, Recipe};

use super::measure::{Taken, in_turn, mebibytes, milliseconds, peak_resident};
use super::profile;
use crate::root;

/// Bytes of each log.
const SIZE: u64 = 1 << 30;
/// What they are made from.
const SEED: u64 = 1;
/// Runs of each program.
const TIMES: usize = 11;
/// The word that `rg` counts.
const KEYWORD: &str = "IO_PAGE_FAULT";

/// A log, and what its generator wrote.
struct Log {
    name: &'static str,
    path: PathBuf,
    bytes: u64,
    counts: Counts,
}

/// What was measured on one log.
struct Row {
    log: Log,
    ours: Taken,
    rg: Taken,
    peak: u64,
}

/// What a log holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Counts {
    lines: u64,
    events: u64,
    suppressed: u64,
}

/// Measures, and gives the report.
///
/// # Errors
/// A program that is missing or fails, or counts that are not the generator's.
pub fn report() -> Result<String> {
    let peerway = build()?;
    let directory = root().join("target/bench");
    fs::create_dir_all(&directory)
        .with_context(|| format!("cannot create {}", directory.display()))?;
    let mut rows = Vec::new();
    for (name, percent) in [("half of the lines faults", 50), ("no fault", 0)] {
        let log = generate(&directory, name, percent)?;
        let counted = count(&peerway, &log.path)?;
        if counted != log.counts {
            bail!("{}: {counted:?} counted, {:?} written", log.name, log.counts);
        }
        let mut commands = [ours(&peerway, &log.path), rg(&log.path)];
        let taken = in_turn(&mut commands, TIMES)?;
        let [ours_taken, rg_taken] = taken.as_slice() else { bail!("two commands were run") };
        let peak = peak_resident(&mut ours(&peerway, &log.path))?;
        rows.push(Row { log, ours: *ours_taken, rg: *rg_taken, peak });
    }
    let spent = match rows.first() {
        Some(row) => profiled(&peerway, &row.log.path, &directory)?,
        None => String::new(),
    };
    Ok([about()?, table(&rows), agreement(&rows), spent].concat())
}

fn build() -> Result<PathBuf> {
    let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--release", "--quiet", "--package", "peerway", "--bin", "peerway"])
        .current_dir(root())
        .status()
        .context("cannot start cargo")?;
    if !status.success() {
        bail!("the product does not build");
    }
    Ok(root().join("target/release/peerway"))
}

/// Writes a log; its contents follow from the seed.
fn generate(directory: &Path, name: &'static str, percent: u64) -> Result<Log> {
    let path = directory.join(format!("faults-{percent}.log"));
    let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
    let mut out = BufWriter::new(file);
    let recipe = Recipe { event_percent: percent, ..Recipe::benchmark(SEED) };
    let mut generator = Generator::new(recipe).without_addresses();
    let mut buffer = Vec::with_capacity(1 << 20);
    let mut bytes = 0;
    while bytes < SIZE {
        buffer.clear();
        while buffer.len() < 1 << 19 {
            generator.record(&mut buffer);
        }
        out.write_all(&buffer).with_context(|| format!("cannot write {}", path.display()))?;
        bytes += u64::try_from(buffer.len()).unwrap_or(0);
    }
    out.flush().with_context(|| format!("cannot write {}", path.display()))?;
    let truth = generator.truth();
    let counts = Counts { lines: truth.lines, events: truth.events, suppressed: truth.suppressed };
    Ok(Log { name, path, bytes, counts })
}

fn ours(peerway: &Path, log: &Path) -> Command {
    let mut command = Command::new(peerway);
    command.args(["faults", "--format", "json"]).arg(log);
    command
}

fn rg(log: &Path) -> Command {
    let mut command = Command::new("rg");
    command.args(["-c", KEYWORD]).arg(log);
    command
}

/// What the product counts in a log.
fn count(peerway: &Path, log: &Path) -> Result<Counts> {
    let output = ours(peerway, log).output().context("cannot start peerway")?;
    let document: serde_json::Value = serde_json::from_slice(&output.stdout)
        .with_context(|| format!("peerway faults {} gave no document", log.display()))?;
    let number = |name: &str| document.get(name).and_then(serde_json::Value::as_u64).unwrap_or(0);
    Ok(Counts {
        lines: number("lines"),
        events: number("events"),
        suppressed: number("suppressed"),
    })
}

fn about() -> Result<String> {
    let output = Command::new("rg").arg("--version").output().context("cannot start rg")?;
    let version = String::from_utf8_lossy(&output.stdout);
    let version = version.lines().next().unwrap_or("rg");
    Ok(format!(
        "`peerway faults --format json FILE` beside `rg -c {KEYWORD} FILE` ({version}), in turn,\n\
         medians of {TIMES} runs with warm caches; seed {SEED}. `rg` maps the file and counts lines\n\
         with a word. Peerway reads it with plain reads, on as many processors as there are (four at\n\
         most), parses every fault of every dialect, attributes and aggregates it. Processor time is\n\
         what it costs, wherever it runs; wall time depends on who else uses the processors.\n\n"
    ))
}

fn table(rows: &[Row]) -> String {
    let mut out = String::from(
        "| log | size | ours: wall | processor | `rg`: wall | processor | ratio of walls | of \
         processors | ours: peak resident |\n|---|---|---|---|---|---|---|---|---|\n",
    );
    for Row { log, ours, rg, peak } in rows {
        let busy = |taken: &Taken| taken.user + taken.system;
        out.push_str(&format!(
            "| {} | {} MiB | {} ms | {} ms | {} ms | {} ms | {:.2} | {:.2} | {} MiB |\n",
            log.name,
            log.bytes >> 20,
            milliseconds(ours.wall),
            milliseconds(busy(ours)),
            milliseconds(rg.wall),
            milliseconds(busy(rg)),
            ours.wall.as_secs_f64() / rg.wall.as_secs_f64(),
            busy(ours).as_secs_f64() / busy(rg).as_secs_f64(),
            mebibytes(*peak),
        ));
    }
    out.push_str(
        "\nWanted: a ratio of walls of 1.5 at most on the log with faults, 32 MB resident at most.\n",
    );
    out
}

fn agreement(rows: &[Row]) -> String {
    let mut out = String::from(
        "\n## Counts\n\nAs the generator wrote them, or this page would not exist.\n\n\
         | log | lines | events | suppressed |\n|---|---|---|---|\n",
    );
    for Row { log, .. } in rows {
        let Counts { lines, events, suppressed } = log.counts;
        out.push_str(&format!("| {} | {lines} | {events} | {suppressed} |\n", log.name));
    }
    out
}

/// Where the time goes, by function.
fn profiled(peerway: &Path, log: &Path, directory: &Path) -> Result<String> {
    let path = log.display().to_string();
    let arguments = ["faults", "--format", "json", &path];
    let samples = profile::samples(peerway, &arguments, "symbol", directory)?;
    let Some(samples) = samples.filter(|samples| !samples.is_empty()) else {
        return Ok(String::new());
    };
    let mut out = String::from("\n## Where the time goes\n\n| function | samples |\n|---|---|\n");
    for (name, share) in samples.iter().take(10) {
        let name: String = name.chars().take(90).collect();
        let name = name.trim();
        out.push_str(&format!("| `{name}` | {share} |\n"));
    }
    Ok(out)
}
