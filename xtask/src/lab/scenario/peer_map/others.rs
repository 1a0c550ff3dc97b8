//! Machines without translation, memories below 4 GiB, and the DMA API's own choice of addresses.

use anyhow::Result;

use peerway_lab_protocol::Step;

use super::{Facts, Proof, judge_probe, lines, probe_step, shell};
use crate::lab::machine::Machine;
use crate::lab::platform::Iommu;

/// 1 MiB, the size of the small machines' memories.
const SMALL: &str = "0x100000";
/// The step that makes the kernel complain, on purpose.
pub(super) const PROVOKED: &str = "collide foreign";

pub(super) fn prove(proof: &Proof<'_>, facts: &mut Facts) -> Result<()> {
    untranslated(proof, facts)?;
    if proof.kernel.platform.iommu == Iommu::Intel {
        narrow(proof, facts)?;
    }
    small(proof, facts)
}

/// An IOMMU of 39 bits, and one of two memories beyond them.
fn narrow(proof: &Proof<'_>, facts: &mut Facts) -> Result<()> {
    let steps =
        ["11 12", "12 11"].map(|pair| shell(pair, &format!("MEMORY=4096; entry map {pair}")));
    let steps = steps.into_iter().chain([shell("clear", "say clear")]).collect();
    let report = proof.boot("narrow", steps, facts)?;
    let mut codes = Vec::new();
    let mut rows = Vec::new();
    for pair in ["11 12", "12 11"] {
        let line = report.stdout(pair)?.trim();
        let code = line.split(' ').nth(1).unwrap_or_default();
        codes.push(code);
        rows.push(vec![pair.replace(' ', " to "), format!("`{code}`"), line.to_owned()]);
    }
    codes.sort_unstable();
    facts.expect("narrow: codes", &codes, &vec!["mapped", "outside-aperture"]);
    facts.say("Machine `narrow`: memories of 256 GiB, one of which lies beyond the IOMMU's 39 bits of address.");
    facts.table(&["from, to", "code", "the module's answer"], &rows);
    Ok(())
}

fn untranslated(proof: &Proof<'_>, facts: &mut Facts) -> Result<()> {
    let mut rows = Vec::new();
    for (machine, code) in [("passthrough", "not-translating"), ("iommu-off", "no-group")] {
        let report = proof.boot(
            machine,
            vec![shell("map", &format!("MEMORY={SMALL}; entry map 01 11"))],
            facts,
        )?;
        let line = report.stdout("map")?.trim();
        let found = line.strip_prefix("refused ").and_then(|rest| rest.split(' ').next());
        facts.expect(&format!("{machine}: code"), &found, &Some(code));
        rows.push(vec![format!("`{machine}`"), format!("`{code}`"), line.to_owned()]);
    }
    facts.table(&["machine", "code", "the module's answer"], &rows);
    Ok(())
}

/// Machine whose ports 11 and 12 have no ACS, and the one for emulators that cannot play it.
const MACHINES: [&str; 2] = ["no-acs", "beside"];

/// The root port is in the requester's group where it has no ACS.
fn port_steps() -> Vec<Step> {
    let map = "say 'map 0000:11:00.0 0000:12:00.1 2 0 0x100000 0000:11:00.1";
    vec![
        shell("port not named", &format!("{map}'")),
        shell("port named", &format!("{map} 0000:10:00.0'")),
    ]
}

fn small_steps(ports: bool) -> Vec<Step> {
    let foreign = "echo \"raw-map 0000:61:00.0 $(range 11)\" >/dev/lab-dma && walk 61 11";
    let mut steps = vec![
        shell("map foreign", &format!("MEMORY={SMALL}; entry map 61 11")),
        shell("map own", &format!("MEMORY={SMALL}; entry map 61 62")),
        probe_step("61 to 62, same host bridge, below 4 GiB", "61", "62"),
    ];
    steps.extend(if ports { port_steps() } else { Vec::new() });
    steps.extend([
        shell("collide own", "dma \"collide 0000:61:00.0 $(range 62)\"; walk 61 62; say verify"),
        probe_step("61 to 62, after the DMA API's requests", "61", "62"),
        shell("map by the lab", foreign),
        probe_step("61 to 11, mapped by the lab's module", "61", "11"),
        shell(PROVOKED, "dma \"collide 0000:61:00.0 $(range 11)\"; walk 61 11"),
        probe_step("61 to 11, after the DMA API's requests", "61", "11"),
        shell("clear", "say clear; walk 61 62; rmmod peerway_map; echo $?"),
    ]);
    steps
}

