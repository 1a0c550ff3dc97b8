//! Machines whose paths or IOMMU settings differ.

use anyhow::Result;
use peerway_lab_protocol::{Inventory, Step, Verdict};

use super::{boot, faults, inventory_of, inventory_step, matrix_step, matrix_table, probes_of};
use crate::lab::boot::Report;
use crate::lab::facts::Facts;
use crate::lab::kernel::Kernel;
use crate::lab::machine::Machine;

/// Why a machine is left out.
pub(in crate::lab) const WITHOUT: &str =
    "left out, since the root ports of this emulator have no property that takes their ACS away";
/// Machines, and whether copies arrive there.
pub(in crate::lab) const MACHINES: [(&str, bool); 4] =
    [("iommu-off", true), ("passthrough", true), ("switch", false), ("no-acs", false)];

pub(super) fn run(kernel: &Kernel) -> Result<Facts> {
    let mut facts = Facts::default();
    for (name, arrives) in MACHINES {
        if !Machine::named(name)?.fits(kernel.platform.emulator) {
            facts.say(format!("Machine `{name}`: {WITHOUT}."));
            continue;
        }
        let report = boot(kernel, name, steps())?;
        judge(&mut facts, &Machine::named(name)?, arrives, &report)?;
    }
    facts.say(
        "The emulator sends every request of a device to the IOMMU, whatever switch or port lies \
         between: it does not turn requests at a switch or a port, with ACS redirect or without. \
         Groups are what the kernel makes of the ACS capabilities that it sees.",
    );
    Ok(facts)
}

/// What is done on each of them.
pub(in crate::lab) fn steps() -> Vec<Step> {
    vec![inventory_step("inventory"), matrix_step("matrix")]
}

/// Whether a machine did what is expected of it.
pub(in crate::lab) fn judge(
    facts: &mut Facts,
    machine: &Machine,
    arrives: bool,
    report: &Report,
) -> Result<()> {
    let name = &machine.name;
    facts.say(format!("### Machine `{name}`\n\n{}.", capitalised(&machine.summary)));
    facts.say(format!("`{}`", report.command_line));
    let matrix = probes_of(report, "matrix")?;
    matrix_table(facts, &matrix);
    let expected = if arrives { Verdict::Intact } else { Verdict::Damaged };
    for probe in &matrix {
        let pair = format!("{name}: {} to {}", probe.from, probe.to);
        facts.expect(&pair, &probe.verdict, &expected);
    }
    let count = faults(&report.kernel_log).len();
    facts.expect(&format!("{name}: faults were logged"), &(count > 0), &!arrives);
    groups(facts, machine, &inventory_of(report, "inventory")?);
    Ok(())
}

fn groups(facts: &mut Facts, machine: &Machine, inventory: &Inventory) {
    let mut rows = Vec::new();
    for accelerator in machine.accelerators() {
        let address = accelerator.engine;
        let group = inventory.groups.iter().find(|group| group.devices.contains(&address));
        let (number, kind, members) = group.map_or_else(
            || ("none".to_owned(), "–".to_owned(), "–".to_owned()),
            |group| (group.id.to_string(), group.kind.clone(), group.devices.join(", ")),
        );
        rows.push(vec![address, number, kind, members]);
    }
    facts.table(&["device", "group", "type", "members"], &rows);
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map(|first| first.to_uppercase().chain(letters).collect()).unwrap_or_default()
}
