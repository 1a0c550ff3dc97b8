//! The operator's word.

use peerway_core::snapshot::Snapshot;
use peerway_roads::knowledge::OutcomeResult;
use peerway_roads::plan::{Phase, Step};
use peerway_roads::{Op, Plan};

use super::in_force::problems;
use super::verify::{healthy, lost_entries, state_is_last};
use super::{Ending, Left, Settings, TransactionError, outcome, steps_of};
use crate::executor::{Executor, StepError};
use crate::grant::WriteGrant;
use crate::journal::{End, Entry, State, Transaction, Way};
use crate::mutator::Host;
use crate::recovery::{self, recover};

/// The operator's word: the change stays.
pub fn confirm(
    mut grant: WriteGrant<'_>,
    host: &mut dyn Host,
    settings: Settings<'_>,
) -> Result<Ending, TransactionError> {
    let journal = &mut grant.journal;
    let open = journal.open_transaction();
    let Some(open) = open else {
        return Err(TransactionError::NothingToConfirm("no transaction is under way"));
    };
    let State::Waiting { until } = open.state() else {
        return Err(TransactionError::NothingToConfirm("run recover first"));
    };
    let Some((id, plan, boot, ..)) = open.begin() else {
        return Err(TransactionError::NothingToConfirm("the journal has no plan"));
    };
    let (id, plan) = (id.to_owned(), plan.clone());
    host.take_up(&id, &plan);
    let snapshot = host.snapshot()?;
    if snapshot.origin.boot_id.known().map(String::as_str) != boot {
        return recover(grant, host, settings);
    }
    let late = host.uptime() > until;
    let mut executor = Executor::new(host, journal, settings);
    executor.mark = executor.journal.open_transaction().and_then(|one| one.mark()).unwrap_or(0);
    let still = if late {
        Err(StepError::Waited {
            what: "the operator's word".to_owned(),
            why: "it came too late".to_owned(),
        })
    } else {
        state_is_last(&mut executor, &plan).and_then(|()| healthy(&mut executor, &plan))
    };
    if let Err(why) = still {
        if why.is_stop() {
            return Err(TransactionError::Stopped);
        }
        return recovery::back(&mut executor, &why.to_string(), None);
    }
    executor.journal.append(Entry::Confirmed)?;
    for step in steps_of(&plan, Phase::Confirm) {
        let taken = executor.forward([step]).map_err(|(_, why)| why);
        match taken.and_then(|()| still_there(&executor, &plan, step)) {
            Ok(()) => {}
            Err(why) if why.is_stop() => return Err(TransactionError::Stopped),
            Err(why) => return recovery::back(&mut executor, &why.to_string(), None),
        }
    }
    succeed(&mut executor, id, &plan, &snapshot)
}

/// Once jobs are let in, that the map is still there: a driver may have gone since the last look, and what the
/// kernel's event wrote then was written over just now. Asked before anything is started again.
fn still_there(executor: &Executor<'_, '_>, plan: &Plan, step: &Step) -> Result<(), StepError> {
    if !matches!(step.act, Op::WriteEnvironment { .. }) {
        return Ok(());
    }
    let lost = lost_entries(executor.host, plan)?;
    if lost.is_empty() {
        return Ok(());
    }
    Err(StepError::Waited { what: "the map that the plan made".to_owned(), why: lost.join("; ") })
}

pub(super) fn succeed(
    executor: &mut Executor<'_, '_>,
    id: String,
    plan: &Plan,
    snapshot: &Snapshot,
) -> Result<Ending, TransactionError> {
    let outcome = Some(Box::new(outcome(plan, snapshot, OutcomeResult::Succeeded, "")));
    let ended = executor.host.wall();
    executor.journal.append(Entry::End { end: End::Succeeded, ended, outcome })?;
    Ok(Ending::Succeeded { id })
}

/// Finishes a confirmation that was cut off: what is left of its steps.
pub(crate) fn go_on(
    executor: &mut Executor<'_, '_>,
    id: String,
    plan: &Plan,
) -> Result<Ending, TransactionError> {
    let open = executor.journal.open_transaction();
    let mark = open.as_ref().and_then(Transaction::mark);
    let untouched =
        open.as_ref().and_then(Transaction::begin).map(|(.., untouched)| untouched.clone());
    let done = open.as_ref().map(Transaction::done).unwrap_or_default();
    let left: Vec<&Step> =
        steps_of(plan, Phase::Confirm).filter(|step| !done.contains(&step.number)).collect();
    // Jobs have not been let in yet, and much may have happened since the word was given.
    if left.iter().any(|step| matches!(step.act, Op::WriteEnvironment { .. })) {
        let (host, untouched) = (&*executor.host, untouched.unwrap_or_default());
        let problems = problems(host, &host.snapshot()?, plan, &untouched, mark)?;
        if !problems.is_empty() {
            return recovery::back(executor, &problems.join("; "), None);
        }
    }
    for step in left {
        // It may have been taken without having been written down, so that nothing is expected.
        match executor.step(step.number, Way::Forward, &step.act, None) {
            Ok(()) => match still_there(executor, plan, step) {
                Ok(()) => {}
                Err(why) if why.is_stop() => return Err(TransactionError::Stopped),
                Err(why) => return recovery::back(executor, &why.to_string(), None),
            },
            Err(why) if why.is_stop() => return Err(TransactionError::Stopped),
            Err(StepError::Journal(error)) => return Err(error.into()),
            Err(why) => {
                let (step, why) = (step.number, why.to_string());
                executor.journal.append(Entry::Remains { step, why: why.clone() })?;
                return Ok(Ending::Remains { id, left: vec![Left { step, why }] });
            }
        }
    }
    let snapshot = executor.host.snapshot()?;
    succeed(executor, id, plan, &snapshot)
}