/// Memories of 1 MiB below 4 GiB: 61 and 62 share a host bridge, 11 is under another one.
fn small(proof: &Proof<'_>, facts: &mut Facts) -> Result<()> {
    let [without, with] = MACHINES;
    let ports = Machine::named(without)?.fits(proof.kernel.platform.emulator);
    let machine = if ports { without } else { with };
    let report = proof.boot(machine, small_steps(ports), facts)?;
    let begins = |facts: &mut Facts, name: &str, start: &str| -> Result<()> {
        let line = report.stdout(name)?.trim();
        if !line.starts_with(start) {
            facts.expect(name, &line, &start);
        }
        Ok(())
    };
    begins(facts, "map foreign", "refused below-4g 99 ")?;
    begins(facts, "map own", "done mapped 0 ")?;
    if ports {
        begins(facts, "port not named", "refused group-member-not-named 87 ")?;
        begins(facts, "port named", "done mapped 0 ")?;
    }
    begins(facts, "collide own", "none after ")?;
    let own = lines(&report, "collide own")?;
    facts.expect("own: pages", &own.get(1), &Some(&"61 62 mapped 256 same 256"));
    facts.expect("own: verify", &own.get(2).is_some_and(|l| l.starts_with("done verified")), &true);
    let named = if ports {
        "; a port that shares the requester's group must be named like any other member"
    } else {
        ""
    };
    facts.say(format!(
        "Machine `{machine}`, memories of 1 MiB below 4 GiB. The module refuses a peer under another host \
         bridge (`below-4g`) and maps one under the requester's own{named}. Then the DMA API was asked for \
         1 MiB after 1 MiB:"
    ));
    let foreign = lines(&report, PROVOKED)?;
    let rows = vec![
        vec!["the requester's own host bridge, mapped by the peer map".to_owned(), own.join("; ")],
        vec!["another host bridge, mapped by the lab's module".to_owned(), foreign.join("; ")],
    ];
    facts
        .table(&["where the live range lies", "the DMA API's requests, and the pages then"], &rows);
    facts.expect("foreign: asked", &foreign.len(), &2);
    let said = &report.outcome(PROVOKED)?.kernel;
    let warned = said.iter().filter(|line| line.contains("WARNING")).count();
    let first = said.iter().find(|line| line.contains("ERROR") || line.contains("WARNING"));
    facts.say(match first {
        Some(first) => {
            format!("During the second the kernel warned {warned} times; first: `{first}`.")
        }
        None => "During the second the kernel said nothing.".to_owned(),
    });
    let mut copies = Vec::new();
    for name in
        ["61 to 62, same host bridge, below 4 GiB", "61 to 62, after the DMA API's requests"]
    {
        copies.push(judge_probe(facts, &report, name, true, Some(false))?);
    }
    copies.push(judge_probe(facts, &report, "61 to 11, mapped by the lab's module", true, None)?);
    // Whether the range that nobody should have mapped survives is the kernel's business, and shown.
    let survived = foreign.get(1).is_some_and(|line| line.ends_with("mapped 256 same 256"));
    let name = "61 to 11, after the DMA API's requests";
    copies.push(judge_probe(facts, &report, name, survived, None)?);
    facts.table(&["copy", "verdict", "faults"], &copies);
    let end = lines(&report, "clear")?;
    facts.expect("clear", &end.get(1), &Some(&"61 62 mapped 0 same 0"));
    facts.expect("unload", &end.get(2), &Some(&"0"));
    Ok(())
}
