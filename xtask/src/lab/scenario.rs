//! Scenarios: what is done on a machine, and what is expected of the kernel. None of them uses the
//! product; they are what it is measured against.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Context as _, Result};
use peerway_lab_protocol::{Inventory, Outcome, Probe, Step, TypeWrite, Verdict};

use super::boot::{Boot, Report};
use super::facts::Facts;
use super::kernel::Kernel;
use super::machine::Machine;
use super::script;

mod identity;
mod inventory;
mod pairs;
pub mod peer_map;
pub(super) mod routes;
pub(super) mod sides;
mod type_rules;
mod vfio;

/// A scenario.
#[derive(Debug)]
pub struct Scenario {
    /// Its name on the command line.
    pub name: &'static str,
    /// Its heading in the facts.
    pub title: &'static str,
    /// Runs it.
    pub run: fn(&Kernel) -> Result<Facts>,
}

/// All of them, in the order of the facts.
pub const SCENARIOS: [Scenario; 7] = [
    Scenario { name: "inventory", title: "The machine", run: inventory::run },
    Scenario { name: "pairs", title: "Copies under full translation", run: pairs::run },
    Scenario { name: "identity", title: "Identity for two groups", run: identity::run },
    Scenario { name: "type-rules", title: "The rules of a group's type", run: type_rules::run },
    Scenario { name: "vfio", title: "A VFIO container", run: vfio::run },
    Scenario { name: "routes", title: "Other machines", run: routes::run },
    Scenario { name: "sides", title: "Devices beside the accelerators", run: sides::run },
];

/// The scenario of a name.
///
/// # Errors
/// Lists the names that there are.
pub fn named(name: &str) -> Result<&'static Scenario> {
    SCENARIOS.iter().find(|scenario| scenario.name == name).with_context(|| {
        let names: Vec<&str> = SCENARIOS.iter().map(|scenario| scenario.name).collect();
        format!("no scenario {name:?}; there are {}", names.join(", "))
    })
}

/// A pair that was probed, and what the kernel said meanwhile.
#[derive(Debug, Clone)]
pub(super) struct Probed {
    pub(super) probe: Probe,
    pub(super) kernel: Vec<String>,
}

/// An IOMMU fault as far as the facts need it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Fault {
    pub(super) requester: String,
    pub(super) access: &'static str,
    pub(super) address: u64,
}

/// Boots a machine of the repository with some steps.
pub(super) fn boot(kernel: &Kernel, machine: &str, steps: Vec<Step>) -> Result<Report> {
    let machine = Machine::named(machine)?;
    Boot::new(kernel, &machine).steps(steps).run()
}

/// The step that lists devices and groups.
pub(super) fn inventory_step(name: &str) -> Step {
    script::run(name, &["lab-sysfs", "inventory"])
}

/// What that step printed.
pub(super) fn inventory_of(report: &Report, name: &str) -> Result<Inventory> {
    serde_json::from_str(report.stdout(name)?).context("cannot understand the inventory")
}

/// The step that copies between every ordered pair at once.
pub(super) fn matrix_step(name: &str) -> Step {
    script::run(name, &["lab-copy", "matrix"])
}

/// All probe lines that a step printed.
pub(super) fn probes_of(report: &Report, name: &str) -> Result<Vec<Probe>> {
    let lines = report.stdout(name)?.lines().filter(|line| !line.contains("\"ready\""));
    lines.map(|line| serde_json::from_str(line).context("cannot understand a probe")).collect()
}

/// Steps that copy between pairs, one after the other.
pub(super) fn probe_steps<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<Step> {
    let step = |(from, to)| {
        let argv = ["lab-copy", "probe", "--from", from, "--to", to];
        script::run(&format!("{from} {to}"), &argv)
    };
    pairs.into_iter().map(step).collect()
}

/// What those steps printed.
pub(super) fn probed(report: &Report) -> Result<Vec<Probed>> {
    let mut found = Vec::new();
    for outcome in report.outcomes.iter().filter(|outcome| outcome.name.contains(' ')) {
        let probe = serde_json::from_str(report.stdout(&outcome.name)?)?;
        found.push(Probed { probe, kernel: outcome.kernel.clone() });
    }
    Ok(found)
}

/// Every ordered pair of some addresses.
pub(super) fn ordered_pairs<'a>(addresses: &[&'a str]) -> Vec<(&'a str, &'a str)> {
    let all = addresses.iter().flat_map(|from| addresses.iter().map(move |to| (*from, *to)));
    all.filter(|(from, to)| from != to).collect()
}

/// The write to a group's `type` that a step printed.
pub(super) fn type_write(outcome: &Outcome) -> Result<TypeWrite> {
    serde_json::from_str(&outcome.stdout)
        .with_context(|| format!("step {:?}: {}", outcome.name, outcome.stderr.trim()))
}

/// Whether a kernel is older than `major.minor`.
pub(super) fn older_than(kernel: &Kernel, major: u32, minor: u32) -> bool {
    let mut numbers = kernel.release.split(['.', '-', '+']).map(|part| part.parse().unwrap_or(0));
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) < (major, minor)
}

