//! The replica under full translation, with a VFIO container, and with identity for two groups.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;
use peerway_lab_protocol::{Probe, Step, Verdict};

use super::super::boot::Report;
use super::super::facts::Facts;
use super::super::kernel::Kernel;
use super::super::machine::Machine;
use super::super::platform::Iommu;
use super::super::scenario::{
    inventory_of, inventory_step, matrix_step, older_than, probes_of, type_write,
};
use super::super::script;
use super::agreement::{Counts, compare, held};
use super::document::{self, Diagnosis, Scan};
use super::{boot, diagnoses, product_step};

/// The requesters whose groups are changed.
const CHANGED: [&str; 2] = ["0000:11:00.0", "0000:61:00.0"];
/// The one of the machine with slots apart.
const CHANGED_SEPARATE: [&str; 1] = ["0000:11:00.0"];
/// Two of the other tenant, in one container.
const CONTAINER: [&str; 2] = ["0000:81:00.0", "0000:91:00.0"];

/// What is expected of one machine, within tenants and in all.
struct Expected {
    translated: [Counts; 2],
    changed: [Counts; 2],
}

pub(super) fn run(kernel: &Kernel) -> Result<Facts> {
    let mut facts = Facts::default();
    let expected = Expected {
        translated: [counts(0, 12, 12), counts(0, 28, 28)],
        changed: [counts(6, 6, 12), counts(14, 14, 28)],
    };
    // A group of two functions can be changed from 6.4 on only.
    let changed: &[&str] = if older_than(kernel, 6, 4) { &[] } else { &CHANGED };
    let report = one(kernel, &mut facts, "replica", changed, &expected)?;
    container(&mut facts, &report)?;
    Ok(facts)
}

/// The machine on which kernels before 6.4 can change a group; later ones show it on the replica.
pub(super) fn separate(kernel: &Kernel) -> Result<Facts> {
    let mut facts = Facts::default();
    let expected = Expected {
        translated: [counts(0, 2, 2), counts(0, 6, 6)],
        changed: [counts(1, 1, 2), counts(3, 3, 6)],
    };
    let changed: &[&str] = if older_than(kernel, 5, 11) { &[] } else { &CHANGED_SEPARATE };
    one(kernel, &mut facts, "separate", changed, &expected)?;
    Ok(facts)
}

fn counts(works: usize, broken: usize, unknown: usize) -> Counts {
    Counts { works, broken, unknown, in_switch: 0 }
}

fn one(
    kernel: &Kernel,
    facts: &mut Facts,
    name: &str,
    changed: &[&str],
    expected: &Expected,
) -> Result<Report> {
    let machine = Machine::named(name)?;
    let mut steps = vec![inventory_step("inventory"), product_step("scan", &["scan"], &[])];
    steps.extend(diagnoses("translated", &[]));
    steps.push(matrix_step("translated"));
    if name == "replica" {
        steps.extend(container_steps());
    }
    for engine in changed {
        steps.extend(identity(&machine, engine));
    }
    if !changed.is_empty() {
        steps.extend(diagnoses("changed", &[]));
        steps.push(matrix_step("changed"));
    }
    let report = boot(kernel, &machine)?.steps(steps).run()?;
    facts.say(format!("Machine `{name}`: {}.", machine.summary));
    inventory(facts, kernel, name, &report)?;
    verdicts(facts, &machine, &report, "translated", &expected.translated)?;
    for engine in changed {
        let write = type_write(report.outcome(&format!("type {engine}"))?)?;
        facts.expect(&format!("{name}: write for {engine}"), &write.result.as_str(), &"ok");
    }
    if changed.is_empty() {
        facts.say("This kernel changes no group of this machine: identity was not tried on it.");
    } else {
        facts.say(format!("After `identity` for the groups of {}:", changed.join(" and ")));
        verdicts(facts, &machine, &report, "changed", &expected.changed)?;
        let said: Diagnosis = document::of(&report, "changed all")?;
        for pair in said.pairs.iter().filter(|pair| pair.verdict == "works") {
            let what = format!("{name}: {} works and was changed", pair.from);
            facts.expect(&what, &changed.contains(&pair.from.as_str()), &true);
        }
    }
    Ok(report)
}

