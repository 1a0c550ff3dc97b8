//! What a measurement comes to, as an exit code.

use std::collections::BTreeMap;

use peerway_cli_read::Exit;
use peerway_gpu::{Evidence, Measurement, Unmet, Verdict};

/// Wrong data outranks a hang; a pair or a GPU that could not be measured leaves it undecided.
///
/// `whole`: the driver should show all GPUs of the host here.
pub(super) fn exit(measured: &Measurement, whole: bool) -> Exit {
    let rows = measured.pairs.iter().chain(&measured.control).chain(&measured.loopback);
    let above = rows.clone().any(|row| row.above_line_rate);
    let mut exit = rows
        .map(|row| row.verdict)
        .map(of_verdict)
        .chain(measured.together.iter().map(|row| of_group(row.verdict)))
        .chain(measured.all_reduce.iter().map(|row| of_group(row.verdict)))
        .fold(Exit::Fine, Exit::and);
    let recorded = measured.pairs.iter().map(|row| &row.evidence);
    let others = measured.evidence.iter().map(|one| &one.evidence);
    if recorded.chain(others).any(Evidence::is_serious) {
        exit = exit.and(Exit::Findings);
    }
    if above || measured.host.iter().any(|row| row.damage.is_some()) {
        exit = exit.and(Exit::WrongData);
    }
    // What timed out is noted there, and what the driver did not answer is not met.
    let unanswered = measured.preconditions.iter().any(|unmet| unmet.kind == Unmet::DriverHung);
    if unanswered || measured.children.iter().any(|child| child.hung) {
        exit = exit.and(Exit::Hung);
    }
    if !decided(measured, whole) {
        exit = exit.and(Exit::Undecided);
    }
    exit
}

fn of_verdict(verdict: Verdict) -> Exit {
    match verdict {
        Verdict::Damaged => Exit::WrongData,
        // Neither came to its end.
        Verdict::Hung | Verdict::Broken => Exit::Hung,
        // One mode that a driver does not offer is no fault; see `decided`.
        Verdict::Intact | Verdict::NotRun | Verdict::Refused => Exit::Fine,
    }
}

/// Of transfers at once and sums: there is no second mode that could be right instead.
fn of_group(verdict: Verdict) -> Exit {
    match verdict {
        Verdict::NotRun | Verdict::Refused => Exit::Undecided,
        other => of_verdict(other),
    }
}

/// Whether every GPU was measured, and every pair was right in at least one mode.
fn decided(measured: &Measurement, all: bool) -> bool {
    let hidden = measured.preconditions.iter().any(|unmet| unmet.kind == Unmet::VisibleDevices);
    let whole = measured.preconditions.iter().all(|unmet| match unmet.kind {
        Unmet::NoNccl | Unmet::VisibleDevices => true,
        Unmet::SomeGpus => !all || hidden,
        _ => false,
    });
    let mut right = BTreeMap::new();
    for row in &measured.pairs {
        *right.entry((row.from, row.to)).or_insert(false) |= row.verdict == Verdict::Intact;
    }
    whole && !right.is_empty() && right.values().all(|right| *right)
}
