//! P2P under translation for devices of one VFIO container, if the peer's BAR is mapped into it.

use anyhow::Result;
use peerway_lab_protocol::{Probe, Verdict};

use super::{boot, faults, inventory_of, inventory_step, probes_of, short};
use crate::lab::facts::Facts;
use crate::lab::kernel::Kernel;
use crate::lab::script;

/// Two accelerators of the other tenant.
const HELD: [&str; 2] = ["0000:81:00.0", "0000:91:00.0"];
/// Where a mapping beside the bus addresses goes: 1 GiB further.
const SHIFT: &str = "1073741824";

pub(super) fn run(kernel: &Kernel) -> Result<Facts> {
    let [first, second] = HELD;
    let holder = ["lab-vfio", first, second];
    let with = |more: &[&'static str]| {
        let mut argv = holder.to_vec();
        argv.extend(more);
        argv
    };
    let steps = vec![
        script::run("unmapped", &with(&["--copy"])),
        script::run("mapped", &with(&["--map", "--copy"])),
        script::run("elsewhere", &with(&["--shift", SHIFT, "--copy"])),
        script::start("held", &with(&["--map", "--wait"])),
        inventory_step("while held"),
        script::run(
            "from outside",
            &["lab-copy", "probe", "--from", "0000:01:00.0", "--to", first],
        ),
        script::stop("held"),
    ];
    let report = boot(kernel, "replica", steps)?;
    let mut facts = Facts::default();
    facts.say(format!("Machine `replica`, {first} and {second} held by one container:"));
    let mut rows = Vec::new();
    for (step, what, expected) in [
        ("unmapped", "no BAR mapped, raw bus addresses", Verdict::Damaged),
        ("mapped", "each BAR mapped at its own bus address", Verdict::Intact),
        ("elsewhere", "each BAR mapped 1 GiB beyond its bus address, used there", Verdict::Intact),
    ] {
        let probes = probes_of(&report, step)?;
        facts.expect(&format!("{step}: pairs"), &probes.len(), &2);
        for probe in &probes {
            facts.expect(&format!("{step}: {}", probe.from), &probe.verdict, &expected);
        }
        let count = faults(&report.outcome(step)?.kernel).len();
        facts.expect(&format!("{step}: faults"), &(count > 0), &(expected != Verdict::Intact));
        let words: Vec<String> = probes.iter().map(short).collect();
        rows.push(vec![what.to_owned(), words.join(", "), count.to_string()]);
    }
    facts.table(&["container", "copies, both directions", "fault lines"], &rows);
    let inventory = inventory_of(&report, "while held")?;
    let group = inventory.groups.iter().find(|group| group.devices.iter().any(|one| one == first));
    let kind = group.map(|group| group.kind.clone()).unwrap_or_default();
    facts.say(format!("While the container holds it, the group of {first} reads `{kind}`."));
    let outside: Probe = serde_json::from_str(report.stdout("from outside")?)?;
    facts.expect("a held memory from outside", &outside.verdict, &Verdict::Refused);
    facts.say(format!(
        "A process beside the holder that maps the same BAR through sysfs is refused: {}.",
        outside.detail
    ));
    Ok(facts)
}
