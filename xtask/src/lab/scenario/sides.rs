//! Devices beside the accelerators go on working, whatever happens to the accelerators.

use anyhow::Result;
use peerway_lab_protocol::Step;

use super::{boot, faults, inventory_of, inventory_step, matrix_step};
use crate::lab::boot::Report;
use crate::lab::facts::Facts;
use crate::lab::kernel::Kernel;
use crate::lab::script;

/// The drive and the card.
const SIDES: [(&str, &str); 2] = [("0000:02:00.0", "nvme"), ("0000:03:00.0", "e1000e")];

pub(super) fn run(kernel: &Kernel) -> Result<Facts> {
    let mut facts = Facts::default();
    judge(&mut facts, &boot(kernel, "sides", steps())?)?;
    Ok(facts)
}

/// What is done.
pub(in crate::lab) fn steps() -> Vec<Step> {
    let read = ["sh", "-c", "dd if=/dev/nvme0n1 of=/dev/null bs=64k count=64 2>&1 && echo read"];
    vec![
        inventory_step("inventory"),
        script::run("read before", &read),
        matrix_step("matrix"),
        script::run("read after", &read),
    ]
}

/// Whether drive and card did what is expected of them.
pub(in crate::lab) fn judge(facts: &mut Facts, report: &Report) -> Result<()> {
    let inventory = inventory_of(report, "inventory")?;
    let mut rows = Vec::new();
    for (address, driver) in SIDES {
        let device = inventory.devices.iter().find(|device| device.address == address);
        let found = device.and_then(|device| device.driver.clone());
        facts.expect(&format!("driver of {address}"), &found.as_deref(), &Some(driver));
        let group =
            inventory.groups.iter().find(|group| group.devices.iter().any(|one| one == address));
        let kind = group.map(|group| group.kind.clone()).unwrap_or_default();
        rows.push(vec![address.to_owned(), found.unwrap_or_default(), kind]);
    }
    facts.table(&["device", "driver", "type of its group"], &rows);
    for step in ["read before", "read after"] {
        facts.expect(step, &report.stdout(step)?.contains("read"), &true);
        facts.expect(&format!("{step}: faults"), &faults(&report.outcome(step)?.kernel).len(), &0);
    }
    facts
        .say("4 MiB were read from the drive before and after the accelerators' copies: no fault.");
    Ok(())
}
