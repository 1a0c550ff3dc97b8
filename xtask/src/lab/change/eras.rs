//! A kernel that changes no group of two functions.

use anyhow::Result;

use super::super::facts::Facts;
use super::super::kernel::Kernel;
use super::super::machine::Machine;
use super::super::scenario::{inventory_step, type_write};
use super::super::script;
use super::{CHANGED, HEADS, PLAN, as_before, beginning, boot, ended, plan, shell};

pub(super) fn run(kernel: &Kernel) -> Result<Facts> {
    let machine = Machine::named("replica")?;
    let mut steps = beginning();
    let free = |f: &str| format!("lab-sysfs unbind {}", CHANGED[0].replace(".0", f));
    let bind = |f: &str| format!("lab-sysfs bind {} uio_pci_generic", CHANGED[0].replace(".0", f));
    steps.extend([
        plan("plan for a group of two"),
        shell("no plan was written", &format!("test ! -s {PLAN}")),
        shell("without a driver", &format!("{} && {}", free(".0"), free(".1"))),
        script::run(
            "the kernel, asked directly",
            &["lab-sysfs", "set-type", CHANGED[0], "identity"],
        ),
        shell("with its driver again", &format!("{} && {}", bind(".0"), bind(".1"))),
        inventory_step("after"),
        script::stop("guest"),
    ]);
    let report = boot(kernel, &machine)?.steps(steps).run()?;
    let mut facts = Facts::default();
    let mut rows = Vec::new();
    for (name, status, word) in [
        ("plan for a group of two", 4, "kernel-era"),
        ("no plan was written", 0, ""),
        ("without a driver", 0, ""),
        ("with its driver again", 0, ""),
    ] {
        ended(&mut facts, &mut rows, &report, name, status, word)?;
    }
    facts.table(&HEADS, &rows);
    let asked = type_write(report.outcome("the kernel, asked directly")?)?;
    facts.expect("the kernel refuses it too", &asked.result.as_str(), &"EINVAL");
    facts.say(format!(
        "The kernel, asked directly with no driver bound: {} for `identity` of the group of {}.",
        asked.result, CHANGED[0]
    ));
    as_before(&mut facts, &report, "after")?;
    Ok(facts)
}
