//! What a boot came to: what systemd says of it, what the groups are, and when which unit ran.

use anyhow::Result;
use peerway_lab_protocol::{Inventory, Step};

use super::super::super::boot::Report;
use super::super::super::facts::Facts;
use super::super::super::scenario::{by_requester, inventory_of, probes_of};
use super::super::story::own_matrix;
use super::super::{CHANGED, differences, ended, product, shell};
use super::units::{self, Units};

/// What is expected of a boot.
#[derive(Clone, Copy)]
pub(super) enum Came {
    /// The domains were set before the drivers bound, copies proved it, and jobs are let in.
    InForce,
    /// The unit refused, with a word of the reason; everything else is as on a fresh boot.
    Refused(&'static str),
    /// Nothing of ours is there.
    Without,
}

/// The page's rows of a story, and its facts.
#[derive(Default)]
pub(super) struct Told {
    pub(super) facts: Facts,
    pub(super) rows: Vec<Vec<String>>,
}

impl Told {
    /// Compares a step with what is expected, and adds it to the rows.
    pub(super) fn ended(
        &mut self,
        report: &Report,
        name: &str,
        status: i32,
        word: &str,
    ) -> Result<()> {
        ended(&mut self.facts, &mut self.rows, report, name, status, word)
    }
}

/// The steps that look.
pub(super) fn steps(at: &str) -> Vec<Step> {
    vec![
        units::step("units"),
        units::failed(at),
        shell(&format!("{at}: is up"), "systemctl is-active multi-user.target"),
        units::said(at, "identity"),
        units::said(at, "recover"),
        units::said(at, "prove"),
        shell(&format!("{at}: environment"), "cat /run/peerway/p2p.env"),
        product(&format!("{at}: verify"), &["verify"]),
        product(&format!("{at}: recover by hand"), &["recover"]),
        own_matrix("copies"),
        product(&format!("{at}: verify at the end"), &["verify"]),
    ]
}

/// Compares what they saw with what is expected. `fresh` is the boot without anything of ours, before its
/// drivers bound and after.
pub(super) fn compare(
    told: &mut Told,
    report: &Report,
    at: &str,
    fresh: &(Inventory, Inventory),
    came: Came,
) -> Result<()> {
    let name = |what: &str| format!("{at}: {what}");
    let (failed, environment) = match came {
        Came::InForce => ("", (0, "NCCL_P2P_LEVEL")),
        Came::Refused(_) => {
            ("peerway-identity.service\npeerway-prove.service", (0, "NCCL_P2P_DISABLE=1"))
        }
        Came::Without => ("", (1, "No such file")),
    };
    told.facts.expect(
        &name("failed units"),
        &report.stdout(&name("failed units"))?.trim(),
        &failed,
    );
    told.ended(report, &name("is up"), 0, "active")?;
    match came {
        Came::InForce => {
            told.ended(report, &name("journal of identity"), 0, "in force")?;
            told.ended(report, &name("journal of recover"), 0, "nothing is under way")?;
            told.ended(report, &name("journal of prove"), 0, "in force")?;
        }
        Came::Refused(why) => {
            told.ended(report, &name("journal of identity"), 0, why)?;
            told.ended(report, &name("journal of recover"), 0, "nothing is under way")?;
            told.ended(report, &name("journal of prove"), 0, "nothing was confirmed on this boot")?;
        }
        Came::Without => {}
    }
    told.ended(report, &name("environment"), environment.0, environment.1)?;
    let in_force = matches!(came, Came::InForce);
    let (status, word) =
        if in_force { (0, "nobody else was touched") } else { (3, "nothing was confirmed") };
    told.ended(report, &name("verify"), status, word)?;
    // What was undone to the last step but one is over with the boot, and nobody had said so yet.
    let recovered = if matches!(came, Came::Without) {
        "gone with the last boot"
    } else {
        "nothing is under way"
    };
    told.ended(report, &name("recover by hand"), 0, recovered)?;
    told.ended(report, &name("verify at the end"), status, word)?;
    let units = Units::of(report, "units")?;
    order(&mut told.facts, &units, at, came)?;
    groups(&mut told.facts, report, at, fresh, in_force)
}

/// Groups and drivers, when the first driver was about to bind and once the system is up, and what copies did.
fn groups(
    facts: &mut Facts,
    report: &Report,
    at: &str,
    fresh: &(Inventory, Inventory),
    in_force: bool,
) -> Result<()> {
    for (name, fresh) in [("binding", &fresh.0), ("before", &fresh.1)] {
        let of_ours = fresh.groups.iter().filter(|group| {
            in_force && group.devices.iter().any(|device| CHANGED.contains(&device.as_str()))
        });
        let expected: Vec<String> =
            of_ours.map(|group| format!("group {}: DMA-FQ and identity", group.id)).collect();
        let found = differences(fresh, &inventory_of(report, name)?);
        facts.expect(&format!("{at}: groups and drivers, {name}"), &found, &expected);
        facts.expect(
            &format!("{at}: groups of ours"),
            &expected.len(),
            &(2 * usize::from(in_force)),
        );
    }
    let early = inventory_of(report, "binding")?;
    let bound: Vec<&str> = early
        .devices
        .iter()
        .filter(|device| ["1234:11e8", "1af4:1110"].contains(&device.id.as_str()))
        .filter_map(|device| device.driver.as_deref())
        .collect();
    facts.expect(&format!("{at}: bound before the lab's unit binds"), &bound, &Vec::new());
    for (from, arrived) in by_requester(&probes_of(report, "copies")?) {
        let expected = vec![in_force && CHANGED.contains(&from.as_str())];
        let arrived: Vec<bool> = arrived.into_iter().collect();
        facts.expect(&format!("{at}: copies of {from} arrive"), &arrived, &expected);
    }
    Ok(())
}

/// Which unit ran before which.
fn order(facts: &mut Facts, units: &Units, at: &str, came: Came) -> Result<()> {
    let ours = ["safe", "identity", "recover", "prove"];
    let (load, results): (&str, [(&str, &str); 4]) = match came {
        Came::Without => ("not-found", [("success", "0"); 4]),
        Came::InForce => ("loaded", [("success", "0"); 4]),
        Came::Refused(_) => {
            ("loaded", [("success", "0"), ("exit-code", "4"), ("success", "0"), ("exit-code", "3")])
        }
    };
    for (unit, (result, status)) in ours.into_iter().zip(results) {
        let of = |property: &str| units.of_ours(unit, property).map(str::to_owned);
        let found = (of("LoadState")?, of("Result")?, of("ExecMainStatus")?);
        let expected = (load.to_owned(), result.to_owned(), status.to_owned());
        facts.expect(&format!("{at}: {unit}"), &found, &expected);
    }
    if matches!(came, Came::Without) {
        return Ok(());
    }
    for (first, second) in [
        ("peerway-safe.service", "peerway-identity.service"),
        ("peerway-identity.service", "systemd-modules-load.service"),
        ("peerway-identity.service", "systemd-udev-trigger.service"),
        ("peerway-identity.service", "lab-drivers.service"),
        ("peerway-identity.service", "lab-vm.service"),
        ("lab-drivers.service", "peerway-prove.service"),
        ("peerway-recover.service", "peerway-prove.service"),
    ] {
        let ((_, ended), (began, _)) = (units.times(first)?, units.times(second)?);
        let is_before = ended > 0 && ended <= began;
        facts.expect(&format!("{at}: {first} ended before {second} began"), &is_before, &true);
    }
    Ok(())
}
