//! Proof after the fact: a change that was made before a driver was bound lets jobs in only once data
//! was seen to arrive.

use peerway_roads::plan::Phase;

use super::in_force::last_confirmed;
use super::verify::{copied, healthy};
use super::{Ending, Settings, TransactionError, go_on, steps_of};
use crate::executor::Executor;
use crate::grant::WriteGrant;
use crate::journal::Entry;
use crate::mutator::Host;
use crate::scope;
use crate::wait;

/// Copies between the devices of the last confirmed change of this boot, and takes the steps that
/// waited for that. `None` where none waits.
pub fn prove(
    grant: &mut WriteGrant<'_>,
    host: &mut dyn Host,
    settings: Settings<'_>,
) -> Result<Option<Ending>, TransactionError> {
    // What is under way would get the records of this, and this what is under way.
    grant.nothing_left()?;
    let journal = &mut grant.journal;
    let snapshot = host.snapshot()?;
    let boot = snapshot.origin.boot_id.known().map(String::as_str);
    let all = journal.transactions();
    let Some(last) = last_confirmed(&all, boot) else { return Ok(None) };
    let done = last.done();
    let Some((id, plan, ..)) = last.begin() else { return Ok(None) };
    if steps_of(plan, Phase::Confirm).all(|step| done.contains(&step.number)) {
        return Ok(None);
    }
    let (id, plan) = (id.to_owned(), plan.clone());
    host.take_up(&id, &plan);
    // A copy would land in the data of whoever has a device.
    match wait::holders(host, &scope::reach(&plan)) {
        Ok(held) if held.is_empty() => {}
        Ok(held) => return Err(TransactionError::Held(held)),
        Err(why) => return Err(TransactionError::Held(vec![why])),
    }
    let mut executor = Executor::new(host, journal, settings);
    let proof = executor
        .set_mark()
        .and_then(|()| copied(&mut executor, &plan))
        .and_then(|()| healthy(&mut executor, &plan));
    proof.map_err(|why| TransactionError::NotProved(why.to_string()))?;
    executor.journal.append(Entry::Proved { id: id.clone() })?;
    go_on(&mut executor, id, &plan).map(Some)
}
