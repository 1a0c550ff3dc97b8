//! `identity` for the requester's group lets its copies through, and nobody else's.

use anyhow::Result;
use peerway_lab_protocol::Step;

use super::{
    boot, by_requester, inventory_of, inventory_step, matrix_step, matrix_table, older_than,
    probes_of, type_write,
};
use crate::lab::facts::Facts;
use crate::lab::kernel::Kernel;
use crate::lab::machine::Machine;
use crate::lab::script;

/// The groups of the replica that are changed.
const CHANGED: [&str; 2] = ["0000:11:00.0", "0000:61:00.0"];
/// The one of the separate machine; its other accelerator of that driver stays translated.
const CHANGED_SEPARATE: [&str; 1] = ["0000:11:00.0"];

pub(super) fn run(kernel: &Kernel) -> Result<Facts> {
    let mut facts = Facts::default();
    // A group of two functions can be changed from 6.4 on only.
    if !older_than(kernel, 6, 4) {
        one(kernel, &mut facts, "replica", &CHANGED)?;
    }
    one(kernel, &mut facts, "separate", &CHANGED_SEPARATE)?;
    Ok(facts)
}

fn one(kernel: &Kernel, facts: &mut Facts, machine: &str, changed: &[&str]) -> Result<()> {
    let described = Machine::named(machine)?;
    let mut steps = vec![inventory_step("before")];
    for engine in changed {
        let members: Vec<String> = described
            .bindings()
            .into_iter()
            .map(|binding| binding.address)
            .filter(|address| address.split('.').next() == engine.split('.').next())
            .collect();
        let each = |verb: &str| {
            let step = |member: &String| {
                let driver = (verb == "bind").then_some("uio_pci_generic");
                let mut argv = vec!["lab-sysfs", verb, member.as_str()];
                argv.extend(driver);
                script::run(&format!("{verb} {member}"), &argv)
            };
            members.iter().map(step).collect::<Vec<Step>>()
        };
        steps.extend(each("unbind"));
        let name = format!("type {engine}");
        steps.push(script::run(&name, &["lab-sysfs", "set-type", engine, "identity"]));
        steps.extend(each("bind"));
    }
    steps.push(inventory_step("after"));
    steps.push(matrix_step("matrix"));
    let report = boot(kernel, machine, steps)?;
    // No kernel before 5.11 takes a write at all.
    let accepted = !older_than(kernel, 5, 11);
    let expected = if accepted { "ok" } else { "EACCES" };
    facts.say(format!(
        "Machine `{machine}`, after `identity` was written to the groups of {} with their drivers \
         unbound, and the drivers bound again:",
        changed.join(" and ")
    ));
    for engine in changed {
        let write = type_write(report.outcome(&format!("type {engine}"))?)?;
        facts.expect(&format!("{machine}: write for {engine}"), &write.result.as_str(), &expected);
    }
    let matrix = probes_of(&report, "matrix")?;
    matrix_table(facts, &matrix);
    for (requester, arrived) in by_requester(&matrix) {
        let works = accepted && changed.contains(&requester.as_str());
        let what = format!("{machine}: copies of {requester} arrive");
        facts.expect(&what, &arrived, &[works].into());
    }
    let (before, after) = (inventory_of(&report, "before")?, inventory_of(&report, "after")?);
    let touched = before.groups.iter().zip(&after.groups).filter(|(old, new)| old != new);
    facts.expect(
        &format!("{machine}: groups that changed"),
        &touched.count(),
        &if accepted { changed.len() } else { 0 },
    );
    if accepted {
        facts.say("Exactly the changed requesters' copies arrive; no other group changed.");
    } else {
        facts.say("The kernel has no such write (EACCES); nothing changed.");
    }
    Ok(())
}
