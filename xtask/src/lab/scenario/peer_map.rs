//! The proof of the peer-map module: what it makes possible, what it refuses, and that nothing stays
//! behind.

use std::fs;

use anyhow::{Context as _, Result};
use peerway_lab_protocol::{Outcome, Probe, Step, Verdict};

use super::{Fault, faults, matrix_table, short};
use crate::lab::boot::{Boot, Report};
use crate::lab::facts::Facts;
use crate::lab::kernel::Kernel;
use crate::lab::kmod::Modules;
use crate::lab::machine::Machine;
use crate::lab::{paths, script};

mod copies;
mod life;
mod others;
mod refusals;
mod sizes;
mod watched;

/// Bus numbers of the tenant's accelerators on the large machine.
const TENANT: [&str; 4] = ["01", "11", "61", "71"];
/// All accelerators there.
const ALL: [&str; 8] = ["01", "11", "61", "71", "81", "91", "e1", "f1"];
/// 4 KiB pages of a memory of 2 GiB.
const PAGES: u64 = 0x8_0000;
/// Words of kernel lines that must never come once the modules are loaded.
const BAD: [&str; 16] = [
    "BUG",
    "WARNING",
    "Oops",
    "general protection",
    "Call Trace",
    "kernel BUG",
    "refcount_t",
    "list_add corruption",
    "list_del corruption",
    "INFO: task",
    "rcu: INFO",
    "DMAR: ERROR",
    // Of kernels that were built to watch themselves.
    "KASAN",
    "INFO: possible",
    "ODEBUG",
    "DMA-API",
];

/// Carries the whole proof out.
///
/// # Errors
/// Where a machine could not be booted; what is not as expected is among the differences.
pub fn prove(kernel: &Kernel, modules: &Modules) -> Result<Facts> {
    let proof = Proof { kernel, modules };
    let mut facts = Facts::default();
    facts.say("## Copies, before, under and after the map");
    copies::prove(&proof, &mut facts).context("copies")?;
    facts.say("## What is refused");
    refusals::prove(&proof, &mut facts).context("refusals")?;
    facts.say("## Unbinding, removal, process death, unloading");
    life::prove(&proof, &mut facts).context("life")?;
    facts.say("## Other machines, and the DMA API at the same address");
    others::prove(&proof, &mut facts).context("others")?;
    Ok(facts)
}

/// What only a kernel that watches itself can show.
///
/// # Errors
/// As [`prove`].
pub fn watched(kernel: &Kernel, modules: &Modules) -> Result<Facts> {
    let mut facts = Facts::default();
    facts.say("## What the kernel watches");
    watched::prove(&Proof { kernel, modules }, &mut facts).context("watched")?;
    Ok(facts)
}

/// Measures memories of many sizes.
///
/// # Errors
/// As [`prove`].
pub fn measure(kernel: &Kernel, modules: &Modules) -> Result<Facts> {
    let mut facts = Facts::default();
    sizes::prove(&Proof { kernel, modules }, &mut facts).context("sizes")?;
    Ok(facts)
}

/// What every part of the proof needs.
#[derive(Debug)]
struct Proof<'a> {
    kernel: &'a Kernel,
    modules: &'a Modules,
}

impl Proof<'_> {
    /// Boots a machine, loads the modules and carries steps out; the kernel must not complain.
    fn boot(&self, machine: &str, steps: Vec<Step>, facts: &mut Facts) -> Result<Report> {
        self.boot_machine(&Machine::named(machine)?, steps, facts)
    }

    /// The same with memories of a size.
    fn boot_sized(&self, size: &str, steps: Vec<Step>, facts: &mut Facts) -> Result<Report> {
        self.boot_machine(&Machine::named("sizes")?.with_memory(size), steps, facts)
    }

    fn boot_machine(
        &self,
        machine: &Machine,
        steps: Vec<Step>,
        facts: &mut Facts,
    ) -> Result<Report> {
        let functions = paths::sources().join("kmod-test").join("peer-map.sh");
        let functions =
            fs::read(&functions).with_context(|| format!("cannot read {}", functions.display()))?;
        let mut boot = Boot::new(self.kernel, machine).file("/lab/peer-map.sh", functions);
        let mut load = Vec::new();
        for (name, file) in &self.modules.files {
            let content =
                fs::read(file).with_context(|| format!("cannot read {}", file.display()))?;
            let place = format!("/lab/modules/{name}.ko");
            load.push(format!("insmod {place}"));
            boot = boot.file(&place, content);
        }
        let load = shell("load", &load.join(" && "));
        let report = boot
            .limit(std::time::Duration::from_mins(5))
            .steps(std::iter::once(load).chain(steps))
            .run()?;
        report.stdout("load")?;
        let bad: Vec<&String> = report
            .outcomes
            .iter()
            .filter(|outcome| outcome.name != others::PROVOKED)
            .flat_map(|outcome| &outcome.kernel)
            .filter(|line| BAD.iter().any(|word| line.contains(word)))
            .take(3)
            .collect();
        facts.expect(&format!("{}: bad kernel lines", machine.name), &bad, &Vec::new());
        Ok(report)
    }
}

