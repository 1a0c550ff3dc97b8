//! The same work and the same answers: what a comparison must not take for them.

use peerway_worth::compare::factorial::analyse;
use peerway_worth::compare::{GateState, Metric, Run, Verdict, compare};

use crate::compare::{Made, made};

fn side(name: &str, rate: f64, change: fn(&mut Made)) -> Vec<Run> {
    (0..3_u32)
        .map(|at| {
            let mut one = made(&format!("{name}{at}"), rate + f64::from(at));
            change(&mut one);
            one.run()
        })
        .collect()
}

fn same(_: &mut Made) {}

#[track_caller]
fn gate(a: fn(&mut Made), b: fn(&mut Made), expected: GateState, reason: &str) {
    let found = compare(&side("a", 1000.0, a), &side("b", 1300.0, b));
    assert_eq!(found.gate.state, expected, "{:?}", found.gate);
    let said = found.gate.reasons.iter().any(|one| one.contains(reason));
    assert!(said || reason.is_empty(), "{:?}", found.gate);
    let better = found.rows.iter().any(|row| row.verdict == Verdict::Better);
    assert_eq!(better, expected == GateState::Passed, "{:?}", found.rows);
}

/// Texts that depend on the run: nothing in common from one to the next.
fn random(one: &mut Made) {
    one.text = |number, rate| {
        let mixed = (rate.to_bits() ^ number).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        format!("{mixed:016x}{:016x}", mixed.rotate_left(17) ^ rate.to_bits())
    };
}

#[test]
fn gates() {
    gate(same, same, GateState::Passed, "");
    gate(random, random, GateState::Unknown, "of their answers in common");
    gate(random, |one| one.text = |_, _| "garbage".to_owned(), GateState::Unknown, "in common");
    let empty: fn(&mut Made) = |one| one.text = |_, _| String::new();
    gate(empty, empty, GateState::Unknown, "tokens and no text");
    gate(same, empty, GateState::Failed, "in common");
    // Half of what they say is the same, as between runs of A nearly all.
    let half: fn(&mut Made) = |one| one.text = |number, _| format!("{number} a sentence that is");
    gate(same, half, GateState::Failed, "in common");
    gate(same, |one| one.finish = "stop", GateState::Failed, "ended with");
}

#[track_caller]
fn incomparable(change: fn(&mut Made), expected: &str) {
    let found = compare(&side("a", 1000.0, same), &side("b", 1300.0, change));
    let said = found.incomparable.iter().any(|why| why.contains(expected));
    assert!(said, "{:?}", found.incomparable);
    assert!(found.rows.is_empty());
}

#[test]
fn work_that_is_not_the_same() {
    incomparable(|one| one.prompt_tokens = 10, "request 0 at 8 at a time has 10 tokens, and 256");
    incomparable(|one| one.prompts = Some("given"), "prompts of run \"b0\"");
    incomparable(|one| one.model = "other", "model of run \"b0\"");
    // Records of before say nothing of prompts, and their counts still do.
    let old = compare(&side("a", 1000.0, same), &side("b", 1300.0, |one| one.prompts = None));
    assert!(old.incomparable.is_empty());
}

#[test]
fn a_run_counts_once() {
    let a = side("a", 1000.0, same);
    let twice = vec![a[0].clone(), a[1].clone(), a[0].clone()];
    let found = compare(&twice, &side("b", 1300.0, same));
    assert_eq!(
        found.incomparable,
        ["run \"a0\" stands twice among the files: it is one observation, not two"]
    );
    // The same file on both sides is no comparison either.
    assert!(!compare(&a, &a).incomparable.is_empty());
    // Name and beginning say it too, where the content was changed.
    let mut other = made("a0", 1000.0);
    other.finish = "stop";
    let found = compare(&a, &[other.run()]);
    assert!(found.incomparable.iter().any(|why| why.contains("stands twice")));
}

#[test]
fn a_client_that_was_too_slow_says_nothing() {
    let late: fn(&mut Made) = |one| one.lagged = Some("3 ms late");
    let found = compare(&side("a", 1000.0, same), &side("b", 1300.0, late));
    assert!(found.rows.is_empty(), "{:?}", found.rows);
    assert!(found.notes.iter().any(|note| note.contains("too slow for it: 3 ms late")));
    assert!(found.notes.iter().any(|note| note.contains("capped by the server")));
}

/// Seconds a token of 63 that came behind the first, over 0.638 s.
#[track_caller]
fn per_token(in_first: Option<u64>, expected: Option<f64>) {
    let run = Made { in_first, ..made("a", 1000.0) }.run();
    let seen = Metric::SecondsPerToken.of(run.levels.values().next().unwrap());
    match (seen, expected) {
        (Some(seen), Some(expected)) => assert!((seen - expected).abs() < 1e-9, "{seen}"),
        _ => assert_eq!(seen, expected),
    }
}

#[test]
fn longer_chunks_are_no_faster_tokens() {
    per_token(Some(1), Some(0.638 / 63.0));
    per_token(Some(16), Some(0.638 / 48.0));
    per_token(Some(64), None);
    // Records of before do not say how many came first.
    per_token(None, None);
}

fn cells(change: fn(&mut Made), texts: fn(&mut Made)) -> Vec<Run> {
    let mut all = Vec::new();
    for (cell, rate) in [("path=p2p,mtp=off", 1000.0), ("path=p2p-kernels,mtp=off", 1300.0)] {
        for number in 0..3_u32 {
            let mut one = made(&format!("{cell}#{number}"), rate + f64::from(number));
            if rate > 1100.0 {
                change(&mut one);
            }
            texts(&mut one);
            all.push(one.run());
        }
    }
    all
}

#[test]
fn effects_are_gated_between_their_own_cells() {
    let shown = |runs: &[Run]| {
        let found = analyse(runs);
        let one = found.effects.iter().find(|one| one.what == "p2p to p2p-kernels, mtp off");
        (one.map(|one| one.shown), found.incomparable.len())
    };
    // Without any run of the first cell.
    assert_eq!(shown(&cells(same, same)), (Some(true), 0));
    let garbage: fn(&mut Made) = |one| one.text = |_, _| "garbage".to_owned();
    assert_eq!(shown(&cells(garbage, same)), (Some(false), 0));
    assert_eq!(shown(&cells(same, random)), (Some(false), 0));
    assert_eq!(shown(&cells(|one| one.model = "small", same)), (None, 3));
}

#[test]
fn runs_of_one_block_are_one_observation() {
    let side = |name: &str, rate: f64, blocks: [u32; 4]| -> Vec<Run> {
        let numbered = blocks.iter().enumerate();
        numbered.map(|(at, block)| made(&format!("{name}#{at}/b{block}"), rate).run()).collect()
    };
    let found = compare(&side("a", 1000.0, [1, 1, 3, 3]), &side("b", 1300.0, [2, 2, 2, 2]));
    assert_eq!(found.rows[0].runs, [2, 1]);
    assert_eq!(found.rows[0].verdict, Verdict::TooFewRuns);
}
