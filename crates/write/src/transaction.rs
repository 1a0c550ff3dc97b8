//! One application of one plan: preflight, phases, verification, and the operator's word.

mod confirm;
mod error;
mod in_force;
mod preflight;
mod prove;
mod verify;

use std::sync::atomic::{AtomicBool, Ordering};

use peerway_core::snapshot::Snapshot;
use peerway_roads::knowledge::OutcomeResult;
use peerway_roads::plan::{Phase, Step};
use peerway_roads::{Outcome, Plan};

use crate::executor::{Executor, StepError};
use crate::grant::WriteGrant;
use crate::journal::{End, Entry, JOURNAL_SCHEMA};
use crate::mutator::Host;
use crate::recovery;
use crate::untouched::Untouched;

pub use confirm::confirm;
pub(crate) use confirm::go_on;
pub use error::TransactionError;
pub use in_force::{claims_unseen, in_force, was_made_to_last};
use preflight::preflight;
pub use prove::prove;
pub(crate) use verify::promised;
use verify::{healthy, verify};

/// Room that is reserved for each step: intent and done, both ways, with an environment file or
/// a reason in them.
const ROOM_FOR_STEP: u64 = 8 << 10;
/// And for the rest of the records, of which one holds the list of what is untouched.
const ROOM_FOR_REST: u64 = 256 << 10;

/// How a transaction is run.
#[derive(Clone, Copy, Debug)]
pub struct Settings<'a> {
    /// Seconds that the operator has to confirm.
    pub confirm_within: u64,
    /// Set by a signal.
    pub interrupted: &'a AtomicBool,
    /// What is tried where a device does not come back.
    pub ladder: Ladder,
}

/// How far the way back goes for a device that does not come back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ladder {
    /// What did not come back is said, and left as it is. For commands that nobody waits for.
    #[default]
    Leave,
    /// What did not come back earlier is bound anew: somebody may have mended it.
    Again,
    /// It is reset first.
    Reset,
}

/// What a command came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// There was nothing to do.
    Nothing,
    /// Verified; the operator has the word.
    Waiting {
        /// The transaction.
        id: String,
        /// Seconds since boot.
        until: u64,
    },
    /// In force.
    Succeeded {
        /// The transaction.
        id: String,
    },
    /// The first state is back.
    TakenBack {
        /// The transaction.
        id: String,
        /// Why.
        why: String,
        /// What about it could not be told.
        doubts: Vec<String>,
    },
    /// The host was booted meanwhile; nothing of it is left.
    GoneWithBoot {
        /// The transaction.
        id: String,
    },
    /// Somebody holds a device, so that it is not taken back yet.
    PendingHolder {
        /// The transaction.
        id: String,
        /// Who, or what stands in the way.
        holders: Vec<String>,
    },
    /// Steps could not be taken back.
    Remains {
        /// The transaction.
        id: String,
        /// Which, and why; the one that the others wait for first.
        left: Vec<Left>,
    },
}

/// A step that remains.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Left {
    /// Its number; 0: the state as a whole.
    pub step: u32,
    /// Why.
    pub why: String,
}

/// Where a transaction failed.
#[derive(Debug)]
struct Failure {
    phase: Phase,
    why: StepError,
}

/// Applies a plan.
pub fn apply(
    mut grant: WriteGrant<'_>,
    host: &mut dyn Host,
    plan: &Plan,
    settings: Settings<'_>,
) -> Result<Ending, TransactionError> {
    grant.nothing_left()?;
    let snapshot = preflight(host, plan)?;
    let journal = &mut grant.journal;
    let id = journal.next_id();
    let begin = Entry::Begin {
        schema: JOURNAL_SCHEMA,
        id: id.clone(),
        plan: Box::new(plan.clone()),
        boot_id: snapshot.origin.boot_id.known().cloned(),
        began: host.wall(),
        confirm_within: settings.confirm_within,
        untouched: Box::new(Untouched::of(&snapshot, plan)),
    };
    // Room for the way back is there before the first step forward.
    let steps = u64::try_from(plan.steps.len()).unwrap_or(u64::MAX);
    let plan_bytes = serde_json::to_vec(plan).map_or(0, |text| text.len());
    // Whole files stand in the plan, in the records of their steps, and as what they replace.
    let plan_bytes = u64::try_from(plan_bytes).unwrap_or(0);
    let room = steps.saturating_mul(ROOM_FOR_STEP) + ROOM_FOR_REST + plan_bytes.saturating_mul(3);
    journal.reserve(room)?;
    host.keep_for(&id)?;
    journal.append(begin)?;
    host.take_up(&id, plan);
    let mut executor = Executor::new(host, journal, settings);
    match phases(&mut executor, plan) {
        Ok(()) => finish_or_wait(&mut executor, id, plan, &snapshot, settings),
        Err(failure) => {
            if failure.why.is_stop() {
                return Err(TransactionError::Stopped);
            }
            let outcome = outcome_of(plan, &snapshot, &failure);
            recovery::back(&mut executor, &failure.why.to_string(), outcome)
        }
    }
}

