//! Everything that can be refused before anything is changed.

use peerway_core::snapshot::Snapshot;
use peerway_roads::op::Until;
use peerway_roads::{Op, Plan};

use super::TransactionError;
use crate::health;
use crate::mutator::Host;
use crate::scope;
use crate::wait;

/// Everything that can be refused before anything is changed.
pub(super) fn preflight(host: &dyn Host, plan: &Plan) -> Result<Snapshot, TransactionError> {
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
    let unprotected = plan.unprotected(&snapshot);
    if !unprotected.is_empty() {
        let all = unprotected.join(", ");
        let why = format!("the plan does not protect {all}: make it again");
        return Err(TransactionError::NotOffered(why));
    }
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
