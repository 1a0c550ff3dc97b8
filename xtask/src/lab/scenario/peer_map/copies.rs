//! Copies between all pairs of a tenant: lost without the map, intact under it, lost again after it.

use anyhow::Result;
use peerway_lab_protocol::{Step, Verdict};

use super::super::{inventory_of, inventory_step, matrix_step, probes_of};
use super::{
    ALL, Facts, PAGES, Proof, Report, TENANT, faults, held, judge_probe, lines, matrix_table,
    probe_step, shell,
};

/// Longer than the kernel's limit on the rate of fault lines, so that the next fault is logged.
const QUIET: &str = "sleep 6";

/// A read of the host's own memory, which the driver never gave to the device.
const MEMORY: &str = "01 to memory of the host";
/// Its address: 256 MiB, within any machine's.
const RAM: &str = "268435456";

/// A walk over all of every accelerator's memory in every accelerator's domain: 64 times half a million pages.
fn everywhere(name: &str) -> Step {
    Step { deadline_ms: 600_000, ..shell(name, &format!("everywhere {}", ALL.join(" "))) }
}

fn steps() -> Vec<Step> {
    let all = TENANT.join(" ");
    vec![
        inventory_step("inventory before"),
        everywhere("everywhere before"),
        probe_step("01 to 11, before", "01", "11"),
        matrix_step("matrix before"),
        shell("map", &format!("each map {all}")),
        shell("state", "state"),
        everywhere("everywhere under the map"),
        shell("verify", "say verify"),
        inventory_step("inventory under the map"),
        shell("quiet 1", QUIET),
        probe_step("01 to 11, mapped", "01", "11"),
        probe_step("01 to 81, not mapped", "01", "81"),
        shell(MEMORY, &format!("{QUIET}; lab-copy reach --from 0000:01:00.0 --offset {RAM}")),
        matrix_step("matrix under the map"),
        shell(
            "unload in use",
            "rmmod peerway_map 2>/dev/null; echo $?; grep peerway_map /proc/modules; true",
        ),
        shell("unmap", &format!("each unmap {all}")),
        shell("state after", "state"),
        everywhere("everywhere after"),
        shell("quiet 2", QUIET),
        probe_step("01 to 11, after", "01", "11"),
        matrix_step("matrix after"),
        inventory_step("inventory after"),
        shell("unload", "rmmod peerway_map; echo $?"),
    ]
}

pub(super) fn prove(proof: &Proof<'_>, facts: &mut Facts) -> Result<()> {
    let report = proof.boot("large", steps(), facts)?;
    facts.say(
        "Machine `large`: memories of 2 GiB above 4 GiB, each accelerator under its own host bridge. \
         Every ordered pair of the first four (the tenant's) is mapped, whole BARs. Before each copy \
         the destination is poisoned, and the verdict comes from the target's side.",
    );
    matrices(facts, &report)?;
    single_copies(facts, &report)?;
    pages_and_entries(facts, &report)
}

fn matrices(facts: &mut Facts, report: &Report) -> Result<()> {
    for (name, title, mapped) in [
        ("matrix before", "Before:", false),
        ("matrix under the map", "Under the map:", true),
        ("matrix after", "After the unmap:", false),
    ] {
        facts.say(title);
        let probes = probes_of(report, name)?;
        facts.expect(&format!("{name}: pairs"), &probes.len(), &56);
        let ours = |address: &str| address.get(5..7).is_some_and(|bus| TENANT.contains(&bus));
        for probe in &probes {
            let arrives = mapped && ours(&probe.from) && ours(&probe.to);
            let what = format!("{name}: {} to {}: arrives", probe.from, probe.to);
            facts.expect(&what, &(probe.verdict == Verdict::Intact), &arrives);
        }
        matrix_table(facts, &probes);
    }
    Ok(())
}

fn single_copies(facts: &mut Facts, report: &Report) -> Result<()> {
    let mut rows = Vec::new();
    for (name, arrives) in [
        ("01 to 11, before", false),
        ("01 to 11, mapped", true),
        ("01 to 81, not mapped", false),
        ("01 to 11, after", false),
    ] {
        rows.push(judge_probe(facts, report, name, arrives, Some(!arrives))?);
    }
    let kernel = &report.outcome(MEMORY)?.kernel;
    let seen: Vec<String> = faults(kernel)
        .iter()
        .map(|fault| format!("{} {} at {:#x}", fault.requester, fault.access, fault.address))
        .collect();
    facts.expect(&format!("{MEMORY}: faults logged"), &seen.is_empty(), &false);
    rows.insert(3, vec![MEMORY.to_owned(), "read only".to_owned(), seen.join(", ")]);
    facts.say("Single copies, and the faults that the kernel logged meanwhile:");
    facts.table(&["copy", "verdict", "faults"], &rows);
    Ok(())
}

fn pages_and_entries(facts: &mut Facts, report: &Report) -> Result<()> {
    for line in lines(report, "map")? {
        facts.expect("map", &line.starts_with("done mapped 0 "), &true);
    }
    for line in lines(report, "unmap")? {
        facts.expect("unmap", &line.starts_with("done unmapped 0 "), &true);
    }
    facts.expect("entries", &held(report, "state")?, &Some(12));
    facts.expect("entries after", &held(report, "state after")?, &Some(0));
    facts.expect("verify", &report.stdout("verify")?.starts_with("done verified 0 "), &true);
    for (name, mapped) in
        [("everywhere before", 0), ("everywhere under the map", PAGES), ("everywhere after", 0)]
    {
        expect_everywhere(facts, report, name, mapped)?;
    }
    let before = inventory_of(report, "inventory before")?;
    for name in ["inventory under the map", "inventory after"] {
        facts.expect(
            &format!("{name}: nothing else changed"),
            &inventory_of(report, name)?,
            &before,
        );
    }
    let unload = lines(report, "unload in use")?;
    facts.expect("unload in use", &unload.first(), &Some(&"1"));
    facts.expect("unload", &report.stdout("unload")?.trim(), &"0");
    facts.say("The module's own words with all entries live:");
    facts.quote(lines(report, "state")?);
    let seconds = |name: &str| -> Result<String> {
        Ok(format!(
            "{:.1} s",
            f64::from(u32::try_from(report.outcome(name)?.milliseconds)?) / 1000.0
        ))
    };
    facts.say(format!(
        "Group types, members, drivers and BARs were the same before, under and after the map. A walk \
         over every page of all eight memories in the domains of all eight requesters found none translated \
         before, all {PAGES} of each of the tenant's twelve pairs and no other one under the map, none after. Unloading failed while entries were live and worked afterwards. \
         Mapping twelve ranges of 2 GiB took {}, unmapping them {} (emulated processor; nearly all of \
         it is looking at every page).",
        seconds("map")?,
        seconds("unmap")?
    ));
    Ok(())
}

/// Expects the pages of the tenant's pairs, each mapped to itself, and no other one in any domain.
fn expect_everywhere(facts: &mut Facts, report: &Report, name: &str, mapped: u64) -> Result<()> {
    let intended =
        |from: &str, to: &str| from != to && TENANT.contains(&from) && TENANT.contains(&to);
    let mut expected = Vec::new();
    for from in ALL {
        for to in ALL {
            let pages = if intended(from, to) { mapped } else { 0 };
            expected.push(format!("{from} {to} mapped {pages} same {pages}"));
        }
    }
    facts.expect(
        &format!("{name}: pages"),
        &lines(report, name)?,
        &expected.iter().map(String::as_str).collect(),
    );
    Ok(())
}