/// Holds both diagnoses of a stage against its matrix.
fn verdicts(
    facts: &mut Facts,
    machine: &Machine,
    report: &Report,
    stage: &str,
    expected: &[Counts; 2],
) -> Result<()> {
    let (matrix, held) = (probes_of(report, stage)?, held(machine));
    for (scope, expected) in ["own", "all"].into_iter().zip(expected) {
        let step = format!("{stage} {scope}");
        let found = compare(facts, &machine.name, report, &step, &matrix, &held)?;
        facts.expect(&format!("{}: verdicts of {step}", machine.name), &found, expected);
    }
    let all: Diagnosis = document::of(report, &format!("{stage} all"))?;
    facts.expect(&format!("{stage}: every copy has a verdict"), &all.pairs.len(), &matrix.len());
    let own: Diagnosis = document::of(report, &format!("{stage} own"))?;
    for pair in own.pairs.iter().filter(|pair| pair.verdict == "broken") {
        let what = format!("{stage}: code of {} to {}", pair.from, pair.to);
        facts.expect(&what, &pair.codes.first().map(String::as_str), &Some("PW0201"));
    }
    Ok(())
}

/// Unbinds an accelerator's slot, writes `identity` to its group, and binds it again.
fn identity(machine: &Machine, engine: &str) -> Vec<Step> {
    let slot = engine.split('.').next().unwrap_or(engine);
    let members: Vec<String> = machine
        .bindings()
        .into_iter()
        .map(|binding| binding.address)
        .filter(|address| address.starts_with(slot))
        .collect();
    let each = |verb: &str| {
        let step = |member: &String| {
            let mut argv = vec!["lab-sysfs", verb, member.as_str()];
            argv.extend((verb == "bind").then_some("uio_pci_generic"));
            script::run(&format!("{verb} {member}"), &argv)
        };
        members.iter().map(step).collect::<Vec<Step>>()
    };
    let name = format!("type {engine}");
    let write = script::run(&name, &["lab-sysfs", "set-type", engine, "identity"]);
    [each("unbind"), vec![write], each("bind")].concat()
}

/// The product's inventory against that of the guest's kernel.
fn inventory(facts: &mut Facts, kernel: &Kernel, name: &str, report: &Report) -> Result<()> {
    let vendor = match kernel.platform.iommu {
        Iommu::Intel => "intel",
        Iommu::Amd => "amd",
    };
    let truth = inventory_of(report, "inventory")?;
    let said: Scan = document::of(report, "scan")?;
    facts.expect(&format!("{name}: gaps"), &said.gaps.len(), &0);
    facts.expect(&format!("{name}: IOMMU"), &said.iommu.vendor.as_deref(), &Some(vendor));
    facts.expect(&format!("{name}: IOMMU"), &said.iommu.state.as_str(), &"on");
    let tenants: BTreeMap<&str, &Vec<String>> =
        said.tenants.iter().map(|tenant| (tenant.id.as_str(), &tenant.devices)).collect();
    facts.expect(&format!("{name}: tenants"), &tenants.keys().copied().collect(), &vec!["host"]);
    let mut rows = Vec::new();
    for device in &said.devices {
        let found = truth.devices.iter().find(|one| one.address == device.address);
        let what = |field: &str| format!("{name}: {field} of {}", device.address);
        facts.expect(&what("existence"), &found.is_some(), &true);
        let Some(found) = found else { continue };
        let id = [&device.vendor, &device.model]
            .map(|id| id.as_deref().unwrap_or_default().trim_start_matches("0x").to_owned())
            .join(":");
        facts.expect(&what("numbers"), &id, &found.id);
        facts.expect(&what("driver"), &device.driver, &found.driver);
        facts.expect(&what("group"), &device.group, &found.group);
        let node = device.numa_node.map_or(-1, i64::from);
        facts.expect(&what("NUMA node"), &node, &found.numa_node);
        // An idle device of VFIO is nobody's; the others are the host's.
        let tenant = (device.driver.as_deref() != Some("vfio-pci")).then_some("host");
        if device.driver.is_some() {
            facts.expect(&what("tenant"), &device.tenant.as_deref(), &tenant);
        }
        rows.push(vec![
            device.address.clone(),
            device.driver.clone().unwrap_or_else(|| "none".to_owned()),
            device.group.map_or_else(|| "none".to_owned(), |group| group.to_string()),
            node.to_string(),
            device.tenant.clone().unwrap_or_else(|| "nobody".to_owned()),
        ]);
    }
    for group in &said.groups {
        let found = truth.groups.iter().find(|one| one.id == group.id);
        let expected = found.map(|one| (Some(one.kind.clone()), one.devices.clone()));
        let said = Some((group.kind.clone(), group.devices.clone()));
        facts.expect(&format!("{name}: group {}", group.id), &said, &expected);
    }
    let engines = Machine::named(name)?.accelerators();
    let listed: BTreeSet<&str> = said.devices.iter().map(|one| one.address.as_str()).collect();
    for one in &engines {
        let what = format!("{name}: {} is listed", one.engine);
        facts.expect(&what, &listed.contains(one.engine.as_str()), &true);
    }
    facts.say("The product's inventory, which is that of the guest's kernel:");
    facts.table(&["device", "driver", "group", "NUMA node", "tenant"], &rows);
    Ok(())
}