/// A step in the guest's shell, with the proof's functions.
fn shell(name: &str, text: &str) -> Step {
    let text = format!(". /lab/peer-map.sh; {text}");
    let mut step = script::run(name, &["sh", "-c", &text]);
    step.deadline_ms = 120_000;
    step
}

/// A copy from one bus's accelerator to another's.
fn probe_step(name: &str, from: &str, to: &str) -> Step {
    let (from, to) = (format!("0000:{from}:00.0"), format!("0000:{to}:00.0"));
    script::run(name, &["lab-copy", "probe", "--from", &from, "--to", &to])
}

/// A probe step's answer and the faults that the kernel logged meanwhile.
fn probe_of(report: &Report, name: &str) -> Result<(Probe, Vec<Fault>)> {
    let probe = serde_json::from_str(report.stdout(name)?)
        .with_context(|| format!("cannot understand the probe {name:?}"))?;
    Ok((probe, faults(&report.outcome(name)?.kernel)))
}

/// Judges a probe step; the row is for a table.
fn judge_probe(
    facts: &mut Facts,
    report: &Report,
    name: &str,
    arrives: bool,
    faults_logged: Option<bool>,
) -> Result<Vec<String>> {
    let (probe, faults) = probe_of(report, name)?;
    facts.expect(&format!("{name}: arrives"), &(probe.verdict == Verdict::Intact), &arrives);
    if let Some(logged) = faults_logged {
        facts.expect(&format!("{name}: faults logged"), &!faults.is_empty(), &logged);
    }
    let faults: Vec<String> = faults
        .iter()
        .map(|fault| format!("{} {} at {:#x}", fault.requester, fault.access, fault.address))
        .collect();
    let faults = if faults.is_empty() { "none".to_owned() } else { faults.join(", ") };
    Ok(vec![name.to_owned(), short(&probe), faults])
}

/// The lines that a step printed.
fn lines<'a>(report: &'a Report, name: &str) -> Result<Vec<&'a str>> {
    Ok(report.stdout(name)?.lines().collect())
}

/// How many entries the module says it holds, in a step that printed its state.
fn held(report: &Report, name: &str) -> Result<Option<u64>> {
    let text = report.stdout(name)?;
    let line = text.lines().find_map(|line| line.strip_prefix("entries "));
    Ok(line.and_then(|line| line.split_whitespace().next()).and_then(|word| word.parse().ok()))
}

/// Expects lines of `walks` to show so many pages mapped, each to itself.
fn expect_walks(facts: &mut Facts, report: &Report, name: &str, pages: u64) -> Result<()> {
    let found = lines(report, name)?;
    facts.expect(&format!("{name}: walks"), &found.is_empty(), &false);
    for line in found {
        let pair: String = line.chars().take("01 11".len()).collect();
        let expected = format!("{pair} mapped {pages} same {pages}");
        facts.expect(&format!("{name}: pages"), &line, &expected.as_str());
    }
    Ok(())
}

/// What a single step did, its exit included.
fn ended(outcome: &Outcome) -> String {
    match outcome.status {
        Some(0) => "ok".to_owned(),
        Some(status) => format!("exit {status}: {}", outcome.stderr.trim()),
        None => "killed".to_owned(),
    }
}
