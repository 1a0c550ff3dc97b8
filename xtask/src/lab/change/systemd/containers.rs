//! A container of LXC that has the devices open is shut down for a change and started after it.

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

/// Makes two containers, and starts them; one has the devices open and takes four seconds to shut down.
const CONTAINERS: &str = r#"one=$(ls /sys/bus/pci/devices/0000:11:00.0/uio)
two=$(ls /sys/bus/pci/devices/0000:61:00.0/uio)
major=$(cut -d: -f1 /sys/class/uio/$one/dev)
make() {
r=/var/lib/lxc/$1/rootfs
mkdir -p $r/bin $r/dev $r/proc $r/sys $r/run
cp /bin/busybox $r/bin/busybox
ln -s busybox $r/bin/sh
cat > $r/init <<INIT
#!/bin/sh
trap 'busybox sleep 4; exit 0' TERM
$2
echo open > /run/open
while :; do busybox sleep 0.2; done
INIT
chmod 755 $r/init
cat > /var/lib/lxc/$1/config <<CONFIG
lxc.uts.name = $1
lxc.rootfs.path = dir:$r
lxc.init.cmd = /init
lxc.signal.halt = SIGTERM
lxc.net.0.type = empty
lxc.apparmor.profile = unconfined
lxc.mount.auto = proc:mixed
$3
CONFIG
timeout 90 lxc-start -n $1 -d -o /run/lxc-$1.log || { cat /run/lxc-$1.log; exit 1; }
for i in $(seq 100); do [ -s $r/run/open ] && break; sleep 0.2; done
[ -s $r/run/open ] || { lxc-info -n $1; cat /run/lxc-$1.log; ls -lR $r; exit 1; }
}
make engine "exec 3<>/dev/$one 4<>/dev/$two" "lxc.cgroup2.devices.allow = c $major:* rwm
lxc.mount.entry = /dev/$one dev/$one none bind,create=file 0 0
lxc.mount.entry = /dev/$two dev/$two none bind,create=file 0 0"
make idle "" ""
lxc-info -n engine -s -H"#;

const STATE: &str = "lxc-info -n engine -s -H";

/// Runs the part.
pub(super) fn run(kernel: &Kernel, machine: &Machine, disk: &Path) -> Result<Facts> {
    let mut steps = beginning();
    steps.push(shell("the containers", CONTAINERS));
    steps.extend(story());
    let report = boot(kernel, machine, disk).steps(steps).run()?;
    let mut told = Told::default();
    told.facts.say(
        "The container `engine` of LXC has the two accelerators open and takes four seconds to shut down; the plan \
         names it (`--stop lxc:engine`).",
    );
    for (name, status, word) in [
        ("the containers", 0, "RUNNING"),
        ("apply without naming it", 4, "stop what holds the devices"),
        ("apply", 0, "applied and verified"),
        ("the engine while it waits", 0, "STOPPED"),
        ("confirm", 0, "in force"),
        ("the engine after the word", 0, "RUNNING"),
        ("undo", 0, "taken back"),
        ("the engine after undo", 0, "RUNNING"),
        ("killed while it shuts down", 0, "killed"),
        ("recover", 5, "taken back"),
        ("the engine after recover", 0, "RUNNING"),
        ("a container that holds nothing", 2, "would stop lxc:idle"),
        ("both after the refusal", 0, "RUNNING RUNNING"),
    ] {
        told.ended(&report, name, status, word)?;
    }
    for name in ["after undo", "after recover", "after the refusal"] {
        as_before(&mut told.facts, &report, name)?;
    }
    told.facts.table(&HEADS, &told.rows.clone());
    told.facts.say(
        "However the change ended, the container ran again with the devices open, and groups and drivers were as \
         before. `pct` and `qm` of Proxmox VE were not tried: no package here has them.",
    );
    Ok(told.facts)
}

/// A plan that names a container; one that is there would be left alone.
fn planning(stops: &str) -> String {
    let (product, devices) = (plain(), CHANGED.join(","));
    format!("rm -f {PLAN}; {product} plan identity-groups --device {devices} {stops} -o {PLAN}")
}

/// The state once the engine has its device, where it is to have it.
fn again(name: &str) -> Step {
    let line = format!(
        "for i in $(seq 50); do ls -l /proc/$(lxc-info -n engine -p -H)/fd 2>/dev/null | grep -q uio && break; \
         sleep 0.2; done; {STATE}"
    );
    shell(name, &line)
}

fn story() -> Vec<Step> {
    let kill = format!(
        "{}; {} > /run/said 2>&1 & p=$!; until grep -qsx lxc-stop /proc/[0-9]*/comm; do sleep 0.05; done; \
         kill -KILL $p; wait $p 2>/dev/null; echo killed",
        planning("--stop lxc:engine"),
        applying()
    );
    vec![
        shell("plan without it", &planning("--stop operator")),
        shell("apply without naming it", &applying()),
        shell("plan", &planning("--stop lxc:engine")),
        shell("apply", &applying()),
        shell("the engine while it waits", STATE),
        product("confirm", &["confirm"]),
        again("the engine after the word"),
        product("undo", &["undo", "--all"]),
        again("the engine after undo"),
        inventory_step("after undo"),
        shell("killed while it shuts down", &kill),
        product("recover", &["recover"]),
        again("the engine after recover"),
        inventory_step("after recover"),
        shell("a container that holds nothing", &planning("--stop lxc:idle")),
        shell("both after the refusal", &format!("echo $({STATE}) $(lxc-info -n idle -s -H)")),
        inventory_step("after the refusal"),
    ]
}
