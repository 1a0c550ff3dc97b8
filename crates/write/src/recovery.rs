//! Back to the first state, or on to the last.

mod compared;
mod harmless;
mod ladder;
mod order;

use std::collections::BTreeMap;

use peerway_core::address::PciAddress;
use peerway_read::root::SMALL;
use peerway_roads::op::{Environment, Found};
use peerway_roads::plan::Step;
use peerway_roads::{Op, Outcome, Plan};

use crate::executor::{Executor, StepError, bound_device};
use crate::grant::WriteGrant;
use crate::health;
use crate::journal::{Begun, End, Entry, State, Transaction, Way};
use crate::mutator::{Host, WriteError, is_reached, spell};
use crate::transaction::{Ending, Left, Settings, TransactionError, go_on};
use harmless::harmless;
use ladder::Board;
use order::Order;

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
    host.take_up(&id, &plan);
    let journal = &mut grant.journal;
    let mut executor = Executor::new(host, journal, settings);
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

/// Ends the open transaction where the host was booted since it began: nothing of it is left but the
/// files that were to last, and its devices may be others' by now. Only two boots that are known to
/// differ say so. Jobs of this boot begin without peer access, since what the transaction was about
/// is proved no more.
fn gone_with_boot(executor: &mut Executor<'_, '_>) -> Result<Option<Ending>, TransactionError> {
    let Some(open) = executor.journal.open_transaction() else { return Ok(None) };
    let Some((id, plan, boot, ..)) = open.begin() else { return Ok(None) };
    let (id, plan, boot) = (id.to_owned(), plan.clone(), boot.map(str::to_owned));
    let now = boot_now(executor.host)?;
    if boot.is_none() || now.is_none() || boot == now {
        return Ok(None);
    }
    executor.host.take_up(&id, &plan);
    if let Some(safe) = safe_environment(&plan)
        && let Err(why) = take(executor, 0, &safe.act)
    {
        return stuck(executor, id, why).map(Some);
    }
    let left = match lasting(executor) {
        Ok(left) => left,
        Err(why) => return stuck(executor, id, why).map(Some),
    };
    if !left.is_empty() {
        return remains(executor, id, left).map(Some);
    }
    let ended = executor.host.wall();
    executor.journal.append(Entry::End { end: End::GoneWithBoot, ended, outcome: None })?;
    Ok(Some(Ending::GoneWithBoot { id }))
}

/// Takes back what of the open transaction outlasts a boot, the last first; says what remains.
fn lasting(executor: &mut Executor<'_, '_>) -> Result<Vec<Left>, Stuck> {
    let begun = executor.journal.open_transaction().map(|one| one.begun()).unwrap_or_default();
    let mut left = Vec::new();
    for one in begun.iter().rev().filter(|one| one.act.outlasts_boot()) {
        let taken = match one.act.inverse(&one.found) {
            Ok(Op::Nothing) => Ok(()),
            Ok(inverse) => take(executor, one.step, &inverse),
            Err(why) => Err(Stuck::Step(Left { step: one.step, why: why.to_string() })),
        };
        match taken {
            Ok(()) => {}
            Err(Stuck::Step(failed)) => left.push(failed),
            Err(stuck) => return Err(stuck),
        }
    }
    Ok(left)
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
    let mut executor = Executor::new(host, journal, settings);
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
    let executor = &mut Executor::new(host, journal, settings);
    if executor.journal.open_transaction().is_some() {
        endings.push(match gone_with_boot(executor)? {
            Some(gone) => gone,
            None => back(executor, "undone", None)?,
        });
    }
    // What was made to last on an earlier boot is files, which nothing keeps.
    let over =
        |last: &Ending| matches!(last, Ending::TakenBack { .. } | Ending::GoneWithBoot { .. });
    for id in succeeded(executor, |one, began_in| {
        let earlier = boot.is_some() && began_in.is_some() && began_in != boot.as_deref();
        earlier && one.begun().iter().any(|step| step.act.outlasts_boot())
    }) {
        // One at a time: the records of a second one would be the first one's.
        if endings.last().is_some_and(|last| !over(last)) {
            break;
        }
        executor.journal.append(Entry::Reopened { id })?;
        endings.extend(gone_with_boot(executor)?);
    }
    for id in succeeded(executor, |_, began_in| began_in == boot.as_deref()) {
        if endings.last().is_some_and(|last| !over(last)) {
            break;
        }
        executor.journal.append(Entry::Reopened { id })?;
        endings.push(back(executor, "undone", None)?);
    }
    if endings.iter().all(over) {
        open_again(executor)?;
    }
    Ok(endings)
}

