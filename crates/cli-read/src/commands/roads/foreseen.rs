//! The roads as they would be on another kernel or with another driver, as far as a version tells.

use peerway_core::observed::Observed;
use peerway_core::snapshot::Snapshot;
use peerway_roads::{Knowledge, Passed, Road, Roads};

use super::{constraints, with_request};
use crate::args::{Global, RoadsArgs};
use crate::error::CliError;
use crate::exit::Exit;
use crate::host::{Looked, pair_scope};
use crate::output::complain;

/// The host with the versions that were asked about.
pub(super) fn of(snapshot: &Snapshot, wanted: &RoadsArgs) -> Snapshot {
    let mut snapshot = snapshot.clone();
    if let Some(release) = &wanted.if_kernel {
        snapshot.kernel.release = Observed::Known(release.clone());
    }
    if let (Some(version), Observed::Known(driver)) =
        (&wanted.if_driver, &mut snapshot.nvidia.version)
    {
        driver.version.clone_from(version);
    }
    snapshot
}

/// Says on standard error which roads that are in force would be closed.
pub(super) fn warn(
    global: &Global,
    wanted: &RoadsArgs,
    looked: &Looked,
    knowledge: &Knowledge,
) -> Result<Exit, CliError> {
    let judge = |snapshot: &Snapshot| -> Result<Roads, CliError> {
        let diagnosis = peerway_core::diagnose::diagnose(snapshot, &pair_scope(global));
        let constraints = constraints(snapshot, &wanted.wishes)?;
        with_request(snapshot, &diagnosis, &constraints, knowledge, |request| {
            peerway_roads::roads(request)
        })
        .map_err(|error| CliError::Wishes { why: error.to_string() })
    };
    if wanted.if_driver.is_some() && looked.snapshot.nvidia.version.known().is_none() {
        complain(
            "peerway: the version of the driver that is loaded is not known, and so not which \
             roads another one would close\n",
        );
        return Ok(Exit::Undecided);
    }
    let (now, then) = (judge(&looked.snapshot)?, judge(&of(&looked.snapshot, wanted))?);
    let what: Vec<String> = [("kernel", &wanted.if_kernel), ("driver", &wanted.if_driver)]
        .into_iter()
        .filter_map(|(what, version)| Some(format!("{what} {}", version.as_ref()?)))
        .collect();
    let what = what.join(", ");
    let mut exit = Exit::Fine;
    for road in now.roads.iter().filter(|road| road.in_force == Passed::Yes) {
        let Some(other) = then.roads.iter().find(|other| other.id == road.id) else { continue };
        for closed in closed(road, other) {
            exit = Exit::Findings;
            complain(&format!("peerway: {} is in force, and not with {what}: {closed}\n", road.id));
        }
    }
    Ok(exit)
}

/// Gates that pass now and would not.
fn closed<'a>(now: &'a Road, then: &'a Road) -> impl Iterator<Item = String> + 'a {
    then.gates.iter().filter(|gate| gate.passed != Passed::Yes).filter_map(|gate| {
        let passes =
            |one: &&peerway_roads::Gate| one.code == gate.code && one.passed == Passed::Yes;
        now.gates.iter().find(passes)?;
        Some(format!("{} = {}: {}", gate.code, gate.passed, gate.read))
    })
}
