//! The product is killed at records of its journal.

use std::time::Duration;

use anyhow::{Context as _, Result};
use peerway_lab_protocol::{Crash, Step};

use super::super::facts::Facts;
use super::super::kernel::Kernel;
use super::super::machine::Machine;
use super::super::script;
use super::{PLAN, beginning, boot, plan};

/// Every how many records continuous integration kills; `PEERWAY_LAB_EVERY_RECORD` kills at each.
const EVERY: usize = 6;
/// More than a plan of the replica has.
const MOST: usize = 400;

pub(super) fn kill(kernel: &Kernel) -> Result<Facts> {
    let machine = Machine::named("replica")?;
    let every = if std::env::var_os("PEERWAY_LAB_EVERY_RECORD").is_some() { 1 } else { EVERY };
    let mut steps = beginning();
    let words = ["lab-crash", "kill", PLAN, "1", &every.to_string(), &MOST.to_string()];
    steps.extend([
        plan("plan"),
        Step { deadline_ms: 3_600_000, ..script::run("killed", &words) },
        script::stop("guest"),
    ]);
    let report = boot(kernel, &machine)?.limit(Duration::from_mins(70)).steps(steps).run()?;
    let mut facts = Facts::default();
    let crashes: Result<Vec<Crash>> = report
        .stdout("killed")?
        .lines()
        .map(|line| serde_json::from_str(line).with_context(|| format!("the crash {line:?}")))
        .collect();
    let crashes = crashes?;
    let mut exact = 0;
    for one in &crashes {
        let what = format!("record {} ({} written): {}", one.record, one.records, one.said);
        facts.expect(&format!("{what}: differences"), &one.differences, &Vec::new());
        exact += usize::from(one.killed && one.record == one.records);
        let expected: &[i32] = match (one.killed, one.records) {
            // Verified, and nobody was asked yet: recovery leaves it to the operator.
            (true, _) if one.said.contains("confirm it") => &[0],
            (true, _) => &[5],
            (false, _) => &[0],
        };
        let fits = one.recovered.is_some_and(|code| expected.contains(&code));
        facts.expect(&format!("{what}: exit {:?}", one.recovered), &fits, &true);
    }
    let killed = crashes.iter().filter(|one| one.killed).count();
    let last = crashes.last().map_or(0, |one| one.records);
    facts.expect(
        "the last one was not killed",
        &crashes.last().map(|one| one.killed),
        &Some(false),
    );
    facts.expect("some were killed", &(killed > 3), &true);
    facts.say(format!(
        "An apply of this plan writes {last} records before the rollback's. It was killed {killed} times, at \
         every {every}. record; in {exact} of them the journal had exactly so many when the process died, in the \
         others one or two more. After one `recover` each, every driver, group, type and region was what it had \
         been, the environment file was gone, and the same plan was fresh again."
    ));
    Ok(facts)
}
