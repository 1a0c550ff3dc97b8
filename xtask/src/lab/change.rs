//! Changes in the lab: the very binary applies its plans to a real kernel, and is ended, refused, contradicted
//! and left alone in the middle of it.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use peerway_lab_protocol::{Inventory, Outcome, Step};

use super::boot::{Boot, Report};
use super::facts::Facts;
use super::kernel::{Kernel, Series};
use super::machine::Machine;
use super::platform::Iommu;
use super::product;
use super::scenario::{inventory_of, inventory_step, older_than};
use super::script;

mod agreement;
mod board;
pub(super) mod crash;
mod eras;
mod fence;
mod others;
mod page;
mod power;
mod refusals;
mod story;
mod systemd;
mod trouble;

/// Where the binary is in the guest.
pub(super) const PLACE: &str = "/lab/bin/peerway";
/// What tells it about the lab's accelerators there.
const DECLARED: [&str; 2] = ["--accelerator", "/lab/accelerators.toml"];
/// The two accelerators whose groups are changed.
const CHANGED: [&str; 2] = ["0000:11:00.0", "0000:61:00.0"];
/// Those of the other tenant, a virtual machine.
pub(super) const OTHERS: [&str; 4] =
    ["0000:81:00.0", "0000:91:00.0", "0000:e1:00.0", "0000:f1:00.0"];
/// Where the guest keeps the plan.
const PLAN: &str = "/tmp/plan.json";
/// A change with all its looks, under emulation on a busy machine.
const CHANGE_MS: u64 = 180_000;
/// A boot with several of them.
const LIMIT: Duration = Duration::from_mins(15);

/// A part of the proof.
#[derive(Debug, Clone, Copy)]
pub struct Part {
    /// Its name in a difference.
    pub name: &'static str,
    /// Its heading.
    pub title: &'static str,
    /// On which kernels there is something to run.
    pub era: Era,
    /// Runs it.
    pub run: fn(&Kernel) -> Result<Facts>,
}

/// What a kernel does with the type of a group of two functions (measured: `docs/lab/facts-*.md`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Era {
    /// Up to 6.3 it refuses.
    RefusesGroupsOfTwo,
    /// From 6.4 on it changes it.
    ChangesThem,
}

impl Era {
    /// That of a kernel.
    fn of(kernel: &Kernel) -> Self {
        if older_than(kernel, 6, 4) { Self::RefusesGroupsOfTwo } else { Self::ChangesThem }
    }
}

const fn part_of(
    name: &'static str,
    title: &'static str,
    run: fn(&Kernel) -> Result<Facts>,
) -> Part {
    Part { name, title, era: Era::ChangesThem, run }
}

/// All of them, in the order of the document.
pub const PARTS: [Part; 9] = [
    part_of("story", "From plan to word, and back", story::run),
    part_of("refusals", "What is refused, and changes nothing", refusals::run),
    part_of("trouble", "What fails after the change, and goes back", trouble::run),
    part_of("timer", "Nobody gives the word", trouble::timer),
    part_of("fence", "An open that must fail, and does", fence::run),
    part_of("power", "The power is cut", power::run),
    part_of("agreement", "The simulation does what the kernel does", agreement::run),
    part_of("kill", "The process is killed at a record of the journal", crash::kill),
    Part {
        era: Era::RefusesGroupsOfTwo,
        ..part_of("groups-of-two", "What this kernel cannot change is refused", eras::run)
    },
];

/// The part of a name.
///
/// # Errors
/// Where there is none.
pub fn part(name: &str) -> Result<Part> {
    PARTS.into_iter().find(|part| part.name == name).with_context(|| format!("no part {name:?}"))
}

/// Runs the parts on a kernel, or one of them, and writes what each did into `docs/lab/change-SERIES.md`.
///
/// # Errors
/// Where a part could not be run, or found something else than expected; what it did before stays on the page
/// then.
pub(super) fn write(series: Series, only: Option<&str>) -> Result<()> {
    let kernel = series.fetched()?;
    if let Some(name) = only.filter(|name| systemd::is_named(name)) {
        return systemd::write(&kernel, name);
    }
    let here = PARTS.into_iter().filter(|part| part.era == Era::of(&kernel));
    let chosen: Vec<Part> = here.filter(|part| only.is_none_or(|name| name == part.name)).collect();
    if chosen.is_empty() {
        bail!("there is no such part on {}", kernel.release);
    }
    let mut differences = Vec::new();
    for part in chosen {
        eprintln!("lab: {} on {}", part.name, kernel.release);
        let facts = (part.run)(&kernel).with_context(|| format!("part {}", part.name))?;
        if facts.differences().is_empty() {
            page::put(&kernel, &part, &facts)?;
        } else {
            print!("{}", facts.text());
        }
        differences.extend(facts.differences().iter().map(|one| format!("{}: {one}", part.name)));
    }
    if !differences.is_empty() {
        bail!("changes on {} differ:\n  {}", kernel.release, differences.join("\n  "));
    }
    Ok(())
}

/// A boot of the replica with the product in it. The processor does not say that it is emulated: the product
/// changes nothing from inside a guest.
pub(super) fn boot<'a>(kernel: &'a Kernel, machine: &'a Machine) -> Result<Boot<'a>> {
    let boot = Boot::new(kernel, machine).program(PLACE, &product::binary()?);
    let processor = match kernel.platform.iommu {
        Iommu::Intel => "qemu64,-hypervisor",
        Iommu::Amd => "EPYC,-hypervisor",
    };
    Ok(boot.arguments(["-cpu", processor]).limit(LIMIT))
}

