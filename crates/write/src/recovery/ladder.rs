//! What is tried where a device does not come back: with the operator's word it is reset, and bound anew.
//!
//! Every rung is a step of the executor with its record before it, and none is taken while a process
//! holds one of the devices. The reset is the kernel's own of one function (`drivers/pci/pci-sysfs.c`,
//! `reset_store`), by the first of its methods that works; where nothing else is on the bus that may be a
//! reset of the bus (`drivers/pci/pci.c`, `pci_reset_bus_function`). Of some boards operators report that
//! it hangs, and the host with them, so that nothing is reset without being asked for.

use peerway_core::address::PciAddress;
use peerway_read::root::SMALL;
use peerway_roads::{Op, Plan};

use super::{Stuck, harmless, take};
use crate::executor::Executor;
use crate::health;
use crate::journal::Entry;
use crate::mutator::is_reached;
use crate::transaction::{Ladder, Left, TransactionError};

/// A device that is bound to a driver again, or is to be.
#[derive(Clone, Copy, Debug)]
pub(super) struct Board<'a> {
    pub(super) step: u32,
    pub(super) device: PciAddress,
    pub(super) driver: &'a str,
}

impl Board<'_> {
    pub(super) fn bind(self) -> Op {
        Op::Probe { device: self.device, driver: self.driver.to_owned() }
    }

    fn unbind(self) -> Op {
        Op::Unbind { device: self.device, driver: self.driver.to_owned() }
    }

    fn left(self, why: String) -> Stuck {
        Stuck::Step(Left { step: self.step, why })
    }
}

/// The last record of the kernel log, where it can be read.
pub(super) fn mark(executor: &Executor<'_, '_>) -> Option<u64> {
    health::mark(executor.host).ok()
}

/// Binds a device that was unbound, by its own step; where it does not come back, the ladder. Where that
/// was needed, the last record of the kernel log before the device came up.
pub(super) fn bind(
    executor: &mut Executor<'_, '_>,
    plan: &Plan,
    board: Board<'_>,
) -> Result<Option<u64>, Stuck> {
    let mut before = rises(executor, board)?;
    let mut was_reset = false;
    match take(executor, board.step, &board.bind()) {
        Ok(()) => {}
        Err(Stuck::Step(left)) => {
            if let Some(not) = no_reset(executor, board.device) {
                return Err(board.left(format!("{}; {not}", left.why)));
            }
            rung(executor, plan, &Op::Reset { device: board.device })?;
            was_reset = true;
            before = mark(executor);
            note(executor, board, before)?;
            harmless(executor, plan, &board.bind())?;
            take(executor, board.step, &board.bind())?;
        }
        Err(stuck) => return Err(stuck),
    }
    match settle(executor, board, before)? {
        None => Ok(before.filter(|_| was_reset)),
        Some(why) => climb(executor, plan, board, &why).map(Some),
    }
}

/// The mark from which on the driver's lines speak of this binding: that of a command that was cut off between the
/// binding and its word on it, or a new one, which is written down before anything is done. What was said of an
/// attempt that did not bind it says nothing of the next.
fn rises(executor: &mut Executor<'_, '_>, board: Board<'_>) -> Result<Option<u64>, Stuck> {
    let open = executor.journal.open_transaction();
    let earlier = open.and_then(|one| one.rising().get(&board.device).map(|(_, mark)| *mark));
    let bind = board.bind();
    let is_bound = executor.host.current(&bind).is_ok_and(|found| is_reached(&bind, &found));
    if earlier.is_some() && is_bound {
        return Ok(earlier);
    }
    let before = mark(executor);
    note(executor, board, before)?;
    Ok(before)
}

fn note(
    executor: &mut Executor<'_, '_>,
    board: Board<'_>,
    before: Option<u64>,
) -> Result<(), Stuck> {
    let Some(mark) = before else { return Ok(()) };
    let (device, driver) = (board.device, board.driver.to_owned());
    executor.journal.append(Entry::Rising { device, driver, mark }).map_err(ended)
}

/// Writes down how a binding went: what the driver complains of, if anything.
fn settle(
    executor: &mut Executor<'_, '_>,
    board: Board<'_>,
    before: Option<u64>,
) -> Result<Option<String>, Stuck> {
    let device = board.device;
    let why = trouble(executor, device, before);
    let entry = match why.clone() {
        None => Entry::Risen { device },
        Some(why) => Entry::Fallen { device, driver: board.driver.to_owned(), why },
    };
    executor.journal.append(entry).map_err(ended)?;
    Ok(why)
}

/// Looks at devices that a command bound again before it was cut off, and of which it said nothing more.
fn unsettled(executor: &mut Executor<'_, '_>) -> Result<(), Stuck> {
    let Some(open) = executor.journal.open_transaction() else { return Ok(()) };
    let begun = open.begun();
    // Those whose step is still open are bound, and looked at, in their turn.
    let is_open = |device: PciAddress| {
        begun.iter().any(|one| matches!(&one.act, Op::Unbind { device: own, .. } if *own == device))
    };
    let rising: Vec<_> = open.rising().into_iter().filter(|(one, _)| !is_open(*one)).collect();
    for (device, (driver, mark)) in rising {
        if seen(executor, Some(mark)).is_some_and(|seen| seen.lost) {
            let what = format!(
                "whether {device} came back without an error: records of the kernel log were lost"
            );
            executor.journal.append(Entry::Doubt { what }).map_err(ended)?;
        }
        settle(executor, Board { step: 0, device, driver: &driver }, Some(mark))?;
    }
    Ok(())
}

