//! `scan` of host trees of growing size, beside `lspci -vv` on the same trees.
//!
//! Each reads what it needs for its own answer: `lspci` the whole configuration space of every
//! function, Peerway the attributes and words that bear on peer access. The tree is the same, the
//! caches are warm, the output goes nowhere.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};

use super::measure::{Taken, in_turn, mebibytes, milliseconds, peak_resident};
use super::profile;
use crate::root;

/// Functions of the trees, and how often each is read.
const SIZES: [(u32, usize); 3] = [(100, 31), (1_000, 21), (10_000, 11)];

struct Row {
    functions: u32,
    ours: Taken,
    lspci: Taken,
    peak: u64,
}

/// Measures, and gives the report.
///
/// # Errors
/// A program that is missing or fails.
pub fn report() -> Result<String> {
    let programs = build()?;
    let mut rows = Vec::new();
    for (functions, times) in SIZES {
        let tree = tree(&programs, functions)?;
        let mut commands = [ours(&programs, &tree), lspci(&tree)];
        let taken = in_turn(&mut commands, times)?;
        let [ours_taken, lspci_taken] = taken.as_slice() else { bail!("two commands were run") };
        let peak = peak_resident(&mut ours(&programs, &tree))?;
        rows.push(Row { functions, ours: *ours_taken, lspci: *lspci_taken, peak });
    }
    Ok([table(&rows), growth(&rows), time(&programs)?].concat())
}

/// The programs, built for release.
pub(super) struct Programs {
    pub(super) peerway: PathBuf,
    write_tree: PathBuf,
    /// For trees and profiles.
    pub(super) directory: PathBuf,
}

pub(super) fn build() -> Result<Programs> {
    let status = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
        .args(["build", "--release", "--quiet", "--package", "peerway", "--package", "peerway-sim"])
        .args(["--bin", "peerway", "--bin", "write-tree"])
        .current_dir(root())
        .status()
        .context("cannot start cargo")?;
    if !status.success() {
        bail!("the product does not build");
    }
    let directory = root().join("target/bench");
    fs::create_dir_all(&directory)
        .with_context(|| format!("cannot create {}", directory.display()))?;
    let release = root().join("target/release");
    Ok(Programs {
        peerway: release.join("peerway"),
        write_tree: release.join("write-tree"),
        directory,
    })
}

/// The tree of a benchmark host; written anew, since the builder may have changed.
fn tree(programs: &Programs, functions: u32) -> Result<PathBuf> {
    let place = programs.directory.join(format!("host-{functions}"));
    if place.exists() {
        fs::remove_dir_all(&place).with_context(|| format!("cannot clear {}", place.display()))?;
    }
    fs::create_dir_all(&place).with_context(|| format!("cannot create {}", place.display()))?;
    let status = Command::new(&programs.write_tree)
        .arg(format!("benchmark:{functions}"))
        .arg(&place)
        .status()
        .context("cannot start write-tree")?;
    if !status.success() {
        bail!("the tree of {functions} functions cannot be written");
    }
    Ok(place)
}

fn ours(programs: &Programs, tree: &Path) -> Command {
    let mut command = Command::new(&programs.peerway);
    command.arg("scan").arg("--host").arg(tree);
    command
}

fn lspci(tree: &Path) -> Command {
    let mut command = Command::new("lspci");
    command.args(["-vv", "-O"]).arg(format!("sysfs.path={}/sys/bus/pci", tree.display()));
    command
}

fn table(rows: &[Row]) -> String {
    let mut out = "## scan beside lspci -vv\n\nMedians of runs in turn, warm caches, the trees on \
                   disk: `peerway scan --host TREE` and `lspci -vv -O \
                   sysfs.path=TREE/sys/bus/pci`, output to `/dev/null`. Peerway reads trees of \
                   more than 255 functions with two threads.\n\n\
                   | functions | peerway, ms | lspci, ms | lspci ÷ peerway | processor time, ms: \
                   peerway | lspci | ratio | peerway's peak, MiB |\n|--:|--:|--:|--:|--:|--:|--:|--:|\n"
        .to_owned();
    for row in rows {
        let processor = |taken: Taken| taken.user + taken.system;
        let (ours, theirs) = (processor(row.ours), processor(row.lspci));
        out.push_str(&format!(
            "| {} | {} | {} | {:.1} | {} | {} | {:.1} | {} |\n",
            row.functions,
            milliseconds(row.ours.wall),
            milliseconds(row.lspci.wall),
            row.lspci.wall.as_secs_f64() / row.ours.wall.as_secs_f64(),
            milliseconds(ours),
            milliseconds(theirs),
            theirs.as_secs_f64() / ours.as_secs_f64(),
            mebibytes(row.peak),
        ));
    }
    out
}

/// Time per function: constant where growth is linear.
fn growth(rows: &[Row]) -> String {
    let each: Vec<String> = rows
        .iter()
        .map(|row| {
            let processor = row.ours.user + row.ours.system;
            format!(
                "{:.1} µs at {}",
                processor.as_secs_f64() * 1e6 / f64::from(row.functions),
                row.functions
            )
        })
        .collect();
    format!(
        "\nProcessor time per function, the start of the program included: {}.\n",
        each.join(", ")
    )
}

/// Where the time goes at the largest size.
fn time(programs: &Programs) -> Result<String> {
    let Some((functions, _)) = SIZES.last() else { return Ok(String::new()) };
    let tree = programs.directory.join(format!("host-{functions}"));
    let tree = tree.to_str().context("the path of the tree is no text")?.to_owned();
    let arguments = ["scan", "--host", tree.as_str()];
    let ours = profile::calls(&programs.peerway, &arguments, &programs.directory)?;
    let path = format!("sysfs.path={tree}/sys/bus/pci");
    let arguments_of_lspci = ["-vv", "-O", path.as_str()];
    let lspci = profile::calls(Path::new("lspci"), &arguments_of_lspci, &programs.directory)?;
    let mut out = format!("\n### Where the time goes, {functions} functions\n\nSystem calls:\n\n");
    for (name, calls) in [("peerway", &ours), ("lspci", &lspci)] {
        let total: u64 = calls.iter().map(|(_, count)| count).sum();
        let most: Vec<String> =
            calls.iter().take(7).map(|(name, count)| format!("{name} {count}")).collect();
        out.push_str(&format!(
            "- {name}: {total}, {:.1} per function ({})\n",
            f64::from(u32::try_from(total).unwrap_or(u32::MAX)) / f64::from(*functions),
            most.join(", ")
        ));
    }
    for (title, sort) in [("by object", "dso"), ("by function, from 1 % on", "sym")] {
        let seen = profile::samples(&programs.peerway, &arguments, sort, &programs.directory)?;
        let Some(rows) = seen else {
            out.push_str("\nNo profile: `perf` is not there, or may not look.\n");
            break;
        };
        let rows: Vec<String> =
            rows.iter().take(16).map(|(name, share)| format!("{name} {share}")).collect();
        out.push_str(&format!(
            "\nSamples of peerway's run (`perf`) {title}: {}.\n",
            rows.join(", ")
        ));
    }
    Ok(out)
}
