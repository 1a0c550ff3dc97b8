//! Whether a change is what it should be: a quiet log, data that arrives, the last state, and
//! everybody else as before.

use peerway_core::address::PciAddress;
use peerway_core::route::{Redirect, Route};
use peerway_core::snapshot::Snapshot;
use peerway_roads::op::Found;
use peerway_roads::{Op, Plan, RoadId};

use super::error::spell;
use crate::executor::{Executor, StepError};
use crate::health;
use crate::journal::Transaction;
use crate::mutator::{Host, WriteError, is_reached};
use crate::untouched::Untouched;

/// No line of the kernel log since the mark that should not be there.
pub(super) fn healthy(executor: &mut Executor<'_, '_>, plan: &Plan) -> Result<(), StepError> {
    let seen = health::since(executor.host, executor.mark)?;
    let what = "a quiet kernel log".to_owned();
    if let Some(trouble) = seen.about(&plan.goal.devices) {
        return Err(StepError::Waited { what, why: trouble.text.clone() });
    }
    if let Some(text) = Untouched::faults(plan, &seen).into_iter().next() {
        let why = format!("a protected device has new faults: {text}");
        return Err(StepError::Waited { what, why });
    }
    if seen.lost {
        let why = "records were lost, so that nothing is proved by it".to_owned();
        return Err(StepError::Waited { what, why });
    }
    Ok(())
}

/// The host is what it should be, the others are what they were, data arrives, and the log is
/// quiet.
pub(super) fn verify(executor: &mut Executor<'_, '_>, plan: &Plan) -> Result<(), StepError> {
    let changes_devices = plan.proves_at_once();
    executor.set_mark()?;
    if changes_devices {
        copied(executor, plan)?;
        healthy(executor, plan)?;
    }
    state_is_last(executor, plan)
}

/// Data arrives, on every pair that the road promises.
pub(super) fn copied(executor: &mut Executor<'_, '_>, plan: &Plan) -> Result<(), StepError> {
    let what = || "proof by copies".to_owned();
    let pairs = promised(plan, &executor.host.snapshot()?);
    let copies = executor.host.copies(&pairs)?;
    if copies.is_empty() {
        return Err(StepError::Waited { what: what(), why: "no pair was tested".to_owned() });
    }
    match copies.iter().find(|copied| !copied.intact) {
        None => Ok(()),
        Some(lost) => {
            let why = format!(
                "a copy from {} to {} did not arrive intact: {}",
                lost.from, lost.to, lost.detail
            );
            Err(StepError::Waited { what: what(), why })
        }
    }
}

/// The pairs that a road makes work: all of the goal's; with redirect cleared, those that turn
/// round at a switch now.
pub(crate) fn promised(plan: &Plan, snapshot: &Snapshot) -> Vec<(PciAddress, PciAddress)> {
    let devices = &plan.goal.devices;
    let turns = |from: PciAddress, to: PciAddress| {
        let (Some(from), Some(to)) = (snapshot.device(from), snapshot.device(to)) else {
            return false;
        };
        Route::between(snapshot, from, to).redirect() == Redirect::None
    };
    devices
        .iter()
        .flat_map(|from| devices.iter().map(move |to| (*from, *to)))
        .filter(|(from, to)| from != to)
        .filter(|(from, to)| plan.road != RoadId::AcsDirect || turns(*from, *to))
        .collect()
}

/// Entries of the peer map that the plan made and that are not there as it made them.
pub(super) fn lost_entries(host: &dyn Host, plan: &Plan) -> Result<Vec<String>, WriteError> {
    let mut lost = Vec::new();
    for step in plan.steps.iter().filter(|step| matches!(step.act, Op::Map(_))) {
        let found = host.current(&step.act)?;
        if !is_reached(&step.act, &found) {
            let state = match &found {
                Found::Nothing => "gone",
                Found::Value(state) => state,
            };
            lost.push(format!("step {}: {} is {state}", step.number, step.set));
        }
    }
    lost.extend(host.inspect(plan)?);
    Ok(lost)
}

pub(super) fn state_is_last(executor: &mut Executor<'_, '_>, plan: &Plan) -> Result<(), StepError> {
    let snapshot = executor.host.snapshot()?;
    let differences = plan.differences_after(&snapshot);
    if !differences.is_empty() {
        let what = "the state that the plan leads to".to_owned();
        return Err(StepError::Waited { what, why: spell(&differences) });
    }
    let lost = lost_entries(executor.host, plan)?;
    if !lost.is_empty() {
        let what = "the map that the plan made".to_owned();
        return Err(StepError::Waited { what, why: lost.join("; ") });
    }
    let open = executor.journal.open_transaction();
    let before =
        open.as_ref().and_then(Transaction::begin).map(|(.., untouched)| untouched.clone());
    let changed = before.unwrap_or_default().differences(&Untouched::of(&snapshot, plan));
    if !changed.is_empty() {
        let what = "everybody else untouched".to_owned();
        return Err(StepError::Waited { what, why: changed.join("; ") });
    }
    Ok(())
}
