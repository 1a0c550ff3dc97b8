//! What is refused before anything changes.

use anyhow::Result;

use super::super::facts::Facts;
use super::super::kernel::Kernel;
use super::super::machine::Machine;
use super::super::scenario::{inventory_step, type_write};
use super::super::script;
use super::{HEADS, OTHERS, PLAN, apply, as_before, beginning, boot, declared, ended, plan, shell};

/// A device of the other tenant's kind that nobody has open.
const IDLE: [&str; 2] = ["0000:e1:00.0", "0000:f1:00.0"];

/// An unbinding of a device that the guest holds, written to the kernel directly: it does not come back.
const BLOCKS: &str = "d=0000:81:00.0; \
    (echo $d > /sys/bus/pci/drivers/vfio-pci/unbind; echo $? > /tmp/unbound) > /dev/null 2>&1 & \
    sleep 3; test ! -e /tmp/unbound && echo still blocked after 3 s";
/// What waited comes back, and the device gets its driver again.
const UNBLOCKS: &str = "until [ -e /tmp/unbound ]; do sleep 0.1; done; \
    d=0000:81:00.0; echo vfio-pci > /sys/bus/pci/devices/$d/driver_override; \
    [ -e /sys/bus/pci/devices/$d/driver ] || echo $d > /sys/bus/pci/drivers_probe; \
    readlink /sys/bus/pci/devices/$d/driver";

pub(super) fn run(kernel: &Kernel) -> Result<Facts> {
    let machine = Machine::named("replica")?;
    let of = |devices: &[&str]| devices.join(",");
    let mut steps = beginning();
    steps.extend([
        declared("plan for a held guest", &["plan", "identity-groups", "--device", &of(&OTHERS[..2])]),
        shell("the kernel blocks", BLOCKS),
        script::stop("guest"),
        shell("until the guest is gone", UNBLOCKS),
        declared("plan for an idle guest", &["plan", "identity-groups", "--device", &of(&IDLE)]),
        plan("plan"),
        declared("apply without a proof", &["apply", PLAN, "--unproved"]),
        shell("cut plan", &format!("head -c 900 {PLAN} > /tmp/cut.json")),
        declared("apply a cut plan", &["apply", "/tmp/cut.json", "--probe", "/lab/bin/lab-copy"]),
        shell("edited plan", &format!("sed s/{}/{}/g {PLAN} > /tmp/edited.json", "0000:61:00", "0000:e1:00")),
        declared("apply an edited plan", &["apply", "/tmp/edited.json", "--probe", "/lab/bin/lab-copy"]),
        script::start("holder", &["sh", "-c", "d=/dev/$(ls /sys/bus/pci/devices/0000:11:00.0/uio); exec 3<>$d; echo ready; read line"]),
        apply("apply with a holder"),
        script::stop("holder"),
        shell("no room", "mkdir /tmp/full && mount -t tmpfs -o size=16k none /tmp/full"),
        declared("apply without room for the way back", &["apply", PLAN, "--unproved", "--probe", "/lab/bin/lab-copy", "--state", "/tmp/full/state"]),
        shell("read-only", "mkdir /tmp/fixed && mount -t tmpfs -o ro none /tmp/fixed"),
        declared("apply with a journal that cannot be written", &["apply", PLAN, "--unproved", "--probe", "/lab/bin/lab-copy", "--state", "/tmp/fixed/state"]),
        shell("given to VFIO", "for f in 0 1; do d=0000:61:00.$f; echo vfio-pci > /sys/bus/pci/devices/$d/driver_override; echo $d > /sys/bus/pci/devices/$d/driver/unbind; echo $d > /sys/bus/pci/drivers_probe; done; readlink /sys/bus/pci/devices/0000:61:00.0/driver"),
        apply("apply where VFIO has the device now"),
        script::run("the kernel, asked directly", &["lab-sysfs", "set-type", IDLE[0], "identity"]),
        script::run("and back", &["lab-sysfs", "set-type", IDLE[0], "DMA-FQ"]),
        shell("given back", "for f in 0 1; do d=0000:61:00.$f; echo uio_pci_generic > /sys/bus/pci/devices/$d/driver_override; echo $d > /sys/bus/pci/devices/$d/driver/unbind; echo $d > /sys/bus/pci/drivers_probe; done"),
        shell("nothing began", "test ! -s /var/lib/peerway/journal.jsonl && test ! -e /run/peerway"),
        inventory_step("after"),
    ]);
    let report = boot(kernel, &machine)?.steps(steps).run()?;
    let mut facts = Facts::default();
    let mut rows = Vec::new();
    for (name, status, word) in [
        ("plan for a held guest", 4, "vfio-pci"),
        ("the kernel blocks", 0, "still blocked"),
        ("until the guest is gone", 0, "vfio-pci"),
        ("plan for an idle guest", 4, "vfio-pci"),
        ("apply without a proof", 4, "--probe"),
        ("apply a cut plan", 2, "cannot read the plan"),
        ("apply an edited plan", 4, "was changed after it was made"),
        ("apply with a holder", 4, "stop what holds the devices"),
        ("apply without room for the way back", 4, "No space left"),
        ("apply with a journal that cannot be written", 4, "Read-only"),
        ("given to VFIO", 0, "vfio-pci"),
        ("apply where VFIO has the device now", 4, "stale plan"),
        ("nothing began", 0, ""),
    ] {
        ended(&mut facts, &mut rows, &report, name, status, word)?;
    }
    facts.table(&HEADS, &rows);
    let asked = type_write(report.outcome("the kernel, asked directly")?)?;
    facts.expect("the kernel allows it", &asked.result.as_str(), &"ok");
    facts.say(format!(
        "The kernel itself takes `identity` for the idle VFIO group of {}: the refusals are the product's own.",
        IDLE[0]
    ));
    facts.say(
        "An unbinding of a device that the guest holds does not come back from the kernel until the guest is gone: \
         a plan for such a device is refused, and so is an apply while anybody holds one of the plan's.",
    );
    as_before(&mut facts, &report, "after")?;
    Ok(facts)
}
