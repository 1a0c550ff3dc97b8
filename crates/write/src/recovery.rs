//! Back to the first state, or on to the last.

use peerway_read::root::SMALL;
use peerway_roads::op::{Environment, Found};
use peerway_roads::plan::Difference;
use peerway_roads::{Op, Outcome, Plan};

use crate::executor::{Executor, StepError, bound_device, harms_holders};
use crate::grant::WriteGrant;
use crate::health;
use crate::journal::{End, Entry, State, Transaction, Way};
use crate::mutator::{Host, WriteError, is_reached};
use crate::scope;
use crate::transaction::{Ending, Settings, TransactionError, go_on};
use crate::wait;

/// Finishes what a crash, a holder or a failing step left: after one call the host is in the first
/// state or in the last, unless a holder lives or a step keeps failing; then it can be repeated.
/// A transaction that waits for the operator's word in time is left alone.
pub fn recover(
    mut grant: WriteGrant<'_>,
    host: &mut dyn Host,
    settings: Settings<'_>,
) -> Result<Ending, TransactionError> {
    let Some(open) = grant.journal.open_transaction() else { return Ok(Ending::Nothing) };
    let Some((id, plan, ..)) = open.begin() else { return Ok(Ending::Nothing) };
    let (id, plan) = (id.to_owned(), plan.clone());
    let (state, confirmed) = (open.state(), open.is_confirmed());
    let outcome = open.turned_back().and_then(|(_, outcome)| outcome.cloned());
    let why = match open.turned_back() {
        Some((why, _)) => why.to_owned(),
        None => match &state {
            State::Waiting { .. } => "it was not confirmed in time".to_owned(),
            _ => "it was cut off".to_owned(),
        },
    };
    host.limit_to(&plan);
    let journal = &mut grant.journal;
    let mut executor = Executor { host, journal, interrupted: settings.interrupted, mark: 0 };
    if let Some(gone) = gone_with_boot(&mut executor)? {
        return Ok(gone);
    }
    match state {
        State::Waiting { until } if executor.host.uptime() <= until => {
            Ok(Ending::Waiting { id, until })
        }
        _ if confirmed => go_on(&mut executor, id, &plan),
        _ => back(&mut executor, &why, outcome),
    }
}

/// The boot that the host is in, from the one file that says so: going back has to begin without a
/// look at everything, which can hang behind the very device that is to be brought back.
fn boot_now(host: &dyn Host) -> Result<Option<String>, TransactionError> {
    let id = host.root()?.text("/proc/sys/kernel/random/boot_id", SMALL).ok();
    Ok(id.map(|id| id.trim().to_owned()))
}

/// Ends the open transaction where the host was booted since it began: nothing of it is left, and
/// its devices may be others' by now. Only two boots that are known to differ say so. Jobs of this
/// boot begin without peer access, since what the transaction was about is proved no more.
fn gone_with_boot(executor: &mut Executor<'_, '_>) -> Result<Option<Ending>, TransactionError> {
    let Some(open) = executor.journal.open_transaction() else { return Ok(None) };
    let Some((id, plan, boot, ..)) = open.begin() else { return Ok(None) };
    let (id, boot) = (id.to_owned(), boot.map(str::to_owned));
    let safe = safe_environment(plan).cloned();
    let now = boot_now(executor.host)?;
    if boot.is_none() || now.is_none() || boot == now {
        return Ok(None);
    }
    if let Some(safe) = safe
        && let Err(why) = take(executor, 0, &safe)
    {
        return stuck(executor, id, why).map(Some);
    }
    let ended = executor.host.wall();
    executor.journal.append(Entry::End { end: End::GoneWithBoot, ended, outcome: None })?;
    Ok(Some(Ending::GoneWithBoot { id }))
}

/// Takes the open transaction back, whatever its state.
pub fn roll_back(
    mut grant: WriteGrant<'_>,
    host: &mut dyn Host,
    settings: Settings<'_>,
    why: &str,
) -> Result<Ending, TransactionError> {
    if grant.journal.open_transaction().is_none() {
        return Ok(Ending::Nothing);
    }
    let journal = &mut grant.journal;
    let mut executor = Executor { host, journal, interrupted: settings.interrupted, mark: 0 };
    match gone_with_boot(&mut executor)? {
        Some(gone) => Ok(gone),
        None => back(&mut executor, why, None),
    }
}

