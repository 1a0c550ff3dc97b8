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

/// A file that moves by itself, or with any process that runs, whatever it reads.
struct Moving {
    /// Its path, a star for any characters.
    pattern: &'static str,
    what: &'static str,
    /// Seen to move in every run without any command; the others do so now and then.
    always: bool,
}

const MOVING: [Moving; 29] = [
    always("/proc/sys/kernel/ns_last_pid", "number of the youngest process"),
    always("/proc/sys/kernel/random/uuid", "a new one for each reader"),
    always("/sys/devices/*/power/runtime_active_time", "time"),
    always("/sys/devices/*/rtc/rtc0/since_epoch", "time"),
    always("/sys/devices/*/rtc/rtc0/time", "time"),
    always("/sys/devices/system/node/node*/meminfo", "memory in use"),
    always("/sys/devices/system/node/node*/numastat", "pages that were allocated"),
    always("/sys/devices/system/node/node*/vmstat", "memory in use"),
    always("/sys/kernel/irq/*/per_cpu_count", "interrupts"),
    always("/sys/kernel/slab/*/objects", "objects of the kernel"),
    always("/sys/kernel/slab/*/total_objects", "objects of the kernel"),
    at_times("/proc/sys/fs/dentry-state", "names in memory"),
    at_times("/proc/sys/fs/file-nr", "open files"),
    at_times("/proc/sys/fs/inode-nr", "files in memory"),
    at_times("/proc/sys/fs/inode-state", "files in memory"),
    at_times("/proc/sys/kernel/random/entropy_avail", "randomness"),
    at_times("/sys/devices/*/rtc/rtc0/date", "time"),
    // Kernel 5.10 lets no device of the lab sleep.
    at_times("/sys/devices/*/power/runtime_suspended_time", "time"),
    // The port suspends itself between two lines that the guest prints; no PCI function lies there.
    at_times("/sys/devices/pnp0/*/power/runtime_active_kids", "the lab's serial port"),
    at_times("/sys/devices/pnp0/*/power/runtime_status", "the lab's serial port"),
    at_times("/sys/devices/virtual/bdi/*/max_bytes", "a share of free memory"),
    at_times("/sys/devices/virtual/thermal/*/time_in_state_ms", "time"),
    at_times("/sys/kernel/mm/transparent_hugepage/hugepages-*/stats/*", "memory of processes"),
    at_times("/sys/kernel/mm/transparent_hugepage/khugepaged/full_scans", "the kernel's own work"),
    at_times("/sys/kernel/mm/transparent_hugepage/khugepaged/pages_collapsed", "the same"),
    // Kernel 7.3 measures how its memory is used, all the time.
    at_times("/sys/module/damon_stat/parameters/*", "statistics of memory in use"),
    at_times("/sys/kernel/slab/*/cpu_slabs", "objects of the kernel"),
    at_times("/sys/kernel/slab/*/*partial", "objects of the kernel"),
    at_times("/sys/kernel/slab/*/slabs", "objects of the kernel"),
];

const fn always(pattern: &'static str, what: &'static str) -> Moving {
    Moving { pattern, what, always: true }
}

const fn at_times(pattern: &'static str, what: &'static str) -> Moving {
    Moving { pattern, what, always: false }
}

/// Lines that the kernel logs where the machine that plays it is busy, whatever runs in it
/// (`clocksource_watchdog` in kernel/time/clocksource.c).
const BUSY: [&str; 1] = ["clocksource: Long readout interval"];

/// Snapshots without a command between them, after the first.
const IDLE: usize = 3;
/// One snapshot reads some ten thousand files.
const DEADLINE_MS: u64 = 120_000;

pub(super) fn run(kernel: &Kernel) -> Result<Facts> {
    let machine = Machine::named("sides")?;
    let mut steps = vec![snapshot("first")];
    for number in 1..=IDLE {
        steps.push(script::run(&format!("nothing {number}"), &["sleep", "1"]));
        steps.push(snapshot(&format!("idle {number}")));
    }
    for command in COMMANDS {
        let mut argv = vec!["peerway"];
        argv.extend(command.words);
        argv.extend(DECLARED);
        steps.push(Step { deadline_ms: DEADLINE_MS, ..script::run(command.name, &argv) });
        steps.push(snapshot(&format!("after {}", command.name)));
    }
    let report = boot(kernel, &machine)?.limit(Duration::from_mins(9)).steps(steps).run()?;
    judge(&report)
}

