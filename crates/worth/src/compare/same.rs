//! Whether runs did the same work, and what their own client says against them.

use std::collections::BTreeSet;

use super::records::Run;

/// Why runs cannot stand beside each other.
pub(super) fn differences(runs: &[&Run]) -> Vec<String> {
    let mut why = duplicates(runs);
    let Some(first) = runs.first() else { return why };
    for run in runs {
        let both = first.prompts.as_ref().zip(run.prompts.as_ref());
        let fields = [
            ("model", first.model != run.model),
            ("seed", first.seed != run.seed),
            ("answer length", first.output_tokens != run.output_tokens),
            ("ignore_eos", first.ignore_eos != run.ignore_eos),
            ("temperature", first.temperature.to_bits() != run.temperature.to_bits()),
            ("prompts", both.is_some_and(|(one, other)| one != other)),
        ];
        for (field, differs) in fields {
            if differs {
                why.push(format!("{field} of run {:?} is not that of {:?}", run.name, first.name));
            }
        }
        if let Some((load, number, seen, expected)) = other_prompt(first, run) {
            why.push(format!(
                "prompts of run {:?} are not those of {:?}: request {number} at {load} has {seen} \
                 tokens, and {expected} there",
                run.name, first.name
            ));
        }
    }
    why
}

/// The first request whose prompt has another number of tokens.
fn other_prompt<'r>(first: &'r Run, run: &Run) -> Option<(&'r str, u64, u64, u64)> {
    first.levels.iter().find_map(|(load, level)| {
        let beside = run.levels.get(load)?;
        level.requests.iter().find_map(|(number, answer)| {
            let (here, there) =
                (answer.prompt_tokens?, beside.requests.get(number)?.prompt_tokens?);
            (here != there).then_some((load.as_str(), *number, there, here))
        })
    })
}

/// A run that was given twice is one observation.
fn duplicates(runs: &[&Run]) -> Vec<String> {
    let mut digests = BTreeSet::new();
    let mut names = BTreeSet::new();
    let mut why = Vec::new();
    for run in runs {
        let named = run.began.as_ref().is_some_and(|began| !names.insert((&run.name, began)));
        if !digests.insert(run.digest) || named {
            why.push(format!(
                "run {:?} stands twice among the files: it is one observation, not two",
                run.name
            ));
        }
    }
    why
}

/// What the client and its findings say against the figures of a run.
pub(super) fn reservations(run: &Run) -> Vec<String> {
    let mut notes = Vec::new();
    for (load, level) in &run.levels {
        if let Some(lagged) = &level.lagged {
            notes.push(format!(
                "run {:?} at {load} is left out: the client was too slow for it: {lagged}",
                run.name
            ));
            continue;
        }
        notes.extend(
            level.findings.iter().map(|text| format!("run {:?} at {load}: {text}", run.name)),
        );
    }
    notes
}