/// A step with time for a change.
fn long(name: &str, argv: &[&str]) -> Step {
    Step { deadline_ms: CHANGE_MS, ..script::run(name, argv) }
}

/// A shell's line.
pub(super) fn shell(name: &str, line: &str) -> Step {
    long(name, &["sh", "-c", line])
}

/// A command of the product.
pub(super) fn product(name: &str, words: &[&str]) -> Step {
    long(name, &[&[PLACE], words].concat())
}

/// A command of the product that is told about the accelerators.
pub(super) fn declared(name: &str, words: &[&str]) -> Step {
    long(name, &[&[PLACE], &DECLARED[..], words].concat())
}

/// The product with the accelerators that it is told about, for a shell's line.
pub(super) fn plain() -> String {
    [&[PLACE], &DECLARED[..]].concat().join(" ")
}

/// The plan for the changed ones.
fn plan(name: &str) -> Step {
    plan_for(name, &CHANGED)
}

/// A plan for these devices. One that is there would be left alone, and this one is another.
fn plan_for(name: &str, devices: &[&str]) -> Step {
    let (product, devices) = (plain(), devices.join(","));
    let line = format!("rm -f {PLAN}; {product} plan identity-groups --device {devices} -o {PLAN}");
    shell(name, &line)
}

/// Its application.
fn apply(name: &str) -> Step {
    declared(name, &["apply", PLAN, "--unproved", "--probe", "/lab/bin/lab-copy"])
}

/// The step that finds its process.
const GUEST: &str = "the other tenant's machine runs";

/// The other tenant's virtual machine, which holds its devices.
pub(super) fn guest() -> Vec<Step> {
    // The emulated AMD IOMMU remaps no interrupts, and VFIO asks for that.
    let cgroup = "mkdir -p /sys/fs/cgroup && mount -t cgroup2 none /sys/fs/cgroup && \
                  mkdir -p /sys/fs/cgroup/qemu.slice/132.scope; \
                  case $(ls /sys/class/iommu) in ivhd*) \
                  echo 1 > /sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts;; esac";
    let holder = format!(
        "echo 0 > /sys/fs/cgroup/qemu.slice/132.scope/cgroup.procs && exec lab-vfio {} --wait",
        OTHERS.join(" ")
    );
    vec![
        shell("groups of processes", cgroup),
        Step { deadline_ms: CHANGE_MS, ..script::start("guest", &["sh", "-c", &holder]) },
        shell(GUEST, "grep . /sys/fs/cgroup/qemu.slice/132.scope/cgroup.procs"),
    ]
}

/// What each boot begins with: that virtual machine, and one of ours has no driver named for it.
fn beginning() -> Vec<Step> {
    let clear = format!("echo > /sys/bus/pci/devices/{}/driver_override", CHANGED[0]);
    let mut steps = guest();
    steps.extend([shell("no override", &clear), inventory_step("before")]);
    steps
}

/// An outcome's exit status, and all that it said on one line.
fn told(outcome: &Outcome) -> (Option<i32>, String) {
    let text = format!("{} {}", outcome.stdout.trim(), outcome.stderr.trim());
    (outcome.status, text.split_whitespace().collect::<Vec<_>>().join(" "))
}

/// Compares an outcome with what is expected, and adds it to a table.
pub(super) fn ended(
    facts: &mut Facts,
    rows: &mut Vec<Vec<String>>,
    report: &Report,
    name: &str,
    status: i32,
    word: &str,
) -> Result<()> {
    let (found, text) = told(report.outcome(name)?);
    facts.expect(&format!("{name}: exit status ({text})"), &found, &Some(status));
    facts.expect(&format!("{name}: {word:?} in {text:?}"), &text.contains(word), &true);
    let seconds = Duration::from_millis(report.outcome(name)?.milliseconds).as_secs_f64();
    let short: String = text.chars().take(160).collect();
    rows.push(vec![
        name.to_owned(),
        status.to_string(),
        short.replace('|', "/"),
        format!("{seconds:.1}"),
    ]);
    Ok(())
}

/// Heads of that table.
pub(super) const HEADS: [&str; 4] = ["step", "exit", "what it said", "seconds"];

/// What differs between two inventories, one line each.
pub(super) fn differences(before: &Inventory, after: &Inventory) -> Vec<String> {
    let mut found = Vec::new();
    for (one, other) in before.devices.iter().zip(&after.devices) {
        if one != other {
            found.push(format!("{}: {:?} and {:?}", one.address, one.driver, other.driver));
        }
    }
    for (one, other) in before.groups.iter().zip(&after.groups) {
        if one != other {
            found.push(format!("group {}: {} and {}", one.id, one.kind, other.kind));
        }
    }
    if (before.devices.len(), before.groups.len()) != (after.devices.len(), after.groups.len()) {
        found.push("another number of devices or groups".to_owned());
    }
    found
}

/// That nothing differs from the beginning, beside a machine that did run.
pub(super) fn as_before(facts: &mut Facts, report: &Report, name: &str) -> Result<()> {
    // Under systemd it is a unit, whose word the first steps wait for.
    if let Ok(outcome) = report.outcome(GUEST) {
        facts.expect(&format!("{GUEST}: {}", outcome.stderr), &outcome.status, &Some(0));
    }
    let (before, after) = (inventory_of(report, "before")?, inventory_of(report, name)?);
    facts.expect(&format!("{name}: as before"), &differences(&before, &after), &Vec::new());
    Ok(())
}
