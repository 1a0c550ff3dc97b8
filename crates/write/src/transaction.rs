//! One application of one plan: preflight, phases, verification, and the operator's word.

use std::sync::atomic::{AtomicBool, Ordering};

use peerway_core::address::PciAddress;
use peerway_core::route::{Redirect, Route};
use peerway_core::snapshot::Snapshot;
use peerway_roads::knowledge::OutcomeResult;
use peerway_roads::op::{Found, Until};
use peerway_roads::plan::{Difference, Invalid, Phase, Step};
use peerway_roads::{Op, Outcome, Plan, RoadId};
use thiserror::Error;

use crate::executor::{Executor, StepError};
use crate::grant::{GrantError, WriteGrant};
use crate::health;
use crate::journal::{End, Entry, JOURNAL_SCHEMA, JournalError, State, Transaction, Way};
use crate::mutator::{Host, WriteError, is_reached};
use crate::recovery::{self, recover};
use crate::scope::{self, Outside};
use crate::untouched::Untouched;
use crate::wait;

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
    /// A step could not be taken back.
    Remains {
        /// The transaction.
        id: String,
        /// Which; 0: the state as a whole.
        step: u32,
        /// Why.
        why: String,
    },
}

/// Why a command did nothing, or stopped.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum TransactionError {
    /// No grant.
    #[error(transparent)]
    Grant(#[from] GrantError),
    /// The plan is not one as it was made.
    #[error(transparent)]
    Invalid(#[from] Invalid),
    /// It was made for another host.
    #[error("the plan was made for host {planned}, and this is {here}; make a plan here")]
    OtherHost {
        /// By the plan.
        planned: String,
        /// This one.
        here: String,
    },
    /// It was made before the host was booted.
    #[error("the plan was made before this boot; make a new plan")]
    OtherBoot,
    /// The host is not as the plan has it.
    #[error("stale plan: {}; make a new plan", spell(.0))]
    Stale(Vec<Difference>),
    /// A step reaches beyond the goal.
    #[error(transparent)]
    Outside(#[from] Outside),
    /// This host, or this program, does not do what the plan asks.
    #[error("not carried out here: {0}")]
    NotOffered(String),
    /// A process has one of the devices, and no step of the plan stops it.
    #[error("{}; stop what holds the devices, or name it when the plan is made (--stop)", .0.join("; "))]
    Held(Vec<String>),
    /// There is nothing to confirm.
    #[error("there is nothing to confirm; {0}")]
    NothingToConfirm(&'static str),
    /// The journal.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// A look failed before anything was changed.
    #[error(transparent)]
    Look(#[from] WriteError),
    /// The process ended here (simulated hosts).
    #[error("the process ended here; run recover")]
    Stopped,
}

/// The first differences, and how many there are.
fn spell(differences: &[Difference]) -> String {
    const SHOWN: usize = 5;
    let shown = |text: &Option<String>| text.clone().unwrap_or_else(|| "nothing".to_owned());
    let mut parts: Vec<String> = differences
        .iter()
        .take(SHOWN)
        .map(|one| {
            let (planned, now) = (shown(&one.planned), shown(&one.now));
            format!("{} was {planned}, is {now}", one.source)
        })
        .collect();
    if differences.len() > SHOWN {
        parts.push(format!("and {} more", differences.len() - SHOWN));
    }
    parts.join("; ")
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
    host.limit_to(plan);
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
    let room = steps.saturating_mul(ROOM_FOR_STEP)
        + ROOM_FOR_REST
        + u64::try_from(plan_bytes).unwrap_or(0);
    journal.reserve(room)?;
    journal.append(begin)?;
    let mut executor = Executor { host, journal, interrupted: settings.interrupted, mark: 0 };
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

/// Everything that can be refused before anything is changed.
fn preflight(host: &dyn Host, plan: &Plan) -> Result<Snapshot, TransactionError> {
    plan.check()?;
    let snapshot = host.snapshot()?;
    if plan.host != snapshot.origin.host {
        return Err(TransactionError::OtherHost {
            planned: plan.host.clone(),
            here: snapshot.origin.host,
        });
    }
    let here = snapshot.origin.hostname.known();
    if plan.made_for.hostname.as_ref() != here {
        let name = |name: Option<&String>| name.map_or("unknown".to_owned(), Clone::clone);
        return Err(TransactionError::OtherHost {
            planned: name(plan.made_for.hostname.as_ref()),
            here: name(here),
        });
    }
    if plan.made_for.boot_id.as_ref() != snapshot.origin.boot_id.known() {
        return Err(TransactionError::OtherBoot);
    }
    let differences = plan.differences(&snapshot);
    if !differences.is_empty() {
        return Err(TransactionError::Stale(differences));
    }
    scope::check(plan, &snapshot)?;
    if let Some(why) = host.refuses(plan) {
        return Err(TransactionError::NotOffered(why));
    }
    if let Some(why) = host.under_way() {
        return Err(TransactionError::NotOffered(format!("the kernel still has a write: {why}")));
    }
    nobody_holds(host, plan)?;
    // A log that cannot be read would prove nothing later.
    health::mark(host)?;
    Ok(snapshot)
}

/// Where no step stops anything, whoever holds a device now would hold it until the wait for that
/// gives up; refusing at once changes nothing.
fn nobody_holds(host: &dyn Host, plan: &Plan) -> Result<(), TransactionError> {
    let lets_go = |act: &Op| matches!(act, Op::Stop { .. } | Op::Persistence { .. });
    let waits = |act: &Op| matches!(act, Op::Wait { until: Until::NoHolders { .. }, .. });
    if plan.steps.iter().any(|step| lets_go(&step.act))
        || !plan.steps.iter().any(|step| waits(&step.act))
    {
        return Ok(());
    }
    match wait::holders(host, &scope::reach(plan)) {
        Ok(all) if all.is_empty() => Ok(()),
        Ok(all) => Err(TransactionError::Held(all)),
        Err(why) => Err(TransactionError::Held(vec![why])),
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

/// No line of the kernel log since the mark that should not be there.
fn healthy(executor: &mut Executor<'_, '_>, plan: &Plan) -> Result<(), StepError> {
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
fn verify(executor: &mut Executor<'_, '_>, plan: &Plan) -> Result<(), StepError> {
    let changes_devices = plan.canary.is_some();
    executor.set_mark()?;
    if changes_devices {
        let pairs = promised(plan, &executor.host.snapshot()?);
        let copies = executor.host.copies(&pairs)?;
        if copies.is_empty() {
            let why = "no pair was tested".to_owned();
            return Err(StepError::Waited { what: "proof by copies".to_owned(), why });
        }
        if let Some(lost) = copies.iter().find(|copied| !copied.intact) {
            let why = format!(
                "a copy from {} to {} did not arrive intact: {}",
                lost.from, lost.to, lost.detail
            );
            return Err(StepError::Waited { what: "proof by copies".to_owned(), why });
        }
        healthy(executor, plan)?;
    }
    state_is_last(executor, plan)
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
fn lost_entries(host: &dyn Host, plan: &Plan) -> Result<Vec<String>, WriteError> {
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

fn state_is_last(executor: &mut Executor<'_, '_>, plan: &Plan) -> Result<(), StepError> {
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

fn finish_or_wait(
    executor: &mut Executor<'_, '_>,
    id: String,
    plan: &Plan,
    snapshot: &Snapshot,
    settings: Settings<'_>,
) -> Result<Ending, TransactionError> {
    if steps_of(plan, Phase::Confirm).next().is_none() {
        let outcome = Some(Box::new(outcome(plan, snapshot, OutcomeResult::Succeeded, "")));
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
    host.limit_to(&plan);
    let snapshot = host.snapshot()?;
    if snapshot.origin.boot_id.known().map(String::as_str) != boot {
        return recover(grant, host, settings);
    }
    let late = host.uptime() > until;
    let mut executor = Executor { host, journal, interrupted: settings.interrupted, mark: 0 };
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
    match executor.forward(steps_of(&plan, Phase::Confirm)) {
        Ok(()) => succeed(&mut executor, id, &plan, &snapshot),
        Err((_, why)) if why.is_stop() => Err(TransactionError::Stopped),
        Err((_, why)) => recovery::back(&mut executor, &why.to_string(), None),
    }
}

pub(crate) fn succeed(
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
            Ok(()) => {}
            Err(why) if why.is_stop() => return Err(TransactionError::Stopped),
            Err(StepError::Journal(error)) => return Err(error.into()),
            Err(why) => {
                let (step, why) = (step.number, why.to_string());
                executor.journal.append(Entry::Remains { step, why: why.clone() })?;
                return Ok(Ending::Remains { id, step, why });
            }
        }
    }
    let snapshot = executor.host.snapshot()?;
    succeed(executor, id, plan, &snapshot)
}

/// What is not as the last confirmed change left it; empty if it is in force and nobody else was
/// touched. `None` if nothing was confirmed on this boot.
pub fn in_force(
    grant: &WriteGrant<'_>,
    host: &dyn Host,
) -> Result<Option<(String, Vec<String>)>, TransactionError> {
    let snapshot = host.snapshot()?;
    let boot = snapshot.origin.boot_id.known().map(String::as_str);
    let all = grant.journal.transactions();
    let last = all.iter().rev().find(|one| matches!(one.end(), Some((End::Succeeded, _))));
    let Some((id, plan, _, _, untouched)) =
        last.and_then(Transaction::begin).filter(|(_, _, began_in, ..)| *began_in == boot)
    else {
        return Ok(None);
    };
    let mark = last.and_then(Transaction::mark);
    let problems = problems(host, &snapshot, plan, untouched, mark)?;
    Ok(Some((id.to_owned(), problems)))
}

/// What is not as the plan left it, or was done to others since.
fn problems(
    host: &dyn Host,
    snapshot: &Snapshot,
    plan: &Plan,
    untouched: &Untouched,
    mark: Option<u64>,
) -> Result<Vec<String>, WriteError> {
    let mut problems: Vec<String> = plan
        .differences_after(snapshot)
        .into_iter()
        .map(|difference| spell(&[difference]))
        .collect();
    problems.extend(lost_entries(host, plan)?);
    // Who runs and who holds changes with the others' own lives; what is set does not.
    let lives = |text: &String| text.contains(" holders: ") || text.contains(" running: ");
    let changed = untouched.differences(&Untouched::of(snapshot, plan));
    problems.extend(changed.into_iter().filter(|text| !lives(text)));
    if let Some(mark) = mark {
        let seen = health::since(host, mark)?;
        problems.extend(seen.about(&plan.goal.devices).map(|trouble| trouble.text.clone()));
        if seen.lost {
            problems.push("records of the kernel log since the change were lost".to_owned());
        }
    }
    Ok(problems)
}
