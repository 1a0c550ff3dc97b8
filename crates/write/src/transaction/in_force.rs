//! Whether a confirmed change still holds.

use peerway_core::snapshot::Snapshot;
use peerway_read::root::Root;
use peerway_roads::{Op, Plan, lasting};

use super::TransactionError;
use super::error::spell;
use super::verify::lost_entries;
use crate::grant::WriteGrant;
use crate::health;
use crate::journal::{End, Journal, Transaction};
use crate::mutator::{Host, WriteError};
use crate::untouched::Untouched;

/// What is not as the last confirmed change left it; empty if it is in force and nobody else was
/// touched. `None` if nothing was confirmed on this boot.
pub fn in_force(
    grant: &WriteGrant<'_>,
    host: &mut dyn Host,
) -> Result<Option<(String, Vec<String>)>, TransactionError> {
    let all = grant.journal.transactions();
    let last = all.iter().rev().find(|one| matches!(one.end(), Some((End::Succeeded, _))));
    let Some((id, plan, began_in, _, untouched)) = last.and_then(Transaction::begin) else {
        return Ok(None);
    };
    host.take_up(id, plan);
    let snapshot = host.snapshot()?;
    if began_in != snapshot.origin.boot_id.known().map(String::as_str) {
        return Ok(None);
    }
    let mark = last.and_then(Transaction::mark);
    let problems = problems(host, &snapshot, plan, untouched, mark)?;
    Ok(Some((id.to_owned(), problems)))
}

/// Whether a confirmed change of this host, still in force, put a plan in place to last: a file that
/// anybody wrote there is no operator's word.
pub fn was_made_to_last(journal: &Journal<'_>, plan: &Plan) -> bool {
    let all = journal.transactions();
    let confirmed = all.iter().filter(|one| matches!(one.end(), Some((End::Succeeded, _))));
    let plans = confirmed.filter_map(Transaction::begin).map(|(_, plan, ..)| plan);
    let acts = plans.flat_map(|plan| plan.steps.iter().map(|step| &step.act));
    let same = |text: &str| serde_json::from_str::<Plan>(text).is_ok_and(|kept| kept == *plan);
    acts.into_iter().any(|act| {
        matches!(act, Op::Install { path, content, .. } if path == lasting::PLAN && same(content))
    })
}

/// Why nobody can tell yet whose the devices are: Proxmox keeps it in a file system that is mounted
/// long after the drivers are bound, and what it does not say is not nobody's.
pub fn claims_unseen(root: &Root) -> Option<String> {
    const PLACE: &str = "/etc/pve";
    match root.list(PLACE) {
        // Unmounted, it is an empty directory.
        Ok(names) if !names.is_empty() => None,
        Err(error) if error.is_absent() => None,
        _ => Some(format!(
            "which guest has which device stands in {PLACE}, and that cannot be read this early; \
             peer access stays off on this boot"
        )),
    }
}

/// The last confirmed transaction, if this boot is the one that it was confirmed on.
pub(super) fn last_confirmed<'a, 'j>(
    all: &'a [Transaction<'j>],
    boot: Option<&str>,
) -> Option<&'a Transaction<'j>> {
    let last = all.iter().rev().find(|one| matches!(one.end(), Some((End::Succeeded, _))));
    last.filter(|one| one.begin().is_some_and(|(_, _, began_in, ..)| began_in == boot))
}

/// What is not as the plan left it, or was done to others since.
pub(super) fn problems(
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