/// Takes back everything that is in force on this boot, the newest first.
pub fn undo_all(
    mut grant: WriteGrant<'_>,
    host: &mut dyn Host,
    settings: Settings<'_>,
) -> Result<Vec<Ending>, TransactionError> {
    let boot = boot_now(host)?;
    let mut endings = Vec::new();
    let journal = &mut grant.journal;
    let mut executor = Executor { host, journal, interrupted: settings.interrupted, mark: 0 };
    if executor.journal.open_transaction().is_some() {
        endings.push(match gone_with_boot(&mut executor)? {
            Some(gone) => gone,
            None => back(&mut executor, "undone", None)?,
        });
    }
    let ids: Vec<String> = executor
        .journal
        .transactions()
        .iter()
        .rev()
        .filter(|one| matches!(one.end(), Some((End::Succeeded, _))))
        .filter_map(Transaction::begin)
        .filter(|(_, _, began_in, ..)| *began_in == boot.as_deref())
        .map(|(id, ..)| id.to_owned())
        .collect();
    let over =
        |last: &Ending| matches!(last, Ending::TakenBack { .. } | Ending::GoneWithBoot { .. });
    for id in ids {
        if endings.last().is_some_and(|last| !over(last)) {
            break;
        }
        executor.journal.append(Entry::Reopened { id })?;
        endings.push(back(&mut executor, "undone", None)?);
    }
    if endings.iter().all(over) {
        open_again(&mut executor)?;
    }
    Ok(endings)
}

/// The way back, by the same executor: inverses of what was begun, the last first.
pub(crate) fn back(
    executor: &mut Executor<'_, '_>,
    why: &str,
    outcome: Option<Outcome>,
) -> Result<Ending, TransactionError> {
    let open = executor.journal.open_transaction();
    let begin = open.as_ref().and_then(Transaction::begin);
    let Some((id, plan)) = begin.map(|(id, plan, ..)| (id.to_owned(), plan.clone())) else {
        return Ok(Ending::Nothing);
    };
    let turned = open.is_some_and(|one| matches!(one.state(), State::Back));
    if !turned {
        let outcome = outcome.clone().map(Box::new);
        executor.journal.append(Entry::TurningBack { why: why.to_owned(), outcome })?;
    }
    executor.host.limit_to(&plan);
    // What went wrong forward is known; here it counts what goes wrong on the way back.
    executor.set_mark().map_err(stopped)?;
    if let Err(why) = inverses(executor, &plan) {
        return stuck(executor, id, why);
    }
    if let Some(why) = not_first(executor, &plan)? {
        return remains(executor, id, 0, why);
    }
    let ended = executor.host.wall();
    let outcome = outcome.map(Box::new);
    executor.journal.append(Entry::End { end: End::TakenBack, ended, outcome })?;
    Ok(Ending::TakenBack { id, why: why.to_owned() })
}

fn remains(
    executor: &mut Executor<'_, '_>,
    id: String,
    step: u32,
    why: String,
) -> Result<Ending, TransactionError> {
    executor.journal.append(Entry::Remains { step, why: why.clone() })?;
    Ok(Ending::Remains { id, step, why })
}

/// Why the way back is not at its end.
enum Stuck {
    Holders(Vec<String>),
    Step(u32, String),
    Ended(TransactionError),
}

/// Writes down why the way back is not at its end.
fn stuck(
    executor: &mut Executor<'_, '_>,
    id: String,
    why: Stuck,
) -> Result<Ending, TransactionError> {
    match why {
        Stuck::Holders(holders) => {
            executor.journal.append(Entry::PendingHolder { holders: holders.clone() })?;
            Ok(Ending::PendingHolder { id, holders })
        }
        Stuck::Step(step, why) => remains(executor, id, step, why),
        Stuck::Ended(error) => Err(error),
    }
}

fn stopped(error: StepError) -> TransactionError {
    match error {
        StepError::Journal(error)
            if !matches!(
                error,
                crate::journal::JournalError::Store(crate::store::StoreError::Stopped)
            ) =>
        {
            error.into()
        }
        StepError::Write(error) if !matches!(error, WriteError::Stopped { .. }) => error.into(),
        _ => TransactionError::Stopped,
    }
}

fn inverses(executor: &mut Executor<'_, '_>, plan: &Plan) -> Result<(), Stuck> {
    let begun = executor.journal.open_transaction().map(|one| one.begun()).unwrap_or_default();
    // Whatever follows, new jobs begin without peer access.
    let safe = plan.steps.iter().find_map(|step| match &step.act {
        act @ Op::WriteEnvironment { kind: Environment::Safe, .. }
            if begun.iter().any(|one| one.step == step.number) =>
        {
            Some(act.clone())
        }
        _ => None,
    });
    if let Some(safe) = safe {
        take(executor, 0, &safe)?;
    }
    for one in begun.iter().rev() {
        let inverse =
            one.act.inverse(&one.found).map_err(|why| Stuck::Step(one.step, why.to_string()))?;
        if inverse == Op::Nothing {
            continue;
        }
        // What the process before this one began may still change what is read here.
        if let Some(what) = executor.host.under_way() {
            let mut holders = holders_or_why(executor, plan);
            holders.push(format!("a write still waits in the kernel: {what}"));
            return Err(Stuck::Holders(holders));
        }
        let current = executor.host.current(&meaningful(&inverse));
        let needed = !current.is_ok_and(|found| is_reached(&inverse, &found));
        if let Some(device) = bound_device(&inverse)
            && executor.host.is_stuck(device)
        {
            let mut holders = holders_or_why(executor, plan);
            holders.push(format!("an unbinding of {device} still waits in the kernel"));
            return Err(Stuck::Holders(holders));
        }
        if needed && harms_holders(&inverse) {
            let holders = holders_or_why(executor, plan);
            if !holders.is_empty() {
                return Err(Stuck::Holders(holders));
            }
        }
        take(executor, one.step, &inverse)?;
    }
    Ok(())
}

