//! A confirmed road over boots: as planned, after a power cut, where its gates fail, and undone.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context as _, Result};
use peerway_lab_protocol::{Inventory, Step};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::super::super::boot::Report;
use super::super::super::facts::Facts;
use super::super::super::kernel::Kernel;
use super::super::super::machine::Machine;
use super::super::super::scenario::inventory_of;
use super::super::{HEADS, PLAN, apply, long, product, shell};
use super::looks::{self, Came, Told};
use super::units::{self, Units};
use super::{beginning, boot, compare, elsewhere, list, plan};

/// Of a series that cannot change a group's type: the hook says so.
const OLD_KERNEL: &str = "5.10.0-46-amd64";

/// Runs the part.
pub(super) fn run(kernel: &Kernel, machine: &Machine, disk: &Path) -> Result<Facts> {
    let run = |steps: Vec<Step>| boot(kernel, machine, disk).steps(steps).run();
    let mut told = Told::default();
    told.facts.say(
        "The disk is ext4; the initramfs mounts it read-only and hands over to systemd, which loads the modules, \
         and the lab's unit binds the drivers after that. Another tenant's virtual machine has its devices in a \
         scope of its own. Each boot goes on with what the one before it left on the disk.",
    );
    let first = run(installs())?;
    let fresh = (inventory_of(&first, "binding")?, inventory_of(&first, "before")?);
    installed(&mut told, &first)?;
    let cut = long("cut", &["lab-crash", "cut", "now"]);
    let steps = [looked("second boot"), vec![cut]].concat();
    let report = boot(kernel, machine, disk).cut_at("cut the power").steps(steps).run()?;
    looks::compare(&mut told, &report, "second boot", &fresh, Came::InForce)?;
    let units = Units::of(&report, "units")?.rows()?;
    let edit = "cp -a /etc/peerway/identity.json /root && \
                sed -i 's/0000:61:00/0000:71:00/' /etc/peerway/identity.json";
    let report = run([looked("after a power cut"), vec![shell("edit", edit)]].concat())?;
    looks::compare(&mut told, &report, "after a power cut", &fresh, Came::InForce)?;
    report.stdout("edit")?;
    let mend = "cp -a /root/identity.json /etc/peerway/identity.json";
    let report = run([looked("plan edited"), vec![shell("mend", mend)]].concat())?;
    looks::compare(&mut told, &report, "plan edited", &fresh, Came::Refused("digest"))?;
    report.stdout("mend")?;
    let other = boot(kernel, machine, disk).kernel_argument("lab.other=1");
    let report = other.steps(looked("other command line")).run()?;
    let why = Came::Refused("/proc/cmdline was");
    looks::compare(&mut told, &report, "other command line", &fresh, why)?;
    undone(&mut told, &run([looked("as confirmed"), undoes()].concat())?, &fresh)?;
    let mut steps = looked("after undo");
    steps.extend([
        compare("after undo: files"),
        shell(
            "after undo: said by systemd",
            "journalctl --boot --no-pager | grep -ci peerway; test $? = 1",
        ),
        product("after undo: undo again", &["undo", "--all"]),
        shell("after undo: nothing is left", "test ! -e /run/peerway"),
    ]);
    let report = run(steps)?;
    looks::compare(&mut told, &report, "after undo", &fresh, Came::Without)?;
    for (name, word) in [
        ("said by systemd", "0"),
        ("undo again", "nothing of ours is in force"),
        ("nothing is left", ""),
    ] {
        told.ended(&report, &format!("after undo: {name}"), 0, word)?;
    }
    let left = elsewhere(&report, "after undo: files")?;
    told.facts.expect("files after undo and a boot", &left, &Vec::new());
    told.facts.table(&HEADS, &told.rows.clone());
    told.facts.say("The order of the second boot, by systemd's own times:");
    told.facts.table(&units::HEADS, &units);
    last_words(&mut told.facts);
    Ok(told.facts)
}

fn last_words(facts: &mut Facts) {
    facts.say(
        "On every boot with the plan in force the two groups were identity, and all others as on a fresh boot, \
         when no driver was bound yet; copies of the two requesters arrived and those of the other two did not. \
         Where the plan's file was edited, and on another command line, the unit for the domains failed, every \
         group was as on a fresh boot, the environment was the safe one, and the boot went on. After `undo --all` \
         no file was left but the journal's own directory, and the next boot was as one without Peerway.",
    );
}

fn looked(at: &str) -> Vec<Step> {
    [beginning(), looks::steps(at)].concat()
}

/// The boot on which the plan is made, applied and confirmed.
fn installs() -> Vec<Step> {
    let parts = |release: &str| format!("run-parts --arg={release} /etc/kernel/postinst.d");
    let mut steps = beginning();
    steps.extend([
        list("list"),
        plan("plan"),
        apply("apply"),
        compare("while it waits: files"),
        product("confirm", &["confirm"]),
        product("verify", &["verify"]),
        compare("files"),
        shell("planned", &format!("cat {PLAN}")),
        shell("unit files", "systemctl list-unit-files --no-legend --no-pager 'peerway-*'"),
        shell(
            "systemd-analyze verify",
            "systemd-analyze verify --man=no /etc/systemd/system/peerway-*.service sysinit.target \
             multi-user.target 2>&1 && echo clean",
        ),
        shell("kernel hook, this kernel", &format!("{} 2>&1 && echo quiet", parts("$(uname -r)"))),
        shell("kernel hook, an old kernel", &format!("{} 2>&1", parts(OLD_KERNEL))),
        shell("apt's hooks", "apt-config dump DPkg::Post-Invoke"),
    ]);
    steps
}

