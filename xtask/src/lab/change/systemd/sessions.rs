//! What becomes of the timer when the unit or the login ends that an apply was started from.

use std::path::Path;

use anyhow::Result;
use peerway_lab_protocol::Step;

use super::super::super::facts::Facts;
use super::super::super::kernel::Kernel;
use super::super::super::machine::Machine;
use super::super::super::scenario::inventory_step;
use super::super::{HEADS, PLAN, as_before, plain, plan, product, shell};
use super::looks::Told;
use super::{PROBE, beginning, boot};

/// Seconds that the operator has for the word, of which none comes.
const WITHIN: &str = "30";

/// Runs the part.
pub(super) fn run(kernel: &Kernel, machine: &Machine, disk: &Path) -> Result<Facts> {
    let mut steps = beginning();
    steps.extend(unit_ends());
    steps.extend(login_ends());
    steps.extend(killed_with_its_login());
    let report = boot(kernel, machine, disk).steps(steps).run()?;
    let mut told = Told::default();
    told.facts.say(
        "`KillUserProcesses=yes`. An apply is started by a unit, which ends when it does; by a login, which is ended \
         while it waits for the word; and by a login whose processes are killed in the middle of it. Nobody gives \
         the word.",
    );
    for (name, word) in [
        ("a unit: apply", "applied and verified"),
        ("a unit: it is over", "inactive"),
        ("a unit: the timer", "system.slice/run-"),
        ("a unit: nobody gives the word", "it was not confirmed in time"),
        ("a login: apply", "applied and verified"),
        ("a login: its scope", "user.slice/user-0.slice/session-"),
        ("a login: it is over", "no session"),
        ("a login: the timer", "system.slice/run-"),
        ("a login: nobody gives the word", "it was not confirmed in time"),
        ("a login, killed: its scope", "user.slice/user-0.slice/session-"),
        ("a login, killed: it is over", "no session"),
        ("a login, killed: the timer", "system.slice/run-"),
        ("a login, killed: what is under way", "not over"),
        ("a login, killed: nobody does anything", "it was cut off"),
    ] {
        told.ended(&report, name, 0, word)?;
    }
    for at in ["a unit", "a login", "a login, killed"] {
        as_before(&mut told.facts, &report, &format!("{at}: after"))?;
        told.ended(&report, &format!("{at}: nothing is left"), 0, "no timer")?;
    }
    told.facts.table(&HEADS, &told.rows.clone());
    told.facts.say(
        "Each time the timer was in a scope of its own (the row says its control group), outlived the unit or the \
         login, took everything back by itself, and ended with that; groups and drivers were as before.",
    );
    Ok(told.facts)
}

fn apply() -> String {
    format!("{} apply {PLAN} --unproved --probe {PROBE} --confirm-within {WITHIN}", plain())
}

/// The control group of the timer, and of nothing else.
fn timer(at: &str) -> Step {
    let line = "for p in /proc/[0-9]*; do \
                if tr '\\0' ' ' < $p/cmdline | grep -q 'dead-ma[n] 0'; then cat $p/cgroup; exit; fi; done; exit 1";
    shell(&format!("{at}: the timer"), line)
}

/// Waits until the last transaction is over, and says how; then nothing of it is left, the timer included.
fn taken_back(at: &str, name: &str) -> Vec<Step> {
    let line = "for i in $(seq 300); do \
                /lab/bin/peerway history 2> /run/history | tail -n 2 | grep -A 1 'taken back' && exit 0; \
                sleep 0.5; done; tail -n 5 /var/lib/peerway/guardian.log; exit 1";
    let left = "for i in $(seq 100); do \
                if systemctl list-units --no-legend --plain 'run-*.scope' | grep -q Peerway; then sleep 0.2; \
                else test ! -e /run/peerway && echo no timer; exit; fi; done; exit 1";
    vec![
        shell(&format!("{at}: {name}"), line),
        inventory_step(&format!("{at}: after")),
        shell(&format!("{at}: nothing is left"), left),
    ]
}

fn unit_ends() -> Vec<Step> {
    let run = format!("systemd-run --wait --pipe --quiet --unit=operator {}", apply());
    let mut steps = vec![
        plan("plan for a unit"),
        shell("a unit: apply", &run),
        shell("a unit: it is over", "systemctl is-active operator.service; test $? -ge 3"),
        timer("a unit"),
    ];
    steps.extend(taken_back("a unit", "nobody gives the word"));
    steps
}

/// A login of root's as PAM and logind make it, without a terminal: it applies, and then stays.
fn login(unit: &str) -> String {
    format!(
        "systemd-run --quiet --collect --no-block --unit={unit} --uid=root --property=PAMName=login \
         --property=StandardOutput=truncate:/run/{unit}.out --property=StandardError=append:/run/{unit}.out \
         sh -c '{}; echo ended with $?; exec sleep infinity'",
        apply()
    )
}

/// The scope of the only session, and its number.
const SCOPE: &str = "s=$(loginctl list-sessions --no-legend | awk '{print $1; exit}'); \
                     loginctl show-session $s --property=Scope --value; \
                     cat /sys/fs/cgroup/user.slice/user-0.slice/session-$s.scope/cgroup.procs | head -n 1 | \
                     xargs -I N cat /proc/N/cgroup";
/// Waits until no session and no process of it is there.
const OVER: &str = "for i in $(seq 200); do \
                    if [ -z \"$(loginctl list-sessions --no-legend)\" ] && \
                    ! ls -d /sys/fs/cgroup/user.slice/user-0.slice/session-*.scope; then echo no session; exit 0; fi; \
                    sleep 0.2; done 2>/dev/null; loginctl list-sessions; exit 1";

fn login_ends() -> Vec<Step> {
    let mut steps = vec![
        plan("plan for a login"),
        shell("a login begins", &login("operator-login")),
        shell(
            "a login: apply",
            "until grep -q 'ended with' /run/operator-login.out; do sleep 0.2; done; cat /run/operator-login.out",
        ),
        shell("a login: its scope", SCOPE),
        shell(
            "a login ends",
            "loginctl terminate-session $(loginctl list-sessions --no-legend | awk '{print $1; exit}')",
        ),
        shell("a login: it is over", OVER),
        timer("a login"),
    ];
    steps.extend(taken_back("a login", "nobody gives the word"));
    steps
}

fn killed_with_its_login() -> Vec<Step> {
    let midway = "j=/var/lib/peerway/journal.jsonl; b=$(cat /run/records); \
                  until [ $(wc -l < $j) -ge $((b + 20)) ]; do sleep 0.1; done";
    let kill = "loginctl kill-session --signal=SIGKILL \
                $(loginctl list-sessions --no-legend | awk '{print $1; exit}')";
    let mut steps = vec![
        plan("plan for another login"),
        shell("records", "wc -l < /var/lib/peerway/journal.jsonl > /run/records"),
        shell("another login begins", &login("operator-killed")),
        shell("in the middle", midway),
        shell("a login, killed: its scope", SCOPE),
        shell("a login is killed", kill),
        shell("a login, killed: it is over", OVER),
        timer("a login, killed"),
        product("a login, killed: what is under way", &["history"]),
    ];
    steps.extend(taken_back("a login, killed", "nobody does anything"));
    steps
}
