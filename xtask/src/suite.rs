//! `cargo xtask test`: everything that must be right, in one command.
//!
//! Brings what it needs (as root; else it names the one command that does), then checks format and
//! lints, and runs every test, the lab's included, with a minute of mutated input for the parsers.
//! `--fuzz` adds a minute with coverage to guide it. The runner's own counts come last.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use crate::root;

/// Program and the Debian package that brings it.
const PROGRAMS: [(&str, &str); 12] = [
    ("qemu-system-x86_64", "qemu-system-x86"),
    ("busybox", "busybox-static"),
    ("lspci", "pciutils"),
    ("rg", "ripgrep"),
    ("strace", "strace"),
    ("xz", "xz-utils"),
    ("zstd", "zstd"),
    ("gcc", "gcc"),
    ("g++", "g++"),
    ("make", "make"),
    ("systemd-analyze", "systemd"),
    ("apt-config", "apt"),
];

/// Runs everything.
///
/// # Errors
/// The first part that fails, named.
pub fn main(arguments: impl Iterator<Item = String>) -> Result<()> {
    let arguments: Vec<String> = arguments.collect();
    let fuzzing = arguments.iter().any(|word| word == "--fuzz");
    programs()?;
    runner()?;
    part("format", cargo(&["fmt", "--all", "--check"]))?;
    part("lints", cargo(&["clippy", "--workspace", "--", "-D", "warnings"]))?;
    part("lints of tests", lints_of_tests())?;
    if fuzzing {
        crate::fuzz::brief()?;
    }
    part("lab", cargo(&["xtask", "lab", "fetch", "--kernel", "6.12"]))?;
    part("binary", cargo(&["build", "--release", "--package", "peerway"]))?;
    part("documentation", {
        let mut command = cargo(&["doc", "--workspace", "--no-deps", "--quiet"]);
        command.env("RUSTDOCFLAGS", "-D warnings");
        command
    })?;
    part("tests", {
        let mut command = cargo(&["nextest", "run", "--workspace", "--profile", "all"]);
        command.env("PEERWAY_FUZZ_SECONDS", crate::fuzz::BRIEF.to_string());
        command
    })
}

/// Tests unwrap, print, start programs and touch files, in their helpers too; the lints that keep
/// the product from that, and those of taste, are for the product.
fn lints_of_tests() -> Command {
    const ALLOWED: [&str; 13] = [
        "clippy::pedantic",
        "clippy::as_conversions",
        "clippy::unwrap_used",
        "clippy::expect_used",
        "clippy::panic",
        "clippy::indexing_slicing",
        "clippy::assertions_on_result_states",
        "clippy::disallowed_methods",
        "clippy::disallowed_types",
        "clippy::disallowed_macros",
        "clippy::print_stdout",
        "clippy::print_stderr",
        "clippy::type_complexity",
    ];
    let mut command = cargo(&["clippy", "--workspace", "--tests", "--", "-D", "warnings"]);
    command.args(ALLOWED.iter().flat_map(|lint| ["-A", *lint]));
    command
}

/// A cargo command in the project's root.
fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root());
    command
}

/// Runs one part, and says how long it took.
fn part(name: &str, mut command: Command) -> Result<()> {
    println!("== {name}");
    let start = Instant::now();
    let status = command.status().with_context(|| format!("cannot start {command:?}"))?;
    println!("== {name}: {:.0} s", start.elapsed().as_secs_f64());
    if !status.success() {
        bail!("{name} failed ({status})");
    }
    Ok(())
}

/// Installs the programs that are missing.
fn programs() -> Result<()> {
    let missing: Vec<&str> = PROGRAMS
        .iter()
        .filter(|(program, _)| !on_path(program))
        .map(|(_, package)| *package)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let install = format!("apt-get update && apt-get install --yes {}", missing.join(" "));
    if !is_root() {
        bail!("programs are missing; as root, run: {install}");
    }
    let mut command = Command::new("sh");
    command.args(["-c", &install]).env("DEBIAN_FRONTEND", "noninteractive");
    part("programs", command)
}

fn on_path(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain(["/usr/sbin", "/usr/bin", "/sbin", "/bin"].map(Into::into))
        .any(|directory| directory.join(program).is_file())
}

/// The test runner; built from its package where it is missing.
fn runner() -> Result<()> {
    let there = cargo(&["nextest", "--version"]).output().is_ok_and(|done| done.status.success());
    if there { Ok(()) } else { part("runner", cargo(&["install", "--locked", "cargo-nextest"])) }
}

/// Whether this process is root: only then can packages be installed.
fn is_root() -> bool {
    std::fs::read_to_string(Path::new("/proc/self/status"))
        .ok()
        .and_then(|text| {
            let line = text.lines().find(|line| line.starts_with("Uid:"))?.to_owned();
            line.split_ascii_whitespace().nth(2).map(|uid| uid == "0")
        })
        .unwrap_or(false)
}
