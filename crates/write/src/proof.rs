//! Whether data still arrives under the last confirmed change: asked by copies, because what can be
//! read back proves nothing about where an entry leads.

use crate::grant::WriteGrant;
use crate::journal::{End, Transaction};
use crate::mutator::Host;
use crate::scope;
use crate::transaction::{TransactionError, promised};
use crate::wait;

/// Copies between all pairs that the last confirmed change of this boot made work, and gives their
/// number, and what did not arrive, one line each. A device that somebody holds is not copied to:
/// the copy would land in their data.
pub fn by_copies(
    grant: &WriteGrant<'_>,
    host: &mut dyn Host,
) -> Result<(usize, Vec<String>), TransactionError> {
    let snapshot = host.snapshot()?;
    let boot = snapshot.origin.boot_id.known().map(String::as_str);
    let all = grant.journal.transactions();
    let last = all.iter().rev().find(|one| matches!(one.end(), Some((End::Succeeded, _))));
    let begin = last.and_then(Transaction::begin);
    let Some((_, plan, ..)) = begin.filter(|(_, _, began_in, ..)| *began_in == boot) else {
        return Ok((0, Vec::new()));
    };
    let pairs = if plan.changes_devices() { promised(plan, &snapshot) } else { Vec::new() };
    match wait::holders(host, &scope::reach(plan)) {
        Ok(held) if held.is_empty() => {}
        Ok(held) => return Err(TransactionError::Held(held)),
        Err(why) => return Err(TransactionError::Held(vec![why])),
    }
    let copies = host.copies(&pairs)?;
    let lost = copies.iter().filter(|copied| !copied.intact).map(|copied| {
        format!(
            "a copy from {} to {} did not arrive intact: {}",
            copied.from, copied.to, copied.detail
        )
    });
    Ok((copies.len(), lost.collect()))
}
