//! The whole story: refusals first, then the map in force beside a virtual machine, then nothing left of it.

use anyhow::Result;
use peerway_lab_protocol::Step;

use super::super::change::{
    HEADS, OTHERS, as_before, declared, differences, ended, plain, product, shell,
};
use super::super::facts::Facts;
use super::super::kernel::Kernel;
use super::super::scenario::{inventory_of, inventory_step};
use super::super::script;
use super::{
    OWN, PAIRS, PLAN, PROBE, ROAD, apply, arrived, beginning, boot, copies, copy, entries, install,
    list, machine, plan, verdicts, with_verdict,
};

/// What the product says in words, whatever its exit code.
fn words(name: &str, command: &str) -> Step {
    shell(name, &format!("{} {command}; test $? -le 3", plain()))
}

fn steps() -> Vec<Step> {
    let mut steps = beginning();
    steps.push(inventory_step("before"));
    steps.extend(refusals());
    steps.extend([
        copies("copies before", &OWN),
        verdicts("verdicts before"),
        apply("apply"),
        list("list while it waits"),
        shell("environment while it waits", "cat /run/peerway/p2p.env"),
        product("confirm", &["confirm"]),
        shell("environment after the word", "cat /run/peerway/p2p.env"),
        inventory_step("under the map"),
        verdicts("verdicts under the map"),
        words("status under the map", "status"),
        words("path under the map", &format!("path {} {}", OWN[0], OWN[1])),
        words("roads under the map", &format!("roads --device {}", OWN.join(","))),
        copies("copies under the map", &OWN),
        product("verify", &["verify"]),
        product("verify with copies", &["verify", "--probe", PROBE]),
        // Their faults are the operator's devices' own, and from here on part of what `verify` sees.
        copy("to what is not mapped", OWN[0], OTHERS[0]),
        copy("from what VFIO holds", OTHERS[0], OWN[0]),
        shell("unload in use", "rmmod peerway_map 2>&1; echo ended with $?"),
        product("undo", &["undo", "--all"]),
        shell("nothing is left", "test ! -e /run/peerway && test ! -e /proc/peerway-map && test ! -e /sys/module/peerway_map"),
        inventory_step("after"),
        verdicts("verdicts after"),
        copies("copies after", &OWN),
        product("verify after undo", &["verify"]),
        product("history", &["history"]),
        script::stop("guest"),
    ]);
    steps
}

/// What is refused before anything changes.
fn refusals() -> Vec<Step> {
    vec![
        declared("plan for a held guest", &["plan", ROAD, "--device", &OTHERS[..2].join(",")]),
        plan("plan", &OWN),
        declared("apply without asking for what is unproved", &["apply", PLAN, "--probe", PROBE]),
        apply("apply without the module"),
        install(),
        declared("apply without a proof", &["apply", PLAN, "--unproved"]),
        script::start(
            "holder",
            &[
                "sh",
                "-c",
                "d=/dev/$(ls /sys/bus/pci/devices/0000:11:00.0/uio); exec 3<>$d; echo ready; read line",
            ],
        ),
        apply("apply with a holder"),
        script::stop("holder"),
        shell(
            "nothing began",
            "test ! -s /var/lib/peerway/journal.jsonl && test ! -e /run/peerway && test ! -e /sys/module/peerway_map",
        ),
    ]
}

pub(super) fn run(kernel: &Kernel) -> Result<Facts> {
    let machine = machine()?;
    let report = boot(kernel, &machine)?.steps(steps()).run()?;
    let mut facts = Facts::default();
    facts.say(format!(
        "Machine `{}`: memories of 2 GiB above 4 GiB; {} belong to a virtual machine, {} are the operator's.",
        machine.name,
        OTHERS.join(" "),
        OWN.join(" ")
    ));
    let mut rows = Vec::new();
    for (name, status, word) in [
        ("plan for a held guest", 4, "vfio-pci"),
        ("plan", 0, "protects vm:132"),
        ("apply without asking for what is unproved", 4, "--unproved"),
        ("apply without the module", 4, "is not installed for kernel"),
        ("apply without a proof", 4, "--probe"),
        ("apply with a holder", 4, "stop what holds the devices"),
        ("nothing began", 0, ""),
        ("apply", 0, "applied and verified"),
        ("environment while it waits", 0, "NCCL_P2P_DISABLE=1"),
        ("confirm", 0, "in force"),
        ("environment after the word", 0, "NCCL_P2P_LEVEL"),
        ("verify", 0, "nobody else was touched"),
        ("verify with copies", 0, "12 copies arrived intact"),
        ("unload in use", 0, "ended with 1"),
        ("undo", 0, "taken back"),
        ("nothing is left", 0, ""),
        ("verify after undo", 3, "nothing was confirmed"),
        ("history", 0, "taken back"),
    ] {
        ended(&mut facts, &mut rows, &report, name, status, word)?;
    }
    facts.table(&HEADS, &rows);
    facts.say("The module's list while the product waits for the operator's word:");
    facts.quote(report.stdout("list while it waits")?.lines());
    facts.expect("entries", &entries(&report, "list while it waits")?, &Some(12));
    let mut rows = Vec::new();
    for (when, verdict, intact) in
        [("before", "broken", 0), ("under the map", "works", PAIRS), ("after", "broken", 0)]
    {
        let found = arrived(&report, &format!("copies {when}"))?;
        facts.expect(&format!("copies {when}: intact, of all"), &found, &(intact, PAIRS));
        let said = with_verdict(&report, &format!("verdicts {when}"), &OWN, verdict)?;
        facts.expect(&format!("verdicts {when}: {verdict}"), &said, &PAIRS);
        rows.push(vec![
            when.to_owned(),
            format!("{} of {}", found.0, found.1),
            format!("{verdict}: {said} of {PAIRS}"),
        ]);
    }
    facts.say(
        "Copies between all of the operator's devices, and the product's verdicts on those pairs:",
    );
    facts.table(&["when", "copies that arrived intact", "verdicts"], &rows);
    for name in ["to what is not mapped", "from what VFIO holds"] {
        facts.expect(name, &arrived(&report, name)?, &(0, 1));
    }
    facts.say(format!(
        "Under the map a copy from {} to {}, which no entry names, arrived nowhere, and none did from {}, \
         which VFIO holds, to {}.",
        OWN[0], OTHERS[0], OTHERS[0], OWN[0]
    ));
    let status = report.stdout("status under the map")?;
    let told = status.contains("Peer map: in force, 12 entries");
    facts.expect("status: the map is in force", &told, &true);
    facts.say("`peerway status` under the map:");
    facts.quote(status.lines());
    facts.say(format!("`peerway path {} {}` under the map:", OWN[0], OWN[1]));
    facts.quote(report.stdout("path under the map")?.lines());
    let roads = report.stdout("roads under the map")?;
    facts.expect("roads: in force", &roads.contains("in force"), &true);
    let before = inventory_of(&report, "before")?;
    let under = differences(&before, &inventory_of(&report, "under the map")?);
    facts.expect("what the map changed of groups and drivers", &under, &Vec::new());
    as_before(&mut facts, &report, "after")?;
    facts.say(
        "Every driver, group, type and region was the same before, under and after the map; after `undo --all` \
         the module was unloaded and `/run/peerway` was gone.",
    );
    Ok(facts)
}
