//! The product is killed at records of its journal.

use std::time::Duration;

use anyhow::{Context as _, Result};
use peerway_lab_protocol::{Crash, Step};

use super::super::boot::Report;
use super::super::facts::Facts;
use super::super::kernel::Kernel;
use super::super::machine::Machine;
use super::super::script;
use super::{PLAN, beginning, boot, plan};

/// More records than any of these commands writes on the replica.
const MOST: usize = 400;
/// A hundred changes and as many recoveries, under emulation.
pub(in crate::lab) const LIMIT: Duration = Duration::from_hours(2);

/// A command that is killed, and how often.
struct Killed {
    command: &'static str,
    /// Every how many records; `PEERWAY_LAB_EVERY_RECORD` kills at each.
    every: usize,
}

/// A share of the records of the way forward and of the way back, which is the same executor on inverse
/// steps, and all of the word's: each takes a whole apply, and most of a minute under emulation.
const COMMANDS: [Killed; 3] = [
    Killed { command: "apply", every: 4 },
    Killed { command: "confirm", every: 1 },
    Killed { command: "rollback", every: 12 },
];

/// At which records the commands are killed.
#[derive(Clone, Copy)]
pub(in crate::lab) enum Records {
    /// A share of them, or each, as the environment says.
    Share,
    /// Each.
    Each,
}

impl Records {
    fn commands(self) -> [Killed; 3] {
        let each = match self {
            Self::Share => std::env::var_os("PEERWAY_LAB_EVERY_RECORD").is_some(),
            Self::Each => true,
        };
        COMMANDS.map(|one| Killed { every: if each { 1 } else { one.every }, ..one })
    }
}

pub(super) fn kill(kernel: &Kernel) -> Result<Facts> {
    let mut steps = beginning();
    steps.push(plan("plan"));
    steps.extend(kills(PLAN, Records::Share)?);
    steps.push(script::stop("guest"));
    let machine = Machine::named("replica")?;
    judged(&boot(kernel, &machine)?.limit(LIMIT).steps(steps).run()?, Records::Share)
}

/// Each command of a plan, killed again and again.
pub(in crate::lab) fn kills(plan: &str, at: Records) -> Result<Vec<Step>> {
    let deadline_ms = u64::try_from(LIMIT.as_millis())?;
    let step = |Killed { command, every }| {
        let words =
            ["lab-crash", "kill", command, plan, "1", &every.to_string(), &MOST.to_string()];
        Step { deadline_ms, ..script::run(command, &words) }
    };
    Ok(at.commands().map(step).into())
}

/// What came of them.
pub(in crate::lab) fn judged(report: &Report, at: Records) -> Result<Facts> {
    let mut facts = Facts::default();
    let mut rows = Vec::new();
    for Killed { command, every } in at.commands() {
        rows.push(judge(&mut facts, report, command, every)?);
    }
    let heads = [
        "command",
        "records of one run",
        "killed",
        "at every … record",
        "at exactly that record",
        "taken back",
        "waited for the word",
        "in force",
        "nothing left to do",
    ];
    facts.table(&heads, &rows);
    facts.say(
        "Each was killed with SIGKILL as soon as the journal had the record, and `recover` ran once. Where the \
         change stayed after that, since it was confirmed or waits for the word, `undo --all` took it back. \
         Each time every driver, group, type and region was then what it had been, no module of ours was loaded, \
         the environment file was gone, and the next run took the same plan.",
    );
    Ok(facts)
}

/// What must come of each end of a command; a row of the table.
fn judge(facts: &mut Facts, report: &Report, command: &str, every: usize) -> Result<Vec<String>> {
    let crashes: Result<Vec<Crash>> = report
        .stdout(command)?
        .lines()
        .map(|line| serde_json::from_str(line).with_context(|| format!("the crash {line:?}")))
        .collect();
    let crashes = crashes?;
    let ends = [": taken back", "confirm it", "in force", "nothing is under way"];
    let mut counts = [0; 4];
    let mut exact = 0;
    for one in &crashes {
        let what = format!("{command}, record {} ({}): {}", one.record, one.records, one.said);
        facts.expect(&format!("{what}: differences"), &one.differences, &Vec::new());
        let back = one.said.contains(": taken back") && one.killed;
        let undone = if back { None } else { Some(0) };
        facts.expect(&format!("{what}: undo"), &one.undone, &undone);
        if !one.killed {
            facts.expect(&format!("{what}: exit of the command"), &one.ended, &Some(0));
            continue;
        }
        exact += usize::from(one.record == one.records);
        let end = ends.iter().position(|word| one.said.contains(word));
        if let Some(count) = end.and_then(|end| counts.get_mut(end)) {
            *count += 1;
        }
        facts.expect(&format!("{what}: one of the ends"), &end.is_some(), &true);
        let code = if end == Some(0) { 5 } else { 0 };
        facts.expect(&format!("{what}: exit of recover"), &one.recovered, &Some(code));
        // Jobs are let in by the word, and by nothing else.
        let confirmed = command == "confirm";
        facts.expect(&format!("{what}: jobs are let in"), &one.in_force, &confirmed);
    }
    let killed = crashes.iter().filter(|one| one.killed).count();
    let last = crashes.last();
    facts.expect(&format!("{command}: last one"), &last.map(|one| one.killed), &Some(false));
    let records = last.map_or(0, |one| one.records);
    facts.expect(
        &format!("{command}: times killed"),
        &killed,
        &(records / every + usize::from(records % every != 0)),
    );
    facts.expect(&format!("{command}: more than three times"), &(killed > 3), &true);
    let numbers = [records, killed, every, exact].map(|number| number.to_string());
    let row = std::iter::once(command.to_owned()).chain(numbers);
    Ok(row.chain(counts.map(|count| count.to_string())).collect())
}
