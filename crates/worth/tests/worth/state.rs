//! Requests that run beside their states: worked examples of the engine's own formulas. Their
//! free memory is rounded, so one request more or less is the same.

use peerway_worth::launch::render;
use peerway_worth::state::{Keeping, StateSetup, cap, running};
use peerway_worth::{Layout, Request};

use crate::workload::{model, reference};

#[track_caller]
fn check(float32: bool, fraction: f64, drafts: u32, ratio: f64, most: u32, (old, new): (u32, u32)) {
    let model = model("qwen3.5-122b-a10b");
    let request = reference();
    let draft = if drafts > 0 { model.weight_bytes(true) - model.weight_bytes(false) } else { 0.0 };
    let free = request.gpu.memory_bytes * fraction - (model.weight_bytes(false) + draft) / 4.0;
    let format = if float32 {
        peerway_worth::precision::Precision::Float32
    } else {
        peerway_worth::precision::Precision::Bfloat16
    };
    let setup = |jointly| StateSetup {
        free,
        state: model.state_bytes(Some(format)) / 4.0,
        ratio,
        most,
        draft_tokens: drafts,
        keeping: Keeping::ExtraBuffer,
        jointly,
    };
    for (jointly, expected) in [(false, old), (true, new)] {
        let seen = running(&setup(jointly));
        assert!(seen.abs_diff(expected) <= 1, "{seen} run, {expected} expected, {jointly}");
    }
}

#[test]
fn requests_beside_states() {
    check(true, 0.85, 0, 0.9, 128, (64, 64));
    check(true, 0.85, 0, 4.0, 128, (109, 108));
    check(true, 0.85, 4, 0.9, 48, (43, 33));
    check(true, 0.85, 4, 0.9, 128, (12, 33));
    check(true, 0.90, 4, 4.0, 128, (43, 68));
    check(false, 0.85, 0, 0.9, 128, (127, 126));
    check(false, 0.85, 4, 0.9, 128, (72, 66));
    check(false, 0.85, 4, 4.0, 128, (121, 112));
    check(false, 0.90, 4, 4.0, 128, (128, 128));
}

#[test]
fn without_the_cache_a_request_takes_one_slot() {
    let setup = StateSetup {
        free: 10.0,
        state: 1.0,
        ratio: 1.0,
        most: 100,
        draft_tokens: 0,
        keeping: Keeping::NoCache,
        jointly: false,
    };
    assert_eq!(running(&setup), 5);
    assert_eq!(running(&StateSetup { keeping: Keeping::NoBuffer, ..setup }), 1);
    assert_eq!(running(&StateSetup { free: 0.0, ..setup }), 0);
}

/// What `estimate` says runs with the defaults of a version, and that `launch` says the same.
#[track_caller]
fn both(engine: &str, drafts: u32, expected: (Keeping, u32)) {
    let request = Request {
        engine: engine.parse().unwrap(),
        concurrency: 128,
        draft_steps: drafts,
        ..reference()
    };
    let cap = cap(&request).unwrap();
    let wanted_drafts = if drafts > 0 { drafts + 1 } else { 0 };
    let row = cap.rows.iter().find(|row| row.draft_tokens == wanted_drafts).unwrap();
    assert_eq!(row.keeping, expected.0);
    assert!(row.running.abs_diff(expected.1) <= 1, "{}", row.running);
    let launch = render(&peerway_worth::launch::Wanted {
        concurrency: 128,
        draft_steps: drafts,
        ..crate::launch::wanted(engine)
    })
    .unwrap();
    let said = format!("beside their states {} of 128 requests will run", row.running);
    assert!(launch.notes.iter().any(|note| note.starts_with(&said)), "{said} {:?}", launch.notes);
    let estimate = peerway_worth::estimate(&request).unwrap();
    let said = format!("beside their states {} of 128 requests run", row.running);
    assert!(estimate.notes.iter().any(|note| note.starts_with(&said)), "{:?}", estimate.notes);
}

#[test]
fn estimate_and_launch_count_alike() {
    both("sglang@0.5.12", 0, (Keeping::NoBuffer, 107));
    both("sglang@0.5.12", 3, (Keeping::ExtraBuffer, 12));
    both("sglang@0.5.23", 0, (Keeping::ExtraBuffer, 64));
    both("sglang@0.5.23", 3, (Keeping::ExtraBuffer, 33));
    // Three drafted tokens take less than four.
    both("sglang@0.5.23", 2, (Keeping::ExtraBuffer, 38));
}

#[test]
fn data_parallel_attention_keeps_whole_states() {
    let request = |attention_dp| Request {
        layout: Layout { attention_dp, ..Layout::tensor(4) },
        concurrency: 128,
        ..reference()
    };
    let (cut, whole) = (request(false), request(true));
    let sizes = |request: &Request| peerway_worth::estimate(request).unwrap().sizes;
    let (of_cut, of_whole) = (sizes(&cut), sizes(&whole));
    let near = |seen: f64, expected: f64| assert!((seen / expected - 1.0).abs() < 1e-9, "{seen}");
    let bytes = |a: &peerway_worth::estimate::Sizes| a.state_bytes_per_sequence_per_gpu;
    near(bytes(&of_whole), bytes(&of_cut) * 4.0);
    near(of_whole.kv_bytes_per_token_per_gpu, 24_576.0);
    assert_eq!((of_cut.all_reduces_per_step, of_whole.all_reduces_per_step), (97, 0));
    // Each GPU keeps a quarter of the requests, whole.
    let cap = cap(&whole).unwrap();
    near(cap.state_bytes, bytes(&of_whole));
    assert!(cap.rows[0].running < 64 && cap.rows[0].running.is_multiple_of(4));
}