/// A device that was tried again, with the last record of the kernel log before it came up.
type Tried = (PciAddress, Result<u64, Stuck>);

/// Devices that an earlier command bound again, and that did not come back then.
pub(super) fn fallen(executor: &mut Executor<'_, '_>, plan: &Plan) -> Result<Vec<Tried>, Stuck> {
    unsettled(executor)?;
    let open = executor.journal.open_transaction();
    let fallen = open.map(|one| one.fallen()).unwrap_or_default();
    let mut all = Vec::new();
    for (device, (driver, why)) in fallen {
        let board = Board { step: 0, device, driver: &driver };
        let came = again(executor, plan, board, &why);
        let is_over = matches!(came, Err(Stuck::Ended(_) | Stuck::Holders(_)));
        all.push((device, came));
        if is_over {
            break;
        }
    }
    Ok(all)
}

fn again(
    executor: &mut Executor<'_, '_>,
    plan: &Plan,
    board: Board<'_>,
    why: &str,
) -> Result<u64, Stuck> {
    // A ladder that was cut off may have left it without a driver.
    rung(executor, plan, &board.bind())?;
    if executor.ladder == Ladder::Leave {
        return Err(board.left(not_back(why, "peerway recover tries it again")));
    }
    climb(executor, plan, board, why)
}

/// Resets a bound device if that may be, and binds it anew.
fn climb(
    executor: &mut Executor<'_, '_>,
    plan: &Plan,
    board: Board<'_>,
    why: &str,
) -> Result<u64, Stuck> {
    let not = no_reset(executor, board.device);
    if let (Some(not), Ladder::Leave) = (&not, executor.ladder) {
        return Err(board.left(not_back(why, not)));
    }
    rung(executor, plan, &board.unbind())?;
    let mut not = not;
    if not.is_none() {
        match rung(executor, plan, &Op::Reset { device: board.device }) {
            Ok(()) => {}
            // It is not left without a driver, and that may help.
            Err(Stuck::Step(refused)) => not = Some(refused.why),
            Err(stuck) => return Err(stuck),
        }
    }
    let before = mark(executor);
    rung(executor, plan, &board.bind())?;
    // A log with gaps, or none, is no witness.
    let before = before.filter(|_| seen(executor, before).is_some_and(|seen| !seen.lost));
    match (trouble(executor, board.device, before), before) {
        (None, Some(before)) => {
            executor.journal.append(Entry::Risen { device: board.device }).map_err(ended)?;
            Ok(before)
        }
        (None, None) => Err(board.left(not_back(why, "the kernel log cannot be read to see"))),
        (Some(why), _) => {
            let tried = not.unwrap_or_else(|| "it was reset and bound anew".to_owned());
            Err(board.left(not_back(&why, &tried)))
        }
    }
}

fn not_back(why: &str, tried: &str) -> String {
    format!("a device did not come back: {why}; {tried}; if nothing helps, the host needs a reboot")
}

/// A rung: never under a holder, and under no number of the plan, whose steps are taken back once.
fn rung(executor: &mut Executor<'_, '_>, plan: &Plan, act: &Op) -> Result<(), Stuck> {
    harmless(executor, plan, act)?;
    take(executor, 0, act)
}

/// What the driver said of this very device since a mark.
fn trouble(executor: &Executor<'_, '_>, device: PciAddress, mark: Option<u64>) -> Option<String> {
    let seen = seen(executor, mark)?;
    let own =
        |one: &&health::Trouble| one.kind != health::Kind::Fault && one.device == Some(device);
    seen.troubles.iter().find(own).map(|one| one.text.clone())
}

/// What the log says since a mark, where it can be read.
fn seen(executor: &Executor<'_, '_>, mark: Option<u64>) -> Option<health::Seen> {
    health::since(executor.host, mark?).ok()
}

/// Why a device is not reset now.
fn no_reset(executor: &Executor<'_, '_>, device: PciAddress) -> Option<String> {
    let text = |name: &str| {
        let root = executor.host.root().ok()?;
        root.text(&format!("/sys/bus/pci/devices/{device}/{name}"), SMALL).ok()
    };
    let methods = text("reset_method").unwrap_or_default();
    if methods.trim().is_empty() {
        return Some(format!("the kernel has no way to reset {device} alone"));
    }
    if executor.ladder == Ladder::Reset {
        return None;
    }
    Some(format!("peerway recover --reset resets {device} and binds it anew"))
}

fn ended(error: crate::journal::JournalError) -> Stuck {
    Stuck::Ended(TransactionError::from(error))
}
