//! Machines whose paths or IOMMU settings differ.

use anyhow::Result;
use peerway_lab_protocol::{Inventory, Verdict};

use super::{boot, faults, inventory_of, inventory_step, matrix_step, matrix_table, probes_of};
use crate::lab::facts::Facts;
use crate::lab::kernel::Kernel;
use crate::lab::machine::Machine;

pub(super) fn run(kernel: &Kernel) -> Result<Facts> {
    let mut facts = Facts::default();
    for (name, arrives) in
        [("iommu-off", true), ("passthrough", true), ("switch", false), ("no-acs", false)]
    {
        let machine = Machine::named(name)?;
        let steps = vec![inventory_step("inventory"), matrix_step("matrix")];
        let report = boot(kernel, name, steps)?;
        facts.say(format!("### Machine `{name}`\n\n{}.", capitalised(&machine.summary)));
        facts.say(format!("`{}`", report.command_line));
        let matrix = probes_of(&report, "matrix")?;
        matrix_table(&mut facts, &matrix);
        let expected = if arrives { Verdict::Intact } else { Verdict::Damaged };
        for probe in &matrix {
            let pair = format!("{name}: {} to {}", probe.from, probe.to);
            facts.expect(&pair, &probe.verdict, &expected);
        }
        let count = faults(&report.kernel_log).len();
        facts.expect(&format!("{name}: faults were logged"), &(count > 0), &!arrives);
        groups(&mut facts, &machine, &inventory_of(&report, "inventory")?);
    }
    facts.say(
        "The emulator sends every request of a device to the IOMMU, whatever switch or port lies \
         between: it does not turn requests at a switch or a port, with ACS redirect or without. \
         Groups are what the kernel makes of the ACS capabilities that it sees.",
    );
    Ok(facts)
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
