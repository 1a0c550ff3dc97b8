//! What stays as it is while reading commands run as root: every readable file of sysfs, what procfs says
//! of the system, every device's configuration space, and the kernel's log.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use anyhow::{Context as _, Result};
use peerway_lab_protocol::{Step, Stillness};

use super::super::boot::Report;
use super::super::facts::Facts;
use super::super::kernel::Kernel;
use super::super::machine::Machine;
use super::super::script;
use super::{COMMANDS, DECLARED, boot};

/// Files that move by themselves, a star for any characters; each was seen to move without any command.
const MOVING: [(&str, &str); 1] = [("/proc/sys/kernel/random/*", "random numbers")];

/// Snapshots without a command between them, after the first.
const IDLE: usize = 3;
/// One snapshot reads some ten thousand files.
const DEADLINE_MS: u64 = 120_000;

pub(super) fn run(kernel: &Kernel) -> Result<Facts> {
    let machine = Machine::named("sides")?;
    let mut steps = vec![snapshot("first".to_owned())];
    for number in 1..=IDLE {
        steps.push(script::run(&format!("nothing {number}"), &["sleep", "1"]));
        steps.push(snapshot(format!("idle {number}")));
    }
    for command in COMMANDS {
        let mut argv = vec!["peerway"];
        argv.extend(command.words);
        argv.extend(DECLARED);
        steps.push(Step { deadline_ms: DEADLINE_MS, ..script::run(command.name, &argv) });
        steps.push(snapshot(format!("after {}", command.name)));
    }
    let report = boot(kernel, &machine)?.limit(Duration::from_mins(9)).steps(steps).run()?;
    judge(&report)
}

fn snapshot(name: String) -> Step {
    Step { deadline_ms: DEADLINE_MS, ..script::run(&name, &["lab-still"]) }
}

fn judge(report: &Report) -> Result<Facts> {
    let mut facts = Facts::default();
    let mut moved: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    let mut strangers = |facts: &mut Facts, step: &str| -> Result<(Stillness, Vec<String>)> {
        let found: Stillness = serde_json::from_str(report.stdout(step)?)
            .with_context(|| format!("cannot understand {step:?}"))?;
        let all = found.changed.iter().chain(&found.appeared).chain(&found.gone);
        let mut unknown = Vec::new();
        for path in all {
            match MOVING.iter().find(|(pattern, _)| matches(pattern, path)) {
                Some((pattern, _)) => {
                    moved.entry(pattern).or_default().insert(step.to_owned());
                }
                None => unknown.push(path.clone()),
            }
        }
        facts.expect(&format!("{step}: files that must not move"), &unknown, &Vec::new());
        Ok((found, unknown))
    };
    for number in 1..=IDLE {
        strangers(&mut facts, &format!("idle {number}"))?;
    }
    let mut rows = Vec::new();
    for command in COMMANDS {
        let outcome = report.outcome(command.name)?;
        let well = outcome.status.is_some_and(|status| status < 5) && !outcome.timed_out;
        let shown = format!("{}: {:?} {}", command.name, outcome.status, outcome.stderr);
        facts.expect(&format!("{shown} ended"), &well, &true);
        let silent: Vec<String> = outcome.kernel.clone();
        facts.expect(&format!("{}: kernel log", command.name), &silent, &Vec::new());
        let (found, unknown) = strangers(&mut facts, &format!("after {}", command.name))?;
        facts.expect(
            "devices' configuration spaces are looked at",
            &(found.configurations > 16),
            &true,
        );
        rows.push(vec![
            format!("`peerway {}`", command.words.join(" ")),
            found.files.to_string(),
            found.configurations.to_string(),
            unknown.len().to_string(),
            outcome.kernel.len().to_string(),
        ]);
    }
    let head = ["command", "files", "of them configuration space", "changed", "kernel lines"];
    facts.table(&head, &rows);
    facts.say("Files that move by themselves, and are left out of that count:");
    let mut listed = Vec::new();
    for (pattern, what) in MOVING {
        let idle = moved
            .get(pattern)
            .is_some_and(|steps| steps.iter().any(|step| step.starts_with("idle")));
        facts.expect(&format!("{pattern} moves by itself"), &idle, &true);
        listed.push(vec![format!("`{pattern}`"), what.to_owned()]);
    }
    facts.table(&["file", "what it is"], &listed);
    Ok(facts)
}

/// Whether a path is of a pattern, in which a star is any run of characters.
fn matches(pattern: &str, path: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = path.strip_prefix(parts.next().unwrap_or_default()) else { return false };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        match rest.split_once(part) {
            Some((_, after)) => rest = after,
            None => return false,
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(pattern: &str, path: &str, expected: bool) {
        assert_eq!(matches(pattern, path), expected, "{pattern} {path}");
    }

    #[test]
    fn a_star_is_any_run_of_characters() {
        check("/sys/a", "/sys/a", true);
        check("/sys/a", "/sys/ab", false);
        check("/sys/*/b", "/sys/x/y/b", true);
        check("/sys/*/b", "/sys/x/y/c", false);
        check("/sys/*", "/sys/x", true);
        check("/a*b*c", "/a1b2c", true);
        check("/a*b*c", "/a1c2b", false);
    }
}
