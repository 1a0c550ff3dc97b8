//! The fence on the lab's kernel: the writing crate's own test of it, run there.

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context as _, Result};
use serde::Deserialize;

use super::super::boot::Boot;
use super::super::facts::{Facts, digest};
use super::super::kernel::Kernel;
use super::super::machine::Machine;
use super::super::{paths, process};
use super::{HEADS, ended, shell};

/// Where the program of the tests is in the guest.
const PLACE: &str = "/lab/bin/fence-test";
/// Which of its tests run.
const TESTS: &str = "live::fence::";

pub(super) fn run(kernel: &Kernel) -> Result<Facts> {
    let program = program()?;
    let machine = Machine::named("replica")?;
    let steps = [
        shell("terminals", "mkdir -p /dev/pts && mount -t devpts none /dev/pts"),
        shell("the tests of the fence", &format!("{PLACE} {TESTS} 2>&1")),
    ];
    let report = Boot::new(kernel, &machine).program(PLACE, &program).steps(steps).run()?;
    let mut facts = Facts::default();
    let mut rows = Vec::new();
    ended(&mut facts, &mut rows, &report, "terminals", 0, "")?;
    ended(
        &mut facts,
        &mut rows,
        &report,
        "the tests of the fence",
        0,
        "test result: ok. 2 passed",
    )?;
    facts.table(&HEADS, &rows);
    facts.say(format!(
        "The lab's drivers make no node of NVIDIA's, and no plan fences another, so that no plan of the lab has          a fence. What ran is the product's own step on a character device of this kernel, as root: the node          gets mode 0, an open by a thread without the right to pass by permissions is tried and refused, and the          mode is given back. SHA-256 of the program of the tests: {}.",
        digest(&program)?
    ));
    Ok(facts)
}

/// What cargo says of something that it built; other messages have no such fields.
#[derive(Deserialize)]
struct Artifact {
    profile: Profile,
    executable: Option<PathBuf>,
}

#[derive(Deserialize)]
struct Profile {
    test: bool,
}

/// The program of the writing crate's tests, built.
fn program() -> Result<PathBuf> {
    let words = ["test", "--package", "peerway-write", "--lib", "--no-run", "--quiet"];
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(words).arg("--message-format=json").current_dir(paths::repository());
    let text = process::output(&mut command)?;
    let found = text
        .lines()
        .filter_map(|line| serde_json::from_str::<Artifact>(line).ok())
        .filter(|artifact| artifact.profile.test)
        .find_map(|artifact| artifact.executable);
    found.context("cargo named no program of the tests of peerway-write")
}