fn steps_of(plan: &Plan, phase: Phase) -> impl Iterator<Item = &Step> {
    plan.steps.iter().filter(move |step| step.phase == phase)
}

/// Everything up to the operator's word.
fn phases(executor: &mut Executor<'_, '_>, plan: &Plan) -> Result<(), Failure> {
    for phase in [Phase::Prepare, Phase::Control, Phase::Canary, Phase::Rest] {
        let at = |why: StepError| Failure { phase, why };
        if phase != Phase::Prepare && steps_of(plan, phase).next().is_none() {
            continue;
        }
        // Faults of the processes that were stopped do not count.
        executor.set_mark().map_err(at)?;
        executor.forward(steps_of(plan, phase)).map_err(|(_, why)| at(why))?;
        if phase != Phase::Prepare {
            healthy(executor, plan).map_err(at)?;
        }
    }
    verify(executor, plan).map_err(|why| Failure { phase: Phase::Rest, why })?;
    if executor.interrupted.load(Ordering::SeqCst) {
        return Err(Failure { phase: Phase::Rest, why: StepError::Interrupted });
    }
    Ok(())
}

fn finish_or_wait(
    executor: &mut Executor<'_, '_>,
    id: String,
    plan: &Plan,
    snapshot: &Snapshot,
    settings: Settings<'_>,
) -> Result<Ending, TransactionError> {
    // Before a driver is bound nothing is proved: jobs are let in later.
    if plan.before_driver || steps_of(plan, Phase::Confirm).next().is_none() {
        let outcome = outcome(plan, snapshot, OutcomeResult::Succeeded, "");
        let outcome = (!plan.before_driver).then(|| Box::new(outcome));
        let ended = executor.host.wall();
        executor.journal.append(Entry::End { end: End::Succeeded, ended, outcome })?;
        return Ok(Ending::Succeeded { id });
    }
    let until = executor.host.uptime().saturating_add(settings.confirm_within);
    let mark = executor.mark;
    executor.journal.append(Entry::Waiting { until, mark })?;
    Ok(Ending::Waiting { id, until })
}

/// What is to be remembered of a failure: nothing where it does not speak of the road.
fn outcome_of(plan: &Plan, snapshot: &Snapshot, failure: &Failure) -> Option<Outcome> {
    let result = match (failure.phase, &failure.why) {
        (_, StepError::Interrupted | StepError::Journal(_) | StepError::Unexpected { .. })
        | (Phase::Prepare | Phase::Confirm, _) => return None,
        (Phase::Control, _) => OutcomeResult::ControlFailed,
        (Phase::Canary | Phase::Rest, _) => OutcomeResult::Failed,
    };
    Some(outcome(plan, snapshot, result, &failure.why.to_string()))
}

fn outcome(plan: &Plan, snapshot: &Snapshot, result: OutcomeResult, reason: &str) -> Outcome {
    let device = plan.canary.or(plan.goal.devices.first().copied());
    let board = device.and_then(|address| snapshot.device(address)?.ids.known().copied());
    let driver = snapshot.nvidia.version.known().map(|version| version.version.clone());
    Outcome {
        road: plan.road,
        board,
        driver: driver.unwrap_or_default(),
        kernel: snapshot.kernel.release.known().cloned().unwrap_or_default(),
        result,
        reason: reason.to_owned(),
    }
}