/// A matrix as a table: requesters down, targets across.
pub(super) fn matrix_table(facts: &mut Facts, probes: &[Probe]) {
    let names: BTreeSet<&str> = probes.iter().map(|probe| probe.from.as_str()).collect();
    let cell: BTreeMap<(&str, &str), String> = probes
        .iter()
        .map(|probe| ((probe.from.as_str(), probe.to.as_str()), short(probe)))
        .collect();
    let short_name = |name: &str| name.trim_start_matches("0000:").to_owned();
    let heads: Vec<String> = names.iter().map(|name| short_name(name)).collect();
    let mut head = vec!["from \\ to"];
    head.extend(heads.iter().map(String::as_str));
    let rows: Vec<Vec<String>> = names
        .iter()
        .map(|from| {
            let cells = names
                .iter()
                .map(|to| cell.get(&(*from, *to)).cloned().unwrap_or_else(|| "–".to_owned()));
            std::iter::once(short_name(from)).chain(cells).collect()
        })
        .collect();
    facts.table(&head, &rows);
}

/// A verdict in one word: the damage says more than `damaged`.
pub(super) fn short(probe: &Probe) -> String {
    let word = |value: serde_json::Result<serde_json::Value>| {
        value.ok().and_then(|value| value.as_str().map(str::to_owned)).unwrap_or_default()
    };
    match probe.damage {
        Some(damage) => word(serde_json::to_value(damage)),
        None => word(serde_json::to_value(probe.verdict)),
    }
}

/// Requesters all of whose copies arrived, and those none of whose did.
pub(super) fn by_requester(probes: &[Probe]) -> BTreeMap<String, BTreeSet<bool>> {
    let mut found: BTreeMap<String, BTreeSet<bool>> = BTreeMap::new();
    for probe in probes {
        found.entry(probe.from.clone()).or_default().insert(probe.verdict == Verdict::Intact);
    }
    found
}

/// Faults in kernel lines, in the shapes that the kernels of the matrix print.
pub(super) fn faults(lines: &[String]) -> Vec<Fault> {
    lines.iter().filter_map(|line| intel_fault(line).or_else(|| amd_fault(line))).collect()
}

/// The emulated AMD unit says device 0000:00:00.0 and address 0, whoever asked for what.
fn amd_fault(line: &str) -> Option<Fault> {
    let (before, rest) = line.split_once("AMD-Vi: Event logged [IO_PAGE_FAULT ")?;
    let field = |name: &str| rest.split([' ', ']']).find_map(|word| word.strip_prefix(name));
    let device = field("device=").or_else(|| before.trim_end_matches(": ").rsplit(' ').next())?;
    let number = |text: &str| u64::from_str_radix(text.trim_start_matches("0x"), 16).ok();
    // Bit RW of the event (AMD I/O virtualization specification, IO_PAGE_FAULT).
    let writes = number(field("flags=")?)? & 0x20 != 0;
    Some(Fault {
        requester: device.to_owned(),
        access: if writes { "write" } else { "read" },
        address: number(field("address=")?)?,
    })
}

fn intel_fault(line: &str) -> Option<Fault> {
    let rest = line.strip_prefix("DMAR: [DMA ")?;
    let access = if rest.starts_with("Read") { "read" } else { "write" };
    let (_, rest) = rest.split_once("Request device [")?;
    let (device, rest) = rest.split_once(']')?;
    let (_, rest) = rest.split_once("fault addr ")?;
    let address = rest.split_whitespace().next()?.trim_start_matches("0x");
    let domain = if device.matches(':').count() == 1 { "0000:" } else { "" };
    Some(Fault {
        requester: format!("{domain}{device}"),
        access,
        address: u64::from_str_radix(address, 16).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str, expected: Option<(&str, &str, u64)>) {
        let found = faults(&[line.to_owned()]);
        let found = found.first().map(|one| (one.requester.as_str(), one.access, one.address));
        assert_eq!(found, expected);
    }

    #[test]
    fn faults_of_every_kernel_are_read() {
        check(
            "DMAR: [DMA Read] Request device [05:00.0] PASID ffffffff fault addr e0000000 [fault reason 06] x",
            Some(("0000:05:00.0", "read", 0xe000_0000)),
        );
        check(
            "DMAR: [DMA Write NO_PASID] Request device [05:00.0] fault addr 0x180000000 [fault reason 0x05] x",
            Some(("0000:05:00.0", "write", 0x1_8000_0000)),
        );
        check(
            "DMAR: [DMA Read NO_PASID] Request device [0000:05:00.0] fault addr 0xe0000000 [fault reason 0x06] x",
            Some(("0000:05:00.0", "read", 0xe000_0000)),
        );
        check("DMAR: DRHD: handling fault status reg 2", None);
        check(
            "pci 0000:00:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0003 address=0x400000 flags=0x0020]",
            Some(("0000:00:00.0", "write", 0x40_0000)),
        );
        check(
            "AMD-Vi: Event logged [IO_PAGE_FAULT device=0000:05:00.0 domain=0x0003 address=0x400000 flags=0x0000]",
            Some(("0000:05:00.0", "read", 0x40_0000)),
        );
    }
}
