//! One script, told to the lab's kernel and to the simulation of it: what differs is a fault of the
//! simulation.
//!
//! The simulation begins as the product's own `capture` of the very guest, so that both start from the same
//! files; from there on one is changed by a kernel and the other by `crates/sim/src/react`.

use std::fs;

use anyhow::{Context as _, Result};

use super::super::facts::Facts;
use super::super::kernel::Kernel;
use super::super::machine::Machine;
use super::super::scenario::inventory_of;
use super::super::{kmod, script};
use super::{beginning, board, boot, declared};

mod lab;
mod sim;
mod state;

use sim::Simulation;
use state::State;

/// What happens.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    /// A plan for these devices.
    Plan(&'static [&'static str]),
    /// The plan is applied, with so many seconds for the word.
    Apply(u32),
    /// A command of the product that needs nothing else.
    Product(&'static [&'static str]),
    /// A process opens one of the changed devices.
    HolderBegins,
    /// It ends.
    HolderEnds,
    /// Nobody gives the word.
    TimePasses,
    /// The first changed device gets a driver whose boards fail under identity.
    DriverFails,
}

/// One line of the script.
#[derive(Debug, Clone, Copy)]
struct Line {
    name: &'static str,
    act: Act,
    /// The exit status that both must have; `None` where nobody waits for one.
    exit: Option<i32>,
}

const fn line(name: &'static str, act: Act, exit: i32) -> Line {
    Line { name, act, exit: Some(exit) }
}

const fn event(name: &'static str, act: Act) -> Line {
    Line { name, act, exit: None }
}

/// Long enough for what comes between the apply and the end of its time, under emulation.
const SHORT: u32 = 45;
const LONG: u32 = 600;

const SCRIPT: [Line; 25] = [
    line("plan", Act::Plan(&super::CHANGED), 0),
    event("a process opens a device", Act::HolderBegins),
    line("apply with a holder", Act::Apply(LONG), 4),
    event("the process ends", Act::HolderEnds),
    line("nothing to confirm", Act::Product(&["confirm"]), 4),
    line("apply", Act::Apply(LONG), 0),
    line("apply while it waits", Act::Apply(LONG), 4),
    line("recover while it waits", Act::Product(&["recover"]), 0),
    line("confirm", Act::Product(&["confirm"]), 0),
    line("verify", Act::Product(&["verify"]), 0),
    line("undo", Act::Product(&["undo", "--all"]), 0),
    line("verify what was undone", Act::Product(&["verify"]), 3),
    line("apply once more", Act::Apply(LONG), 0),
    line("rollback", Act::Product(&["rollback"]), 0),
    line("apply with little time", Act::Apply(SHORT), 0),
    event("another process opens a device", Act::HolderBegins),
    event("nobody gives the word", Act::TimePasses),
    line("recover with a holder", Act::Product(&["recover"]), 6),
    event("that process ends", Act::HolderEnds),
    line("recover", Act::Product(&["recover"]), 5),
    line("recover again", Act::Product(&["recover"]), 0),
    event("a driver whose boards fail", Act::DriverFails),
    line("plan for that driver", Act::Plan(&super::CHANGED), 0),
    line("apply where the driver fails", Act::Apply(LONG), 5),
    line("plan for the guest's devices", Act::Plan(&super::OTHERS), 4),
];

pub(super) fn run(kernel: &Kernel) -> Result<Facts> {
    let machine = Machine::named("replica")?;
    let mut steps = beginning();
    steps.push(declared("capture", &["capture"]));
    for line in &SCRIPT {
        steps.extend(lab::steps(line));
    }
    steps.push(script::stop("guest"));
    let module = fs::read(kmod::build_board(kernel)?)?;
    let report = boot(kernel, &machine)?.file(board::PLACE, module).steps(steps).run()?;
    let inventory = inventory_of(&report, "before")?;
    let mut simulation = Simulation::begin(report.stdout("capture")?, &inventory)?;
    let mut facts = Facts::default();
    let mut rows = Vec::new();
    let mut compared = 0;
    for line in &SCRIPT {
        let real = lab::state(&report, line).with_context(|| format!("the lab: {}", line.name))?;
        let simulated =
            simulation.state(line).with_context(|| format!("the simulation: {}", line.name))?;
        compared += compare(&mut facts, line, &real, &simulated);
        rows.push(row(line, &real));
    }
    facts.table(&["step", "exit", "transaction", "groups and drivers", "environment"], &rows);
    facts.say(format!(
        "The simulation began as the product's own `capture` of this guest, with the processes that a capture \
         does not hold, and did the same. After each line the exit status, the state of the last transaction \
         with every step that it took, either way, drivers, overrides and types of all functions, and the \
         environment were compared: {compared} values, all the same on both. The plans have the same steps."
    ));
    facts.expect("enough was compared", &(compared > SCRIPT.len() * 50), &true);
    Ok(facts)
}

/// Compares one line on both; gives how many values were.
fn compare(facts: &mut Facts, line: &Line, real: &State, simulated: &State) -> usize {
    if line.exit.is_some() {
        let what = format!("{}: exit in the lab ({})", line.name, real.said);
        facts.expect(&what, &real.exit, &line.exit);
        let what = format!("{}: exit of the simulation ({})", line.name, simulated.said);
        facts.expect(&what, &simulated.exit, &line.exit);
    }
    for (key, value) in &real.values {
        let what = format!("{}: {key}: the simulation has", line.name);
        facts.expect(&what, &simulated.values.get(key), &Some(value));
    }
    for key in simulated.values.keys().filter(|key| !real.values.contains_key(*key)) {
        let what = format!("{}: {key}: only the simulation has it", line.name);
        facts.expect(&what, &true, &false);
    }
    let what = format!("{}: state of the transaction", line.name);
    facts.expect(&what, &simulated.transaction, &real.transaction);
    let what = format!("{}: steps of the simulation", line.name);
    facts.expect(&what, &simulated.steps, &real.steps);
    real.values.len() + real.steps.len() + 2
}

fn row(line: &Line, real: &State) -> Vec<String> {
    vec![
        line.name.to_owned(),
        real.exit.filter(|_| line.exit.is_some()).map_or(String::new(), |exit| exit.to_string()),
        real.transaction.clone(),
        real.summary(),
        real.environment().to_owned(),
    ]
}
