//! The product in the lab: the very binary runs in the guest, and what it says is held against what
//! copies did in the same boot, and against what the guest's kernel shows.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use jiff::Timestamp;
use peerway_lab_protocol::Step;

use super::boot::Boot;
use super::facts::{self, Facts, digest};
use super::kernel::Kernel;
use super::machine::Machine;
use super::{paths, process, script};

mod agreement;
mod document;
mod faults;
pub mod outside;
mod replica;
mod still;

/// Where the binary is in the guest.
const PLACE: &str = "/lab/bin/peerway";
/// What tells it about the lab's accelerators there.
const DECLARED: [&str; 2] = ["--accelerator", "/lab/accelerators.toml"];

/// A reading command, as it is watched from outside.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadingCommand {
    /// Name of the case.
    pub name: &'static str,
    /// Command and arguments.
    pub words: &'static [&'static str],
    /// Whether it looks at a host, and so needs walls.
    pub looks: bool,
}

/// Every reading command; `tests/walls.rs` fails where the binary has one that is not here.
pub const COMMANDS: [ReadingCommand; 18] = [
    looking("status", &["status"]),
    looking("scan", &["scan", "--format", "json"]),
    looking("path", &["path", "0000:01:00.0", "0000:11:00.0"]),
    looking("diagnose", &["diagnose"]),
    looking("diagnose-all", &["diagnose", "--all", "--with", "nic,nvme", "--format", "json"]),
    looking("capture", &["capture"]),
    looking("faults", &["faults"]),
    looking("demo", &["demo"]),
    looking("roads", &["roads"]),
    looking("plan", &["plan", "identity-groups"]),
    looking("plan-open", &["plan", "live-without"]),
    telling(
        "worth-estimate",
        &["worth", "estimate", "--model", "known:qwen3-30b-a3b", "--gpu", "h200", "--tp", "2"],
    ),
    telling(
        "worth-launch",
        &[
            "worth",
            "launch",
            "--model",
            "known:qwen3-30b-a3b",
            "--gpu",
            "h200",
            "--engine",
            "sglang@0.5.23",
        ],
    ),
    telling("explain", &["explain", "PW0201"]),
    telling("schema", &["schema", "diagnose"]),
    telling("completions", &["completions", "bash"]),
    telling("man", &["man"]),
    telling("explain-list", &["explain"]),
];

const fn looking(name: &'static str, words: &'static [&'static str]) -> ReadingCommand {
    ReadingCommand { name, words, looks: true }
}

const fn telling(name: &'static str, words: &'static [&'static str]) -> ReadingCommand {
    ReadingCommand { name, words, looks: false }
}

/// The product, built in the profile whose binary is the newest; `PEERWAY_LAB_BINARY` names one that is
/// taken as it is.
///
/// # Errors
/// Where it cannot be built.
pub fn binary() -> Result<PathBuf> {
    if let Some(named) = std::env::var_os("PEERWAY_LAB_BINARY") {
        return Ok(PathBuf::from(named));
    }
    let target = paths::repository().join("target");
    let file = |profile: &str| target.join(profile).join("peerway");
    let age = |profile: &str| fs::metadata(file(profile)).and_then(|data| data.modified()).ok();
    let profile = if age("release") > age("debug") { "release" } else { "debug" };
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(["build", "--quiet", "--package", "peerway"]).current_dir(paths::repository());
    if profile == "release" {
        command.arg("--release");
    }
    process::run(&mut command)?;
    Ok(file(profile))
}

/// A part of the proof.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    /// Its name in a difference.
    pub name: &'static str,
    /// Its heading.
    pub title: &'static str,
    /// Runs it.
    pub run: fn(&Kernel) -> Result<Facts>,
}

/// All of them, in the order of the document.
pub const PARTS: [Part; 5] = [
    Part { name: "replica", title: "Verdict and fact on the replica", run: replica::run },
    Part {
        name: "machines",
        title: "Verdict and fact on other machines",
        run: agreement::machines,
    },
    Part { name: "separate", title: "Engines and memories apart", run: replica::separate },
    Part { name: "faults", title: "Faults and whose they are", run: faults::run },
    Part { name: "still", title: "What reading commands leave as it was", run: still::run },
];

/// The part of a name.
///
/// # Errors
/// Where there is none.
pub fn part(name: &str) -> Result<Part> {
    PARTS.into_iter().find(|part| part.name == name).with_context(|| format!("no part {name:?}"))
}

/// Runs all parts on a kernel and writes `docs/lab/product-SERIES.md`.
///
/// # Errors
/// Where a part could not be run, or found something else than expected; the file is written only if
/// none did.
pub(super) fn write(kernel: &Kernel) -> Result<()> {
    let mut text = header(kernel)?;
    let mut differences = Vec::new();
    for part in PARTS {
        eprintln!("lab: {} on {}", part.name, kernel.release);
        let facts = (part.run)(kernel).with_context(|| format!("part {}", part.name))?;
        text.push_str(&format!("## {}\n\n{}", part.title, facts.text()));
        let named = |text: &String| format!("{}: {text}", part.name);
        differences.extend(facts.differences().iter().map(named));
    }
    if !differences.is_empty() {
        bail!("the product on {} differs:\n  {}", kernel.release, differences.join("\n  "));
    }
    facts::publish("product", kernel, &text)
}

fn header(kernel: &Kernel) -> Result<String> {
    let binary = binary()?;
    let version = process::output(Command::new(&binary).arg("--version"))?;
    let mut facts = Facts::default();
    let rows = [
        ("kernel", format!("{} ({})", kernel.release, kernel.package)),
        ("emulator", kernel.platform.emulator.version()?),
        ("date", Timestamp::now().strftime("%Y-%m-%d").to_string()),
        ("product", version.trim().to_owned()),
        ("SHA-256 of its binary", digest(&binary)?),
    ];
    let rows: Vec<Vec<String>> =
        rows.into_iter().map(|(what, value)| vec![what.to_owned(), value]).collect();
    facts.table(&["what ran", ""], &rows);
    Ok(format!(
        "# The product in the lab on kernel {}\n\n\
         Generated by `cargo xtask lab product --kernel {}{}`; do not edit.\n\n{}",
        kernel.title(),
        kernel.series,
        kernel.platform.option(),
        facts.text()
    ))
}

/// A boot of a machine with the product in it.
fn boot<'a>(kernel: &'a Kernel, machine: &'a Machine) -> Result<Boot<'a>> {
    Ok(Boot::new(kernel, machine).program(PLACE, &binary()?))
}

/// The product's pairs within tenants, and all of them.
fn diagnoses(name: &str, more: &[&str]) -> Vec<Step> {
    vec![
        product_step(&format!("{name} own"), &["diagnose"], more),
        product_step(&format!("{name} all"), &["diagnose", "--all"], more),
    ]
}

/// A command of the product that prints JSON, whatever it finds.
fn product_step(name: &str, words: &[&str], more: &[&str]) -> Step {
    let mut argv = vec!["peerway"];
    argv.extend(words);
    argv.extend(DECLARED);
    argv.extend(["--format", "json", "--fail-on", "never"]);
    argv.extend(more);
    script::run(name, &argv)
}
