//! Live entries and everything that can happen to the two devices, to the process and to the module.

use anyhow::Result;

use super::{
    Facts, Proof, Report, Step, ended, expect_walks, held, judge_probe, lines, probe_step, shell,
};
use crate::lab::script;

/// Both directions, so that each device is requester and target.
const BOTH: &str = "each map 01 11 61";
const WALK: &str = "walks 01 11 61";
const HOLDER: &str = "exec 3<>$MAP; echo hold >&3; \
    echo 'map 0000:01:00.0 0000:11:00.1 2 0 0x80000000 0000:01:00.1' >&3; state; read x";

/// What can happen to the devices.
fn device_steps() -> Vec<Step> {
    let walk = WALK;
    vec![
        shell("walk first", walk),
        // The target's function, then the requester's.
        shell("map 1", BOTH),
        shell(
            "unbind target",
            "lab-sysfs unbind 0000:11:00.1 && state && walk 01 11 && walk 61 11",
        ),
        shell("unbind requester", "lab-sysfs unbind 0000:01:00.0 && state && walk 01 61"),
        shell("map unbound", "entry map 01 11"),
        shell(
            "bind again",
            "lab-sysfs bind 0000:11:00.1 uio_pci_generic && lab-sysfs bind 0000:01:00.0 uio_pci_generic; say clear",
        ),
        shell("walk 1", walk),
        // A type change, once all is unbound, while other requesters' entries live.
        shell("map 2", "entry map 61 11; entry map 11 61"),
        shell("type change with the driver bound", "lab-sysfs set-type 0000:61:00.0 identity"),
        shell("state 2", "state"),
        shell(
            "type change unbound",
            "lab-sysfs unbind 0000:61:00.0 && lab-sysfs unbind 0000:61:00.1 && \
             lab-sysfs set-type 0000:61:00.0 identity; state; \
             lab-sysfs set-type 0000:61:00.0 DMA-FQ; \
             lab-sysfs bind 0000:61:00.0 uio_pci_generic && lab-sysfs bind 0000:61:00.1 uio_pci_generic",
        ),
        shell("walk 2", walk),
        // Removal and rescan.
        shell("map 3", BOTH),
        shell(
            "remove",
            "echo 1 >/sys/bus/pci/devices/0000:11:00.1/remove; \
             echo 1 >/sys/bus/pci/devices/0000:11:00.0/remove; state; walk 01 11; walk 61 11",
        ),
        shell(
            "rescan",
            "echo 1 >/sys/bus/pci/rescan; lab-sysfs bind 0000:11:00.0 uio_pci_generic && \
             lab-sysfs bind 0000:11:00.1 uio_pci_generic; rm -f /tmp/range-11; say clear",
        ),
        shell("walk 3", walk),
        shell("map 4", "entry map 01 11"),
        probe_step("01 to 11, after removal, rescan and a new map", "01", "11"),
        shell("clear", "say clear"),
    ]
}

/// What can happen to the process and the module.
fn process_steps() -> Vec<Step> {
    let walk = WALK;
    vec![
        // A process that ends, and one that is killed, with entries held through its file.
        script::start("holder", &["sh", "-c", &format!(". /lab/peer-map.sh; {HOLDER}")]),
        probe_step("01 to 11, held by a process", "01", "11"),
        script::stop("holder"),
        shell("after its end", "state; walk 01 11"),
        shell(
            "killed",
            "(exec 3<>$MAP; echo hold >&3; echo 'map 0000:01:00.0 0000:11:00.1 2 0 0x80000000 0000:01:00.1' >&3; \
             while :; do sleep 1 3>&-; done) & sleep 1; state; kill -9 $!; wait $!; state; walk 01 11",
        ),
        shell(
            "killed at any time",
            "for n in 1 2 3 4 5 6 7 8; do (while :; do entry map 01 11; entry unmap 01 11; done) >/dev/null & \
             p=$!; sleep 0.$n; kill -9 $p; wait $p; done 2>/dev/null; say clear; state; walk 01 11",
        ),
        // The DMA API at work on the requester all the while.
        shell(
            "stress",
            "dma 'mask 0000:01:00.0 64' >/dev/null; echo 'stress 0000:01:00.0 3' >/dev/lab-dma; n=0; \
             end=$(($(date +%s) + 10)); while [ $(date +%s) -lt $end ]; do \
             entry map 01 11 >>/tmp/s; say verify >>/tmp/s; entry unmap 01 11 >>/tmp/s; n=$((n + 1)); done; \
             echo stop >/dev/lab-dma; echo cycles $n; cat /dev/lab-dma; cut -d' ' -f1-3 /tmp/s | sort | uniq -c; \
             dma 'mask 0000:01:00.0 32' >/dev/null; walk 01 11",
        ),
        shell("state last", "state"),
        shell("unload", "rmmod peerway_map; echo $?; ls /dev/peerway-map 2>&1 | wc -l"),
        shell("walk last", walk),
    ]
}

