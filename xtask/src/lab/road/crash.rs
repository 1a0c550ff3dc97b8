//! The product is killed at records of its journal while it makes or takes away a map.

use anyhow::Result;

use super::super::change::crash::{self, Records};
use super::super::facts::Facts;
use super::super::kernel::Kernel;
use super::super::scenario::inventory_step;
use super::super::script;
use super::{OWN, PLAN, beginning, boot, install, machine, plan};

/// The devices of its map; two have all kinds of records that four have.
const TWO: [&str; 2] = [OWN[0], OWN[1]];

pub(super) fn run(kernel: &Kernel) -> Result<Facts> {
    let mut steps = beginning();
    steps.extend([install(), inventory_step("before"), plan("plan", &TWO)]);
    steps.extend(crash::kills(PLAN, Records::Each)?);
    steps.push(script::stop("guest"));
    let machine = machine()?;
    let report = boot(kernel, &machine)?.limit(crash::LIMIT).steps(steps).run()?;
    let mut facts = Facts::default();
    facts.say(format!("The same machine, a map for both pairs of {}.", TWO.join(" ")));
    facts.append(&crash::judged(&report, Records::Each)?);
    Ok(facts)
}
