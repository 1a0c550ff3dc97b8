//! Whether an inverse would harm a process now.

use peerway_roads::{Op, Plan};

use super::Stuck;
use crate::executor::{Executor, bound_device, harms_holders};
use crate::mutator::is_reached;
use crate::scope;
use crate::wait;

/// Ends the way where an inverse would harm a process, or meet a write that is still under way.
pub(super) fn harmless(
    executor: &mut Executor<'_, '_>,
    plan: &Plan,
    inverse: &Op,
) -> Result<(), Stuck> {
    // What the process before this one began may still change what is read here.
    if let Some(what) = executor.host.under_way() {
        let mut holders = holders_or_why(executor, plan);
        holders.push(format!("a write still waits in the kernel: {what}"));
        return Err(Stuck::Holders(holders));
    }
    let current = executor.host.current(&meaningful(inverse));
    let needed = !current.is_ok_and(|found| is_reached(inverse, &found));
    if let Some(device) = bound_device(inverse)
        && executor.host.is_stuck(device)
    {
        let mut holders = holders_or_why(executor, plan);
        holders.push(format!("an unbinding of {device} still waits in the kernel"));
        return Err(Stuck::Holders(holders));
    }
    if needed && harms_holders(inverse) {
        let holders = holders_or_why(executor, plan);
        if !holders.is_empty() {
            return Err(Stuck::Holders(holders));
        }
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