pub(super) fn prove(proof: &Proof<'_>, facts: &mut Facts) -> Result<()> {
    let steps = device_steps().into_iter().chain(process_steps()).collect();
    let report = proof.boot("large", steps, facts)?;
    devices(facts, &report)?;
    processes(facts, &report)?;
    stress(facts, &report)
}

fn devices(facts: &mut Facts, report: &Report) -> Result<()> {
    let mut rows = Vec::new();
    for (name, what, left) in [
        ("unbind target", "six entries among three accelerators; 11:00.1, a target, is unbound", 4),
        ("unbind requester", "then 01:00.0, a requester, is unbound", 3),
        ("state 2", "the type of a live requester's group is written: refused by the kernel", 2),
        ("remove", "six entries; both functions of 11:00 are removed", 2),
        ("state last", "in the end", 0),
    ] {
        let found = held(report, name)?;
        facts.expect(&format!("{name}: entries left"), &found, &Some(left));
        rows.push(vec![what.to_owned(), found.map_or_else(String::new, |n| n.to_string())]);
    }
    facts.table(&["what happened", "entries left"], &rows);
    let unbound = report.stdout("map unbound")?;
    facts.expect("map of an unbound requester", &unbound.starts_with("refused unbound "), &true);
    for name in ["walk first", "walk 2", "walk last"] {
        expect_walks(facts, report, name, 0)?;
    }
    for (name, count) in
        [("unbind target", 2), ("unbind requester", 1), ("remove", 2), ("killed", 1)]
    {
        let walks = lines(report, name)?;
        let none = walks.iter().filter(|line| line.ends_with(" mapped 0 same 0")).count();
        facts.expect(&format!("{name}: ranges that are empty"), &none, &count);
    }
    for name in ["walk 1", "walk 3"] {
        expect_walks(facts, report, name, 0)?;
    }
    let bound = report.outcome("type change with the driver bound")?;
    facts.expect("type change: answer", &bound.stdout.contains("\"result\":\"ok\""), &false);
    let mut copies = Vec::new();
    for name in ["01 to 11, after removal, rescan and a new map", "01 to 11, held by a process"] {
        copies.push(judge_probe(facts, report, name, true, Some(false))?);
    }
    facts.table(&["copy", "verdict", "faults"], &copies);
    Ok(())
}

fn processes(facts: &mut Facts, report: &Report) -> Result<()> {
    for name in ["after its end", "killed at any time"] {
        facts.expect(&format!("{name}: entries"), &held(report, name)?, &Some(0));
        facts.expect(
            &format!("{name}: pages"),
            &report.stdout(name)?.contains(" mapped 0 same 0"),
            &true,
        );
    }
    let unload = lines(report, "unload")?;
    facts.expect("unload", &unload, &vec!["0", "1"]);
    facts.say(
        "A process that held an entry through its open file ended, another was killed with signal 9, \
         and eight were killed in the middle of mapping and unmapping (then `clear`): no entry and no \
         page was left. A walk over every page after each of these found the ranges empty.",
    );
    Ok(())
}

fn stress(facts: &mut Facts, report: &Report) -> Result<()> {
    facts.say(format!(
        "Ten seconds of mapping, verifying and unmapping 2 GiB while three kernel threads mapped and \
         unmapped memory of the requester with the DMA API ({}):",
        ended(report.outcome("stress")?)
    ));
    let stress = lines(report, "stress")?;
    facts.expect(
        "stress: DMA API",
        &stress.iter().any(|l| l.contains("failures 0 wrong 0")),
        &true,
    );
    let refused = stress.iter().any(|line| line.contains("refused"));
    facts.expect("stress: refused", &refused, &false);
    facts.expect("stress: pages", &stress.last(), &Some(&"01 11 mapped 0 same 0"));
    facts.quote(stress);
    Ok(())
}