fn container_steps() -> Vec<Step> {
    let [first, second] = CONTAINER;
    let holder = |more: &'static str| ["lab-vfio", first, second, more];
    let waiting = |map: bool| {
        let mut argv = vec!["lab-vfio", first, second, "--wait"];
        argv.extend(map.then_some("--map"));
        argv
    };
    let mut steps = vec![
        script::run("unmapped", &holder("--copy")),
        script::run("mapped", &[&holder("--map")[..], &["--copy"]].concat()),
    ];
    for (name, map) in [("held", false), ("held mapped", true)] {
        steps.push(script::start(name, &waiting(map)));
        steps.push(product_step(&format!("{name}, scan"), &["scan"], &[]));
        steps.push(product_step(&format!("{name}, all"), &["diagnose", "--all"], &[]));
        steps.push(script::stop(name));
    }
    steps
}

/// Between devices of one container the verdict stays open, and the copies show that it must: the same
/// host shows the same files whether the holder mapped the peer or not.
fn container(facts: &mut Facts, report: &Report) -> Result<()> {
    let inside = |one: &str| CONTAINER.contains(&one);
    let mut rows = Vec::new();
    for (copies, held, expected) in
        [("unmapped", "held", Verdict::Damaged), ("mapped", "held mapped", Verdict::Intact)]
    {
        let probes: Vec<Probe> = probes_of(report, copies)?;
        facts.expect(&format!("{copies}: copies"), &probes.len(), &2);
        for probe in &probes {
            facts.expect(&format!("{copies}: {}", probe.from), &probe.verdict, &expected);
        }
        let said: Diagnosis = document::of(report, &format!("{held}, all"))?;
        let mut between = 0;
        for pair in said.pairs.iter().filter(|pair| inside(&pair.from)) {
            between += usize::from(inside(&pair.to));
            let what = format!("{held}: {} to {}", pair.from, pair.to);
            facts.expect(&what, &pair.verdict.as_str(), &"unknown");
        }
        facts.expect(&format!("{held}: pairs of the container"), &between, &2);
        let scan: Scan = document::of(report, &format!("{held}, scan"))?;
        let tenants: BTreeSet<Option<String>> = scan
            .devices
            .iter()
            .filter(|device| inside(&device.address))
            .map(|device| device.tenant.clone())
            .collect();
        facts.expect(&format!("{held}: one tenant has them"), &tenants.len(), &1);
        let tenant = tenants.into_iter().next().flatten().unwrap_or_else(|| "nobody".to_owned());
        facts.expect(&format!("{held}: tenant"), &tenant.as_str(), &"host");
        rows.push(vec![copies.to_owned(), format!("{expected:?}"), "unknown".to_owned(), tenant]);
    }
    facts.say(format!("{} and {} held by one container:", CONTAINER[0], CONTAINER[1]));
    facts.table(&["peer's BAR in the container", "copies", "verdict", "tenant"], &rows);
    Ok(())
}
