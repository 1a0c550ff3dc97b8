//! Faults that the lab brought about, as the product reads them out of the kernel's log: the lab knows who
//! copied where.

use std::collections::BTreeSet;

use anyhow::Result;
use peerway_lab_protocol::Step;

use super::super::boot::Report;
use super::super::facts::Facts;
use super::super::kernel::Kernel;
use super::super::machine::Machine;
use super::super::scenario::faults as logged;
use super::super::{platform::Iommu, script};
use super::document::{self, Faults};
use super::{boot, product_step};

/// One copy: its requester, the accelerator whose memory it goes to, and where in that memory.
type Copy = (&'static str, &'static str, u64);

/// One for each requester, so that the product's answer can be held against a single copy; two of them
/// across tenants.
const COPIES: [Copy; 6] = [
    ("0000:01:00.0", "0000:11:00.0", 0),
    ("0000:11:00.0", "0000:61:00.0", 0x2000),
    ("0000:61:00.0", "0000:71:00.0", 0x4_3000),
    ("0000:71:00.0", "0000:01:00.0", 0xf_e000),
    ("0000:81:00.0", "0000:91:00.0", 0x8_0000),
    ("0000:f1:00.0", "0000:01:00.0", 0x7000),
];
/// What is read, and written right after it.
const BYTES: u64 = 4096;
/// Longer than the kernel's limit on the rate of fault lines.
const QUIET: &str = "6";

pub(super) fn run(kernel: &Kernel) -> Result<Facts> {
    let mut facts = Facts::default();
    if kernel.platform.iommu == Iommu::Amd {
        facts.say(
            "The emulated AMD unit names neither requester nor address: nothing to hold against.",
        );
        return Ok(facts);
    }
    for name in ["replica", "large"] {
        let machine = Machine::named(name)?;
        let report = boot(kernel, &machine)?.steps(steps()).run()?;
        judge(&mut facts, &machine, &report)?;
    }
    Ok(facts)
}

fn steps() -> Vec<Step> {
    let mut steps = Vec::new();
    for (number, (from, to, offset)) in COPIES.iter().enumerate() {
        if number > 0 {
            steps.push(script::run(&format!("quiet {number}"), &["sleep", QUIET]));
        }
        let (bytes, offset) = (BYTES.to_string(), offset.to_string());
        let copy = ["lab-copy", "probe", "--from", from, "--to", to, "--bytes", &bytes];
        steps.push(script::run(from, &[&copy[..], &["--offset", &offset]].concat()));
    }
    steps.push(product_step("faults", &["faults"], &["--all"]));
    steps
}

fn judge(facts: &mut Facts, machine: &Machine, report: &Report) -> Result<()> {
    let name = &machine.name;
    let said: Faults = document::of(report, "faults")?;
    let accelerators = machine.accelerators();
    let mut rows = Vec::new();
    for (from, to, offset) in COPIES {
        let memory = accelerators.iter().find(|one| one.engine == to).map(|one| one.memory.clone());
        report.stdout(from)?;
        let lines = logged(&report.outcome(from)?.kernel);
        let accesses: BTreeSet<&str> = lines.iter().map(|line| line.access).collect();
        facts.expect(&format!("{name}: {from}: logged"), &accesses, &["read", "write"].into());
        let what = format!("{name}: what the product says of {from}");
        let found: Vec<_> = said.requesters.iter().filter(|one| one.address == from).collect();
        facts.expect(&format!("{what}: entries"), &found.len(), &1);
        let Some(found) = found.first() else { continue };
        facts.expect(&format!("{what}: access"), &found.access.as_str(), &"read+write");
        facts.expect(&format!("{what}: faults"), &found.count, &lines.len());
        facts.expect(&format!("{what}: targets"), &found.targets.len(), &1);
        let Some(target) = found.targets.first() else { continue };
        facts.expect(&format!("{what}: target"), &Some(&target.device), &memory.as_ref());
        facts.expect(&format!("{what}: BAR"), &target.bar, &2);
        let offsets = (target.offset_first, target.offset_last);
        facts.expect(&format!("{what}: offsets"), &offsets, &(offset, offset + BYTES));
        rows.push(vec![
            format!("{from} to {to}, {offset:#x}"),
            lines.len().to_string(),
            found.address.clone(),
            format!("BAR {} of {}", target.bar, target.device),
            format!("{:#x} to {:#x}", target.offset_first, target.offset_last),
            found.tenant.clone().unwrap_or_else(|| "nobody".to_owned()),
        ]);
    }
    let strangers: Vec<&String> = said
        .requesters
        .iter()
        .map(|one| &one.address)
        .filter(|one| !COPIES.iter().any(|(from, _, _)| from == one))
        .collect();
    facts.expect(&format!("{name}: other requesters"), &strangers, &Vec::new());
    facts.say(format!(
        "Machine `{name}`: each copy reads {BYTES} bytes at an offset of the target's memory, and writes \
         them right after it; then `peerway faults` read the kernel's log."
    ));
    let head =
        ["copy, at offset", "fault lines", "product: requester", "target", "offsets", "tenant"];
    facts.table(&head, &rows);
    Ok(())
}
