//! Requests that run beside their states: worked examples of the engine's own formulas. Their
//! free memory is rounded, so one request more or less is the same.

use peerway_worth::state::{Keeping, StateSetup, running};

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
