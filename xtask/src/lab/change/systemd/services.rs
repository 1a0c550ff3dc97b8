//! A service that has one of the devices open is stopped for a change and started after it, whatever ends the
//! change; services that Peerway has to leave alone are.

use std::path::Path;

use anyhow::Result;
use peerway_lab_protocol::Step;

use super::super::super::facts::Facts;
use super::super::super::kernel::Kernel;
use super::super::super::machine::Machine;
use super::super::super::scenario::inventory_step;
use super::super::{CHANGED, HEADS, PLAN, as_before, plain, product, shell};
use super::looks::Told;
use super::{applying, beginning, boot};

/// Writes the units, and starts those that run from the beginning. The engine takes four seconds to stop.
const UNITS: &str = r#"cd /run/systemd/system
cat > engine.service <<'UNIT'
[Service]
ExecStart=/bin/sh -c 'trap "sleep 4; exit 0" TERM; d=/dev/$(ls /sys/bus/pci/devices/0000:11:00.0/uio); exec 3<>$d; echo open > /run/engine; while :; do sleep 0.2; done'
UNIT
cat > front.service <<'UNIT'
[Unit]
BindsTo=engine.service
After=engine.service
[Service]
ExecStart=/bin/sleep infinity
UNIT
cat > idle.service <<'UNIT'
[Service]
ExecStart=/bin/sleep infinity
UNIT
cat > once.service <<'UNIT'
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/bin/true
UNIT
ln -s engine.service alias.service
systemctl daemon-reload
systemctl start engine.service idle.service once.service
until [ -s /run/engine ]; do sleep 0.1; done
systemctl is-active engine.service"#;

const STATE: &str = "systemctl is-active engine.service; true";

/// Runs the part.
pub(super) fn run(kernel: &Kernel, machine: &Machine, disk: &Path) -> Result<Facts> {
    let mut steps = beginning();
    steps.push(shell("the units", UNITS));
    steps.extend(confirmed_and_undone());
    steps.extend(taken_back());
    steps.extend(cut_off());
    steps.extend(left_alone());
    let report = boot(kernel, machine, disk).steps(steps).run()?;
    let mut told = Told::default();
    told.facts.say(
        "`engine.service` has one of the two accelerators open and takes four seconds to stop; the plan names it \
         (`--stop unit:engine.service`).",
    );
    for (name, status, word) in [
        ("the units", 0, "active"),
        ("apply", 0, "applied and verified"),
        ("the engine while it waits", 0, "inactive"),
        ("confirm", 0, "in force"),
        ("the engine after the word", 0, "active"),
        ("verify", 0, "in force"),
        ("undo", 0, "taken back"),
        ("the engine after undo", 0, "active"),
        ("apply again", 0, "applied and verified"),
        ("rollback", 0, "taken back"),
        ("the engine after rollback", 0, "active"),
        ("killed while the engine stops", 0, "deactivating"),
        ("recover", 5, "taken back"),
        ("the engine after recover", 0, "active"),
        ("another service is bound to it", 4, "would stop front.service too"),
        ("a service that holds nothing", 4, "has one of the devices open"),
        ("one that ends by itself", 4, "no service that runs on"),
        ("another name", 4, "another name of engine.service"),
        ("one that nobody could start again", 4, "Transient=yes"),
        ("all of them after the refusals", 0, "active active active active active"),
    ] {
        told.ended(&report, name, status, word)?;
    }
    for name in ["after undo", "after rollback", "after recover", "after the refusals"] {
        as_before(&mut told.facts, &report, name)?;
    }
    told.facts.table(&HEADS, &told.rows.clone());
    told.facts.say(
        "However the change ended, the engine ran again with the device open, and groups and drivers were as before. \
         What was refused changed nothing and stopped nothing.",
    );
    Ok(told.facts)
}

/// A plan that names a service; one that is there would be left alone.
fn plan(name: &str, service: &str) -> Step {
    let (product, devices) = (plain(), CHANGED.join(","));
    let line = format!(
        "rm -f {PLAN}; {product} plan identity-groups --device {devices} --stop unit:{service} -o {PLAN}"
    );
    shell(name, &line)
}

/// The state once the engine has its device, where it is to have it.
fn again(name: &str) -> Step {
    let line = format!(
        "for i in $(seq 50); do ls -l /proc/$(systemctl show --property=MainPID --value engine.service)/fd \
         2>/dev/null | grep -q uio && break; sleep 0.2; done; {STATE}"
    );
    shell(name, &line)
}

fn confirmed_and_undone() -> Vec<Step> {
    vec![
        plan("plan", "engine.service"),
        shell("apply", &applying()),
        shell("the engine while it waits", STATE),
        product("confirm", &["confirm"]),
        again("the engine after the word"),
        product("verify", &["verify"]),
        product("undo", &["undo", "--all"]),
        again("the engine after undo"),
        inventory_step("after undo"),
    ]
}

fn taken_back() -> Vec<Step> {
    vec![
        plan("plan again", "engine.service"),
        shell("apply again", &applying()),
        product("rollback", &["rollback"]),
        again("the engine after rollback"),
        inventory_step("after rollback"),
    ]
}

/// The worst moment: the command is gone, and the service still stops.
fn cut_off() -> Vec<Step> {
    let kill = format!(
        "{} > /run/said 2>&1 & p=$!; \
         until [ \"$(systemctl is-active engine.service)\" = deactivating ]; do sleep 0.05; done; \
         kill -KILL $p; wait $p 2>/dev/null; {STATE}",
        applying()
    );
    vec![
        plan("plan once more", "engine.service"),
        shell("killed while the engine stops", &kill),
        product("recover", &["recover"]),
        again("the engine after recover"),
        inventory_step("after recover"),
    ]
}

fn left_alone() -> Vec<Step> {
    let refused = |name: &str, before: &str, service: &str, after: &str| {
        let (product, devices) = (plain(), CHANGED.join(","));
        let line = format!(
            "{before}; rm -f {PLAN}; {product} plan identity-groups --device {devices} --stop unit:{service} \
             -o {PLAN} > /run/planned || cat /run/planned; {}; code=$?; {after}; exit $code",
            applying()
        );
        shell(name, &line)
    };
    let holder = "systemd-run --quiet --unit=passing sh -c \
                  'd=/dev/$(ls /sys/bus/pci/devices/0000:61:00.0/uio); exec 3<>$d; echo open > /run/passing; exec sleep infinity'; \
                  until [ -s /run/passing ]; do sleep 0.1; done";
    vec![
        refused(
            "another service is bound to it",
            "systemctl start front.service",
            "engine.service",
            ":",
        ),
        refused("a service that holds nothing", ":", "idle.service", ":"),
        refused("one that ends by itself", ":", "once.service", ":"),
        refused("another name", ":", "alias.service", ":"),
        refused("one that nobody could start again", holder, "passing.service", ":"),
        shell(
            "all of them after the refusals",
            "echo $(systemctl is-active engine.service front.service idle.service once.service passing.service)",
        ),
        inventory_step("after the refusals"),
    ]
}
