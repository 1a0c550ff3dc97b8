//! Under full translation no copy arrives, and the log names the target's BAR.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use anyhow::Result;
use peerway_lab_protocol::{Damage, Inventory, Step};

use super::{
    Probed, boot, faults, inventory_of, inventory_step, matrix_step, matrix_table, ordered_pairs,
    probe_steps, probed, probes_of,
};
use crate::lab::boot::Report;
use crate::lab::facts::Facts;
use crate::lab::kernel::Kernel;
use crate::lab::platform::Iommu;

/// The four whose driver is the tenant's.
const TENANT: [&str; 4] = ["0000:01:00.0", "0000:11:00.0", "0000:61:00.0", "0000:71:00.0"];
/// The BAR of the memory function.
const MEMORY_BAR: u8 = 2;

pub(super) fn run(kernel: &Kernel) -> Result<Facts> {
    let mut facts = Facts::default();
    for machine in ["replica", "large"] {
        let report =
            if machine == "replica" { replica(kernel)? } else { boot(kernel, machine, steps())? };
        let inventory = inventory_of(&report, "inventory")?;
        let matrix = probes_of(&report, "matrix")?;
        facts.say(format!("Machine `{machine}`, every ordered pair, all groups translating:"));
        matrix_table(&mut facts, &matrix);
        facts.expect("pairs in the matrix", &matrix.len(), &56);
        for probe in &matrix {
            let pair = format!("{machine}: {} to {}", probe.from, probe.to);
            facts.expect(&pair, &probe.damage, &Some(Damage::Dropped));
        }
        let bars = memory_bars(&inventory);
        let probed = probed(&report)?;
        if kernel.platform.iommu == Iommu::Amd {
            unattributed(&mut facts, machine, &probed);
            continue;
        }
        facts.say(
            "What the kernel logged during single copies of the tenant's four. It limits the rate of \
             these lines, so most faults of copies in a row are not logged:",
        );
        fault_table(&mut facts, machine, &probed, &bars);
        if let Some(first) = probed.first() {
            facts.say("As printed, for the first of them:");
            facts.quote(first.kernel.iter().map(String::as_str));
        }
    }
    Ok(facts)
}

fn steps() -> Vec<Step> {
    let mut steps = vec![inventory_step("inventory")];
    // One after the other: the emulated unit has one fault register, and concurrent faults are lost.
    // The kernel also limits the rate, to a few lines in five seconds (`dmar_fault` in
    // drivers/iommu/intel/dmar.c).
    steps.extend(probe_steps(ordered_pairs(&TENANT)));
    steps.push(matrix_step("matrix"));
    steps
}

/// The report of the replica, which more than one scenario looks at: booted once for each kernel.
pub(super) fn replica(kernel: &Kernel) -> Result<Report> {
    static LAST: Mutex<Option<(String, Report)>> = Mutex::new(None);
    let mut last = LAST.lock().unwrap_or_else(PoisonError::into_inner);
    match &*last {
        Some((release, report)) if *release == kernel.release => Ok(report.clone()),
        _ => {
            let report = boot(kernel, "replica", steps())?;
            *last = Some((kernel.release.clone(), report.clone()));
            Ok(report)
        }
    }
}

/// First address and size of the memory of each engine, whose function 1 it is.
fn memory_bars(inventory: &Inventory) -> BTreeMap<String, (u64, u64)> {
    let mut found = BTreeMap::new();
    for device in inventory.devices.iter().filter(|device| device.address.ends_with(".1")) {
        for (index, start, size) in &device.bars {
            let start = u64::from_str_radix(start.trim_start_matches("0x"), 16);
            if let (MEMORY_BAR, Ok(start)) = (*index, start) {
                let engine = device.address.replace(".1", ".0");
                found.insert(engine, (start, *size));
            }
        }
    }
    found
}

/// What AMD's driver logs here: the emulated unit does not say who asked for what.
fn unattributed(facts: &mut Facts, machine: &str, probed: &[Probed]) {
    let first = probed.first().map(|one| one.kernel.as_slice()).unwrap_or_default();
    facts.expect(
        &format!("{machine}: the first copy is logged"),
        &faults(first).is_empty(),
        &false,
    );
    facts.say(
        "What the kernel logged during the first of the single copies. The emulated unit names neither \
         requester nor address (0000:00:00.0 and 0), so who asked for what cannot be learnt here:",
    );
    facts.quote(first.iter().map(String::as_str));
}

/// Every fault that was logged must be the requester's, inside the target's BAR; how many are logged is
/// up to the kernel's rate limit, except for the first pair.
fn fault_table(
    facts: &mut Facts,
    machine: &str,
    probed: &[Probed],
    bars: &BTreeMap<String, (u64, u64)>,
) {
    let mut rows = Vec::new();
    for (number, one) in probed.iter().enumerate() {
        let (from, to) = (&one.probe.from, &one.probe.to);
        let Some((start, size)) = bars.get(to).copied() else {
            facts.expect(&format!("{to} has a memory BAR"), &false, &true);
            continue;
        };
        let found = faults(&one.kernel);
        let pair = format!("{machine}: {from} to {to}");
        for fault in &found {
            facts.expect(&format!("{pair}: requester"), &fault.requester, from);
            let inside = fault.address >= start && fault.address - start < size;
            let what = format!("{pair}: {:#x} is in the target's BAR", fault.address);
            facts.expect(&what, &inside, &true);
        }
        let mut row = vec![from.clone(), to.clone(), format!("{start:#x}")];
        for access in ["read", "write"] {
            let hits: Vec<String> = found
                .iter()
                .filter(|fault| fault.access == access)
                .map(|fault| format!("{:#x}", fault.address))
                .collect();
            if number == 0 {
                facts.expect(&format!("{pair}: {access} faults"), &hits.len(), &1);
            }
            row.push(if hits.is_empty() { "not logged".to_owned() } else { hits.join(", ") });
        }
        rows.push(row);
    }
    facts.table(&["from", "to", "target's BAR", "read fault at", "write fault at"], &rows);
}