fn snapshot(name: &str) -> Step {
    Step { deadline_ms: DEADLINE_MS, ..script::run(name, &["lab-still"]) }
}

/// Differences that were seen so far, by pattern.
struct Seen<'a> {
    report: &'a Report,
    moved: BTreeMap<&'static str, BTreeSet<String>>,
}

impl Seen<'_> {
    /// Reads what a snapshot found; anything that must not move is a difference.
    fn snapshot(&mut self, facts: &mut Facts, step: &str) -> Result<(Stillness, usize)> {
        let found: Stillness = serde_json::from_str(self.report.stdout(step)?)
            .with_context(|| format!("cannot understand {step:?}"))?;
        let mut strangers = Vec::new();
        for path in found.changed.iter().chain(&found.appeared).chain(&found.gone) {
            match MOVING.iter().find(|one| matches(one.pattern, path)) {
                Some(one) => {
                    self.moved.entry(one.pattern).or_default().insert(step.to_owned());
                }
                None => strangers.push(path.clone()),
            }
        }
        facts.expect(&format!("{step}: files that must not move"), &strangers, &Vec::new());
        Ok((found, strangers.len()))
    }
}

fn judge(report: &Report) -> Result<Facts> {
    let mut facts = Facts::default();
    let mut seen = Seen { report, moved: BTreeMap::new() };
    for number in 1..=IDLE {
        seen.snapshot(&mut facts, &format!("idle {number}"))?;
    }
    let mut rows = Vec::new();
    for command in COMMANDS {
        let outcome = report.outcome(command.name)?;
        let well = outcome.status.is_some_and(|status| status < 5) && !outcome.timed_out;
        let shown = format!("{}: {:?} {}", command.name, outcome.status, outcome.stderr);
        facts.expect(&format!("{shown} ended"), &well, &true);
        let mut kernel = outcome.kernel.clone();
        kernel.retain(|line| !BUSY.iter().any(|begin| line.starts_with(begin)));
        facts.expect(&format!("{}: kernel log", command.name), &kernel, &Vec::new());
        let (found, strangers) = seen.snapshot(&mut facts, &format!("after {}", command.name))?;
        let devices = found.configurations > 16;
        facts.expect("configuration spaces were looked at", &devices, &true);
        rows.push(vec![
            format!("`peerway {}`", command.words.join(" ")),
            found.files.to_string(),
            found.configurations.to_string(),
            strangers.to_string(),
            kernel.len().to_string(),
        ]);
    }
    facts.say(
        "Every readable file of `/sys` and `/proc/sys`, what `/proc` says of the system, and every \
         device's configuration space, before and after each command as root on machine `sides`. \
         Left out: `resourceN`, `rom` and `vpd` of devices, which a reader would reach into, and \
         what is mounted below those trees.",
    );
    let head = ["command", "files", "of them configuration space", "changed", "kernel lines"];
    facts.table(&head, &rows);
    facts.say("Files that move by themselves or with any process, and are left out of that count:");
    let mut listed = Vec::new();
    for one in MOVING {
        let steps = seen.moved.get(one.pattern);
        let count = |begin: &str| {
            steps.into_iter().flatten().filter(|step| step.starts_with(begin)).count()
        };
        if one.always {
            facts.expect(&format!("{} moves by itself", one.pattern), &(count("idle") > 0), &true);
        }
        let pattern = format!("`{}`", one.pattern);
        let (idle, after) = (count("idle").to_string(), count("after").to_string());
        listed.push(vec![pattern, one.what.to_owned(), idle, after]);
    }
    let (idle, after) =
        (format!("of {IDLE} idle"), format!("of {} after a command", COMMANDS.len()));
    facts.table(&["file", "what it is", &idle, &after], &listed);
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