/// An inverse that a host can be asked about: those whose meaning is in the journal look at the
/// same place as their counterpart.
fn meaningful(inverse: &Op) -> Op {
    match inverse {
        Op::Unfence { node } => Op::Fence { node: node.clone(), mode: 0 },
        other => other.clone(),
    }
}

/// Not being able to tell counts as somebody.
fn holders_or_why(executor: &Executor<'_, '_>, plan: &Plan) -> Vec<String> {
    wait::holders(executor.host, &scope::reach(plan)).unwrap_or_else(|why| vec![why])
}

fn take(executor: &mut Executor<'_, '_>, step: u32, act: &Op) -> Result<(), Stuck> {
    match executor.step(step, Way::Back, act, None) {
        Ok(()) => Ok(()),
        Err(error) if error.is_stop() => Err(Stuck::Ended(TransactionError::Stopped)),
        Err(StepError::Journal(error)) => Err(Stuck::Ended(error.into())),
        Err(StepError::Write(WriteError::Hangs { act })) => {
            Err(Stuck::Holders(vec![format!("{act} does not come back")]))
        }
        Err(error) => Err(Stuck::Step(step, error.to_string())),
    }
}

/// What of the goal's own devices is not as the plan found it, or did not come back.
fn not_first(
    executor: &mut Executor<'_, '_>,
    plan: &Plan,
) -> Result<Option<String>, TransactionError> {
    let snapshot = executor.host.snapshot()?;
    let ours = |one: &Difference| {
        one.source.starts_with("/sys/bus/pci/")
            || one.source.starts_with("/sys/kernel/iommu_groups/")
            || one.source.starts_with("/proc/driver/nvidia/gpus/")
    };
    let left: Vec<Difference> = plan.differences(&snapshot).into_iter().filter(ours).collect();
    if let Some(one) = left.first() {
        let shown = |text: &Option<String>| text.clone().unwrap_or_else(|| "nothing".to_owned());
        let (planned, now) = (shown(&one.planned), shown(&one.now));
        return Ok(Some(format!("{} was {planned} and is {now}", one.source)));
    }
    let seen = health::since(executor.host, executor.mark)?;
    let trouble = plan.goal.devices.iter().find_map(|device| seen.of_driver(*device));
    Ok(trouble.map(|trouble| {
        format!(
            "a device did not come back: {}; it needs a reset, or the host a reboot",
            trouble.text
        )
    }))
}

/// Writes the safe environment of the last plan out of turn: what was proved holds no more.
pub fn close(grant: &WriteGrant<'_>, host: &mut dyn Host) -> Result<(), WriteError> {
    let all = grant.journal.transactions();
    let plan = all.iter().rev().find_map(Transaction::begin).map(|(_, plan, ..)| plan);
    match plan.and_then(safe_environment) {
        Some(safe) => host.perform(safe),
        None => Ok(()),
    }
}

/// The act of a plan that writes the safe environment.
fn safe_environment(plan: &Plan) -> Option<&Op> {
    let safe = |act: &&Op| matches!(act, Op::WriteEnvironment { kind: Environment::Safe, .. });
    plan.steps.iter().map(|step| &step.act).find(safe)
}

/// Removes the environment where it is one of ours that nothing in force needs any more: what was
/// written out of turn, after a boot or a failed look, has no inverse in the journal.
fn open_again(executor: &mut Executor<'_, '_>) -> Result<(), TransactionError> {
    let Found::Value(there) = executor.host.current(&Op::RemoveEnvironment)? else { return Ok(()) };
    let all = executor.journal.transactions();
    let ours = all.iter().filter_map(Transaction::begin).any(|(_, plan, ..)| {
        plan.steps.iter().any(
            |step| matches!(&step.act, Op::WriteEnvironment { content, .. } if *content == there),
        )
    });
    if ours {
        executor.host.perform(&Op::RemoveEnvironment)?;
    }
    Ok(())
}