/// Names of confirmed transactions that a test is true of, the newest first.
fn succeeded(
    executor: &Executor<'_, '_>,
    test: impl Fn(&Transaction<'_>, Option<&str>) -> bool,
) -> Vec<String> {
    let all = executor.journal.transactions();
    let mut found = Vec::new();
    for one in all.iter().rev().filter(|one| matches!(one.end(), Some((End::Succeeded, _)))) {
        if let Some((id, _, began_in, ..)) = one.begin()
            && test(one, began_in)
        {
            found.push(id.to_owned());
        }
    }
    found
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
    if !open.is_some_and(|one| one.is_turned()) {
        let outcome = outcome.clone().map(Box::new);
        executor.journal.append(Entry::TurningBack { why: why.to_owned(), outcome })?;
    }
    executor.host.take_up(&id, &plan);
    // What went wrong forward is known; here it counts what goes wrong on the way back. Going back
    // does not need it: a log that nobody can read keeps nothing changed.
    let mark = health::mark(executor.host);
    let Back { left, risen } = match inverses(executor, &plan) {
        Ok(back) => back,
        Err(why) => return stuck(executor, id, why),
    };
    if !left.is_empty() {
        return remains(executor, id, left);
    }
    let compared::Compared { wrong, doubts, fallen } =
        compared::compared(executor, &plan, mark, &risen)?;
    for (device, why) in fallen {
        let open = executor.journal.open_transaction();
        let Some(driver) = open.and_then(|one| one.driver_before(device)) else { continue };
        executor.journal.append(Entry::Fallen { device, driver, why })?;
    }
    if !wrong.is_empty() {
        let left = wrong.into_iter().map(|why| Left { step: 0, why }).collect();
        return remains(executor, id, left);
    }
    for what in &doubts {
        executor.journal.append(Entry::Doubt { what: what.clone() })?;
    }
    let ended = executor.host.wall();
    let outcome = outcome.map(Box::new);
    executor.journal.append(Entry::End { end: End::TakenBack, ended, outcome })?;
    Ok(Ending::TakenBack { id, why: why.to_owned(), doubts })
}

/// Writes down why the way back is not at its end.
fn stuck(
    executor: &mut Executor<'_, '_>,
    id: String,
    why: Stuck,
) -> Result<Ending, TransactionError> {
    match why {
        Stuck::Holders(holders) => {
            let entry = Entry::PendingHolder { holders: holders.clone() };
            // A look that finds the same again, as the timer's do, adds nothing.
            if executor.journal.entries().last() != Some(&entry) {
                executor.journal.append(entry)?;
            }
            Ok(Ending::PendingHolder { id, holders })
        }
        Stuck::Step(left) => remains(executor, id, vec![left]),
        Stuck::Ended(error) => Err(error),
    }
}

fn remains(
    executor: &mut Executor<'_, '_>,
    id: String,
    left: Vec<Left>,
) -> Result<Ending, TransactionError> {
    for Left { step, why } in &left {
        executor.journal.append(Entry::Remains { step: *step, why: why.clone() })?;
    }
    Ok(Ending::Remains { id, left })
}

/// Why the way back ends where it is.
enum Stuck {
    Holders(Vec<String>),
    Step(Left),
    Ended(TransactionError),
}

/// What the inverses came to.
#[derive(Default)]
struct Back {
    /// Steps that remain.
    left: Vec<Left>,
    /// Devices that came up on the ladder, with the last record of the kernel log before.
    risen: BTreeMap<PciAddress, u64>,
}

/// Takes the inverses, and says which remain. One that fails keeps what has to come after it, and
/// not what is another device's: a board that is dead leaves no other one changed.
fn inverses(executor: &mut Executor<'_, '_>, plan: &Plan) -> Result<Back, Stuck> {
    let begun = executor.journal.open_transaction().map(|one| one.begun()).unwrap_or_default();
    let mut back = Back::default();
    if let Some(failed) = closed(executor, plan, &begun)? {
        back.left.push(failed);
        return Ok(back);
    }
    let mut order = Order::of(plan);
    for (device, came) in ladder::fallen(executor, plan)? {
        match came {
            Ok(mark) => {
                back.risen.insert(device, mark);
            }
            Err(Stuck::Step(failed)) => {
                order.falls(0, device);
                back.left.push(failed);
            }
            Err(stuck) => return Err(stuck),
        }
    }
    for one in begun.iter().rev() {
        let inverse = match one.act.inverse(&one.found) {
            Ok(Op::Nothing) => continue,
            Ok(inverse) => inverse,
            Err(why) => {
                order.fails(one.step, &one.act);
                back.left.push(Left { step: one.step, why: why.to_string() });
                continue;
            }
        };
        if let Some(step) = order.waits_for(&inverse) {
            let what = match step {
                // Of an earlier command's ladder.
                0 => "the device that did not come back".to_owned(),
                step => format!("step {step}"),
            };
            let why = format!("{} waits for {what}", spell(&inverse));
            back.left.push(Left { step: one.step, why });
            continue;
        }
        harmless(executor, plan, &inverse)?;
        let taken = match &inverse {
            Op::Probe { device, driver } => {
                let board = Board { step: one.step, device: *device, driver };
                let came = ladder::bind(executor, plan, board);
                came.map(|mark| back.risen.extend(mark.map(|mark| (*device, mark))))
            }
            other => take(executor, one.step, other),
        };
        match taken {
            Ok(()) => {}
            Err(Stuck::Step(failed)) => {
                match bound_device(&inverse).filter(|device| is_fallen(executor, *device)) {
                    Some(device) => order.falls(one.step, device),
                    None => order.fails(one.step, &inverse),
                }
                back.left.push(failed);
            }
            Err(stuck) => return Err(stuck),
        }
    }
    Ok(back)
}

fn is_fallen(executor: &Executor<'_, '_>, device: PciAddress) -> bool {
    executor.journal.open_transaction().is_some_and(|one| one.fallen().contains_key(&device))
}

/// Whatever follows, new jobs begin without peer access: the safe environment, out of turn.
fn closed(
    executor: &mut Executor<'_, '_>,
    plan: &Plan,
    begun: &[Begun],
) -> Result<Option<Left>, Stuck> {
    let is_begun = |step: &Step| begun.iter().any(|one| one.step == step.number);
    let Some(safe) = safe_environment(plan).filter(|step| is_begun(step)) else { return Ok(None) };
    let safe = safe.act.clone();
    if executor.host.current(&safe).is_ok_and(|found| is_reached(&safe, &found)) {
        return Ok(None);
    }
    match take(executor, 0, &safe) {
        Ok(()) => Ok(None),
        Err(Stuck::Step(left)) => Ok(Some(left)),
        Err(stuck) => Err(stuck),
    }
}

fn take(executor: &mut Executor<'_, '_>, step: u32, act: &Op) -> Result<(), Stuck> {
    match executor.step(step, Way::Back, act, None) {
        Ok(()) => Ok(()),
        Err(error) if error.is_stop() => Err(Stuck::Ended(TransactionError::Stopped)),
        Err(StepError::Journal(error)) => Err(Stuck::Ended(error.into())),
        Err(StepError::Write(WriteError::Hangs { act })) => {
            Err(Stuck::Holders(vec![format!("{act} does not come back")]))
        }
        Err(error) => Err(Stuck::Step(Left { step, why: error.to_string() })),
    }
}

/// Writes the safe environment of the last plan out of turn: what was proved holds no more.
pub fn close(grant: &WriteGrant<'_>, host: &mut dyn Host) -> Result<(), WriteError> {
    let all = grant.journal.transactions();
    let plan = all.iter().rev().find_map(Transaction::begin).map(|(_, plan, ..)| plan);
    match plan.and_then(safe_environment) {
        Some(safe) => host.perform(&safe.act),
        None => Ok(()),
    }
}

/// The step of a plan that writes the safe environment.
fn safe_environment(plan: &Plan) -> Option<&Step> {
    let safe = |act: &Op| matches!(act, Op::WriteEnvironment { kind: Environment::Safe, .. });
    plan.steps.iter().find(|step| safe(&step.act))
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