fn installed(told: &mut Told, report: &Report) -> Result<()> {
    for (name, word) in [
        ("system", "running"),
        ("plan", "protects vm:132: 0000:81:00.0"),
        ("apply", "applied and verified"),
        ("confirm", "in force"),
        ("verify", "nobody else was touched"),
        ("systemd-analyze verify", "clean"),
        ("kernel hook, this kernel", "quiet"),
        ("kernel hook, an old kernel", "identity-groups is in force, and not with kernel 5.10"),
        ("apt's hooks", "--if-driver $version --warn"),
    ] {
        told.ended(report, name, 0, word)?;
    }
    let facts = &mut told.facts;
    for (name, said) in [("systemd-analyze verify", "clean"), ("kernel hook, this kernel", "quiet")]
    {
        facts.expect(&format!("{name}: nothing else"), &report.stdout(name)?.trim(), &said);
    }
    let early = elsewhere(report, "while it waits: files")?;
    facts.expect("files before the word", &early, &Vec::new());
    let expected = planned(report)?;
    facts.expect("files that the plan puts in place", &(expected.len() >= 9), &true);
    facts.expect("files after the word", &added(report)?, &expected);
    let mut rows = Vec::new();
    for (path, (mode, sum)) in &expected {
        rows.push(vec![
            format!("`{path}`"),
            mode.clone(),
            format!("`{}`", sum.get(..12).unwrap_or(sum)),
        ]);
    }
    let units = report.stdout("unit files")?;
    for unit in expected.keys().filter_map(|path| path.strip_prefix("/etc/systemd/system/")) {
        let known = units.lines().any(|line| line.split_whitespace().take(2).eq([unit, "static"]));
        facts.expect(&format!("{unit} is static"), &known, &unit.ends_with(".service"));
    }
    facts.say(
        "Files that the word put in place, each as it stands in the plan (mode, and SHA-256):",
    );
    facts.table(&["file", "mode", "content"], &rows);
    Ok(())
}

/// What the plan's steps install: mode and sum by path.
fn planned(report: &Report) -> Result<BTreeMap<String, (String, String)>> {
    let plan: Value = serde_json::from_str(report.stdout("planned")?).context("the plan")?;
    let steps = plan.get("steps").and_then(Value::as_array).context("a plan without steps")?;
    let mut files = BTreeMap::new();
    for act in steps.iter().filter_map(|step| step.get("act")) {
        if act.get("act").and_then(Value::as_str) != Some("install") {
            continue;
        }
        let word = |name: &str| act.get(name).and_then(Value::as_str).context("an install");
        let mode = act.get("mode").and_then(Value::as_u64).context("an install without a mode")?;
        let sum: Vec<String> =
            Sha256::digest(word("content")?).iter().map(|byte| format!("{byte:02x}")).collect();
        files.insert(word("path")?.to_owned(), (format!("{mode:o}"), sum.concat()));
    }
    Ok(files)
}

/// What the comparison of files found, in the same form; a line that is no new file stands under itself.
fn added(report: &Report) -> Result<BTreeMap<String, (String, String)>> {
    let mut files: BTreeMap<String, (String, String)> = BTreeMap::new();
    for line in elsewhere(report, "files")? {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words.as_slice() {
            [">", path, "f", mode, "0:0"] => {
                (*mode).clone_into(&mut files.entry(format!("/{path}")).or_default().0);
            }
            [">", sum, path] => {
                (*sum).clone_into(&mut files.entry(format!("/{path}")).or_default().1);
            }
            // Directories that they are in.
            [">", path, "d", "755", "0:0"]
                if path.ends_with(".target.d") || *path == "etc/peerway" => {}
            _ => drop(files.insert(line, Default::default())),
        }
    }
    Ok(files)
}

/// On a boot that set the domains early.
fn undoes() -> Vec<Step> {
    vec![
        product("undo", &["undo", "--all"]),
        compare("undo: files"),
        shell("undo: environment", "cat /run/peerway/p2p.env"),
        shell("undo: what is left", "cd /var/lib/peerway && find . -type f | sort | tr '\\n' ' '"),
    ]
}

fn undone(told: &mut Told, report: &Report, fresh: &(Inventory, Inventory)) -> Result<()> {
    looks::compare(told, report, "as confirmed", fresh, Came::InForce)?;
    // The drivers are bound: the domains remain until the next boot, and the step that remains is named.
    told.ended(report, "undo", 6, "write_group_type")?;
    told.ended(report, "undo: environment", 0, "NCCL_P2P_DISABLE=1")?;
    told.ended(report, "undo: what is left", 0, "journal.jsonl")?;
    let left = elsewhere(report, "undo: files")?;
    told.facts.expect("files after undo", &left, &Vec::new());
    Ok(())
}
