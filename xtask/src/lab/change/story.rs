//! The whole story on the replica: two of the host's accelerators get identity, proved by copies, kept, and
//! taken back.

use anyhow::Result;
use peerway_lab_protocol::Step;

use super::super::facts::Facts;
use super::super::kernel::Kernel;
use super::super::machine::Machine;
use super::super::scenario::{by_requester, inventory_of, inventory_step, probes_of};
use super::super::script;
use super::others::{self, Others};
use super::{
    CHANGED, HEADS, OTHERS, apply, as_before, beginning, boot, differences, ended, plan, product,
    shell,
};

const OVERRIDES: &str = "cat /sys/bus/pci/devices/0000:11:00.0/driver_override /sys/bus/pci/devices/0000:61:00.0/driver_override";

pub(super) fn run(kernel: &Kernel) -> Result<Facts> {
    let machine = Machine::named("replica")?;
    let report = boot(kernel, &machine)?.steps(steps()).run()?;
    let mut facts = Facts::default();
    facts.say(format!(
        "Machine `replica`: {} belong to a virtual machine, {} are changed.",
        OTHERS.join(" "),
        CHANGED.join(" ")
    ));
    let mut rows = Vec::new();
    for (name, status, word) in [
        ("plan", 0, "protects vm:132: 0000:81:00.0"),
        ("apply", 0, "applied and verified"),
        ("environment while it waits", 0, "NCCL_P2P_DISABLE=1"),
        ("recover while it waits", 0, "confirm it"),
        ("confirm", 0, "in force"),
        ("environment after the word", 0, "NCCL_P2P_LEVEL"),
        ("verify", 0, "nobody else was touched"),
        ("undo", 0, "taken back"),
        ("environment after undo", 0, ""),
        ("verify after undo", 3, "nothing was confirmed"),
        ("apply again", 0, "applied and verified"),
        ("rollback", 0, "taken back"),
        ("history", 0, "taken back"),
    ] {
        ended(&mut facts, &mut rows, &report, name, status, word)?;
    }
    facts.table(&HEADS, &rows);
    let before = inventory_of(&report, "before")?;
    let changed = inventory_of(&report, "changed")?;
    let mut expected: Vec<String> = Vec::new();
    for group in before.groups.iter().filter(|one| CHANGED.iter().any(|own| has(one, own))) {
        expected.push(format!("group {}: DMA-FQ and identity", group.id));
    }
    facts.expect("what the change changed", &differences(&before, &changed), &expected);
    facts.expect("groups that it changed", &expected.len(), &CHANGED.len());
    let probes = probes_of(&report, "copies")?;
    for (from, arrived) in by_requester(&probes) {
        let changed = CHANGED.contains(&from.as_str());
        facts.expect(
            &format!("copies of {from} arrive"),
            &arrived.into_iter().collect::<Vec<_>>(),
            &vec![changed],
        );
    }
    facts.say(format!(
        "In force, {} copies were tried: all of the two requesters arrived, none of the other two.",
        probes.len()
    ));
    let list = Others::of(&report, "others before")?;
    for name in ["others while it waits", "others in force", "others after"] {
        let now = Others::of(&report, name)?;
        facts.expect(name, &list.differences(&now), &Vec::new());
    }
    facts.say(format!(
        "From outside of the product, {} values of the other tenant's functions and of the ports above them were          read before, while the change waited for the word, in force, and after it was taken back: group, type,          driver, override, configuration space (command and ACS bits among them), regions, power state, the          process that holds them with its start, and faults that name them. None was another.",
        list.len()
    ));
    as_before(&mut facts, &report, "after")?;
    as_before(&mut facts, &report, "after rollback")?;
    let overrides = |name: &str| report.stdout(name).map(str::to_owned);
    facts.expect("overrides", &overrides("overrides after")?, &overrides("overrides before")?);
    facts.say("After `undo --all`, and after `rollback`, every driver, group, type, override and region was what it had been, and `/run/peerway` was gone.");
    Ok(facts)
}

fn steps() -> Vec<Step> {
    let mut steps = beginning();
    steps.extend([
        shell("overrides before", OVERRIDES),
        others::step("others before"),
        plan("plan"),
        apply("apply"),
        others::step("others while it waits"),
        shell("environment while it waits", "cat /run/peerway/p2p.env"),
        product("recover while it waits", &["recover"]),
        product("confirm", &["confirm"]),
        shell("environment after the word", "cat /run/peerway/p2p.env"),
        inventory_step("changed"),
        others::step("others in force"),
        own_matrix("copies"),
        product("verify", &["verify"]),
        product("undo", &["undo", "--all"]),
        shell("environment after undo", "test ! -e /run/peerway"),
        inventory_step("after"),
        others::step("others after"),
        shell("overrides after", OVERRIDES),
        product("verify after undo", &["verify"]),
        plan("plan again"),
        apply("apply again"),
        product("rollback", &["rollback"]),
        inventory_step("after rollback"),
        product("history", &["history"]),
        script::stop("guest"),
    ]);
    steps
}

fn has(group: &peerway_lab_protocol::Group, address: &str) -> bool {
    group.devices.iter().any(|one| one == address)
}

pub(super) fn own_matrix(name: &str) -> Step {
    let own = ["0000:01:00.0", "0000:11:00.0", "0000:61:00.0", "0000:71:00.0"];
    let mut line = String::from("set -e");
    for from in own {
        for to in own.iter().filter(|to| **to != from) {
            line.push_str(&format!("; lab-copy probe --from {from} --to {to}"));
        }
    }
    shell(name, &line)
}
