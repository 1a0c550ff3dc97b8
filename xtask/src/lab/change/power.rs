//! The power is cut: the emulator is killed while the product changes the host, the journal lies on a disk,
//! and another boot finds it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, Result, bail};
use peerway_lab_protocol::{Inventory, Step};

use super::super::boot::Report;
use super::super::facts::Facts;
use super::super::kernel::Kernel;
use super::super::machine::Machine;
use super::super::scenario::{inventory_of, inventory_step};
use super::super::{paths, process, script, tools};
use super::{
    HEADS, PLACE, PLAN, apply, beginning, boot, differences, ended, long, plan, product, shell,
};

/// What comes over the guest's port when the emulator is to be killed.
const CUT: &str = "cut the power";
/// Room for the journal and the file system's own.
const SIZE: u64 = 64 << 20;

/// When the power is cut.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Moment {
    /// The journal has so many records of an apply.
    Record(usize),
    /// It is applied and verified, and waits for the word.
    Waiting,
    /// It was confirmed, and is in force.
    InForce,
}

/// At the first record after that of the plan, in the control arm, in the canary, in the rest, and at both ends.
const MOMENTS: [Moment; 6] = [
    Moment::Record(2),
    Moment::Record(17),
    Moment::Record(40),
    Moment::Record(52),
    Moment::Waiting,
    Moment::InForce,
];

pub(super) fn run(kernel: &Kernel) -> Result<Facts> {
    if kernel.storage.is_empty() {
        bail!("the kernel has no modules of a disk here; run: cargo xtask lab fetch --refresh");
    }
    let disk = disk()?;
    let mut facts = Facts::default();
    facts.say(
        "The journal lies on an ext4 file system on a virtio disk. The emulator is killed with SIGKILL at the \
         moment named; what the guest's kernel had not written to the disk by then is lost. Each boot begins \
         with what the one before it left on the disk.",
    );
    let mut rows = Vec::new();
    let mut first: Option<Inventory> = None;
    let mut before: Option<Moment> = None;
    for moment in MOMENTS.into_iter().map(Some).chain([None]) {
        let report = one(kernel, &disk, before, moment)?;
        let inventory = inventory_of(&report, "before")?;
        let first = first.get_or_insert(inventory);
        if let Some(before) = before {
            found(&mut facts, &mut rows, &report, before, first)?;
        }
        if moment.is_none() {
            for (name, word) in [
                ("undo what was written", ""),
                ("nothing is left", ""),
                ("apply", "applied and verified"),
                ("rollback", "taken back"),
            ] {
                ended(&mut facts, &mut rows, &report, name, 0, word)?;
            }
        }
        before = moment;
    }
    facts.table(&HEADS, &rows);
    facts.say(
        "After every boot the transaction that was under way is gone with it, every driver, group and type is \
         that of a fresh boot, and jobs get the safe environment. What had been confirmed is over too, and is \
         not recovered: nothing says that its environment is lifted. The journal goes on being used.",
    );
    Ok(facts)
}

/// A boot that looks at what the one before it left, and is cut at a moment.
fn one(
    kernel: &Kernel,
    disk: &Path,
    before: Option<Moment>,
    moment: Option<Moment>,
) -> Result<Report> {
    let machine = Machine::named("replica")?;
    let mut steps = beginning();
    let mount = "mkdir -p /var/lib && mount -t ext4 /dev/vda /var/lib";
    steps.push(shell("disk", mount));
    if let Some(before) = before {
        steps.extend(looks(before));
    }
    match moment {
        Some(moment) => {
            steps.push(plan("plan"));
            steps.extend(until(moment));
        }
        None => steps.extend([
            product("undo what was written", &["undo", "--all"]),
            shell("nothing is left", "test ! -e /run/peerway"),
            plan("plan"),
            apply("apply"),
            product("rollback", &["rollback"]),
            shell("disk is written", "umount /var/lib"),
            script::stop("guest"),
        ]),
    }
    let boot = boot(kernel, &machine)?.disk(disk).steps(steps);
    let report = if moment.is_some() { boot.cut_at(CUT).run() } else { boot.run() };
    let report = report?;
    report.stdout("disk").context("the disk")?;
    if moment.is_some() {
        report.stdout("plan")?;
    }
    Ok(report)
}

/// The steps that end with the cut.
fn until(moment: Moment) -> Vec<Step> {
    let cut = |word: &str| long("cut", &["lab-crash", "cut", PLAN, word]);
    let now = || long("cut", &["lab-crash", "cut", "now"]);
    match moment {
        Moment::Record(number) => vec![cut(&number.to_string())],
        Moment::Waiting => vec![apply("apply"), now()],
        Moment::InForce => vec![apply("apply"), product("confirm", &["confirm"]), now()],
    }
}

/// The steps of the boot after it.
fn looks(before: Moment) -> Vec<Step> {
    let name = |what: &str| format!("{}: {what}", words(before));
    let last =
        format!("{PLACE} history --format jsonl | tail -n 1 | grep -o '\"state\":\"[^\"]*\"'");
    vec![
        shell(&name("environment after the boot"), "test ! -e /run/peerway"),
        shell(&name("records on the disk"), "wc -l < /var/lib/peerway/journal.jsonl"),
        product(&name("recover"), &["recover"]),
        shell(&name("environment"), "cat /run/peerway/p2p.env"),
        shell(&name("history"), &last),
        product(&name("verify"), &["verify"]),
        inventory_step(&name("inventory")),
    ]
}

/// Compares what they found with what is expected.
fn found(
    facts: &mut Facts,
    rows: &mut Vec<Vec<String>>,
    report: &Report,
    before: Moment,
    first: &Inventory,
) -> Result<()> {
    let name = |what: &str| format!("{}: {what}", words(before));
    let is_over = before == Moment::InForce;
    let recovered = if is_over { "nothing is under way" } else { "gone with the last boot" };
    let state = if is_over { "succeeded" } else { "gone with boot" };
    ended(facts, rows, report, &name("records on the disk"), 0, "")?;
    ended(facts, rows, report, &name("recover"), 0, recovered)?;
    let (status, text) = if is_over { (1, "No such file") } else { (0, "NCCL_P2P_DISABLE=1") };
    ended(facts, rows, report, &name("environment"), status, text)?;
    ended(facts, rows, report, &name("history"), 0, &format!("\"state\":\"{state}\""))?;
    ended(facts, rows, report, &name("verify"), 3, "nothing was confirmed on this boot")?;
    facts.expect(
        &name("environment after the boot"),
        &report.outcome(&name("environment after the boot"))?.status,
        &Some(0),
    );
    let now = inventory_of(report, &name("inventory"))?;
    facts.expect(&name("as after a fresh boot"), &differences(first, &now), &Vec::new());
    Ok(())
}

fn words(moment: Moment) -> String {
    match moment {
        Moment::Record(number) => format!("cut at record {number}"),
        Moment::Waiting => "cut while it waits".to_owned(),
        Moment::InForce => "cut in force".to_owned(),
    }
}

/// A fresh disk.
fn disk() -> Result<PathBuf> {
    tools::ensure_each(&[("mke2fs", "e2fsprogs")])?;
    let file = paths::cache().join("run").join("change-disk.img");
    fs::create_dir_all(paths::cache().join("run"))?;
    let image =
        fs::File::create(&file).with_context(|| format!("cannot make {}", file.display()))?;
    image.set_len(SIZE)?;
    drop(image);
    let program = process::find("mke2fs").context("no mke2fs; install e2fsprogs")?;
    process::output(Command::new(program).args(["-q", "-F", "-t", "ext4"]).arg(&file))?;
    Ok(file)
}
