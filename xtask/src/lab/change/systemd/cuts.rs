//! The power is cut in the middle of an apply, and in the middle of the files that last; the unit that recovers
//! meets it at the next boot.

use std::path::Path;

use anyhow::Result;
use peerway_lab_protocol::{Inventory, Step};

use super::super::super::boot::Report;
use super::super::super::facts::Facts;
use super::super::super::kernel::Kernel;
use super::super::super::machine::Machine;
use super::super::super::scenario::inventory_of;
use super::super::{HEADS, PLAN, apply, differences, long, product, shell};
use super::looks::Told;
use super::{beginning, boot, compare, elsewhere, list, plan, units};

/// What the emulator is killed at.
const CUT: &str = "cut the power";
/// A record in the middle of the canary (the part `power` cuts at the same one).
const IN_APPLY: &str = "40";
/// The word, and an intent and an end for each of nine files, and the intent of the tenth: the drop-ins are there.
const IN_CONFIRM: &str = "20";

/// Runs the part.
pub(super) fn run(kernel: &Kernel, machine: &Machine, disk: &Path) -> Result<Facts> {
    let cut = |steps: Vec<Step>| boot(kernel, machine, disk).cut_at(CUT).steps(steps).run();
    let mut told = Told::default();
    told.facts.say(
        "First `live-without` is confirmed to last, so that a boot recovers; then the emulator is killed while \
         `identity-groups` is applied. At the next boot that is taken back, everything is undone, and the emulator \
         is killed again, between two of the files that the word puts in place.",
    );
    let first = cut(until_the_first())?;
    let fresh = inventory_of(&first, "before")?;
    for (name, word) in
        [("system", "running"), ("live-without: confirm", "in force"), ("plan", "protects vm:132")]
    {
        told.ended(&first, name, 0, word)?;
    }
    let second = cut([looked("cut in apply"), until_the_second()].concat())?;
    for (name, word) in [
        ("cut in apply: journal of recover", "gone with the last boot; nothing of it is left"),
        ("cut in apply: environment", "NCCL_P2P_DISABLE=1"),
        ("cut in apply: history", "gone with boot"),
        ("undo", "gone with the last boot"),
        ("plan that lasts", "protects vm:132"),
        ("apply", "applied and verified"),
    ] {
        told.ended(&second, name, 0, word)?;
    }
    as_fresh(&mut told, &second, "cut in apply", &fresh, "")?;
    let left = elsewhere(&second, "undo: files")?;
    told.facts.expect("files after undo", &left, &Vec::new());
    let mut steps = looked("cut in confirm");
    steps.push(compare("cut in confirm: files"));
    let third = boot(kernel, machine, disk).steps(steps).run()?;
    for (name, word) in [
        (
            "cut in confirm: journal of identity",
            "no confirmed change of this host put this plan in place",
        ),
        ("cut in confirm: journal of recover", "gone with the last boot; nothing of it is left"),
        ("cut in confirm: environment", "NCCL_P2P_DISABLE=1"),
        ("cut in confirm: history", "gone with boot"),
    ] {
        told.ended(&third, name, 0, word)?;
    }
    as_fresh(&mut told, &third, "cut in confirm", &fresh, "peerway-identity.service")?;
    let left = elsewhere(&third, "cut in confirm: files")?;
    told.facts.expect("files after the recovery at boot", &left, &Vec::new());
    last(&mut told, &boot(kernel, machine, disk).steps(looked("at last")).run()?, &fresh)?;
    told.facts.table(&HEADS, &told.rows.clone());
    told.facts.say(
        "At each boot the unit that recovers ended what had been cut off and said so, groups and drivers were those \
         of a fresh boot, and jobs got the safe environment. A plan whose files were half in place was not carried \
         out, and its files were gone once the boot had recovered; the boot after that knew nothing of it.",
    );
    Ok(told.facts)
}

fn last(told: &mut Told, report: &Report, fresh: &Inventory) -> Result<()> {
    told.ended(report, "at last: environment", 1, "No such file")?;
    as_fresh(told, report, "at last", fresh, "")
}

/// Groups and drivers as on a fresh boot, and which units failed.
fn as_fresh(
    told: &mut Told,
    report: &Report,
    at: &str,
    fresh: &Inventory,
    failed: &str,
) -> Result<()> {
    let found = differences(fresh, &inventory_of(report, "before")?);
    told.facts.expect(&format!("{at}: groups and drivers"), &found, &Vec::new());
    let name = format!("{at}: failed units");
    told.facts.expect(&name, &report.stdout(&name)?.trim(), &failed);
    Ok(())
}

fn until_the_first() -> Vec<Step> {
    let devices = super::CHANGED.join(",");
    let safe = ["plan", "live-without", "--device", &devices, "--last", "-o", "/tmp/safe.json"];
    let groups = ["plan", "identity-groups", "--device", &devices, "-o", PLAN];
    let mut steps = beginning();
    steps.extend([
        list("list"),
        super::declared("live-without: plan", &safe),
        super::declared("live-without: apply", &["apply", "/tmp/safe.json"]),
        product("live-without: confirm", &["confirm"]),
        super::declared("plan", &groups),
        long("cut", &["lab-crash", "cut", PLAN, IN_APPLY]),
    ]);
    steps
}

fn until_the_second() -> Vec<Step> {
    vec![
        product("undo", &["undo", "--all"]),
        compare("undo: files"),
        plan("plan that lasts"),
        apply("apply"),
        long("cut", &["lab-crash", "cut", "confirm", IN_CONFIRM]),
    ]
}

fn looked(at: &str) -> Vec<Step> {
    let mut steps = beginning();
    steps.extend([
        units::failed(at),
        units::said(at, "identity"),
        units::said(at, "recover"),
        shell(&format!("{at}: environment"), "cat /run/peerway/p2p.env"),
        product(&format!("{at}: history"), &["history"]),
    ]);
    steps
}
