//! Worked examples: the same formulas computed by hand for one model, with every uncertain number
//! set.

use peerway_worth::allreduce::{Arm, Curve, Levels, Times};
use peerway_worth::config::Part;
use peerway_worth::model::Routing;
use peerway_worth::precision::Precision;
use peerway_worth::step::{Scenario, Setup, Terms, Work};
use peerway_worth::{Layout, hardware};

use crate::workload::model;

#[track_caller]
fn near(seen: f64, expected: f64, share: f64) {
    let off = (seen / expected - 1.0).abs();
    assert!(off <= share, "{seen} is not within {:.1} % of {expected}", share * 100.0);
}

#[test]
fn parameters_add_up_to_the_names() {
    near(model("qwen3.5-122b-a10b").total_parameters(), 122.1e9, 0.001);
    near(model("qwen3.5-397b-a17b").total_parameters(), 396.3e9, 0.001);
    near(model("qwen3.5-35b-a3b").total_parameters(), 35.0e9, 0.03);
    near(model("qwen3.5-27b").total_parameters(), 27.0e9, 0.03);
    near(model("qwen3-235b-a22b").total_parameters(), 235.0e9, 0.01);
    near(model("qwen3-30b-a3b").total_parameters(), 30.5e9, 0.01);
    near(model("llama-3.1-70b").total_parameters(), 70.6e9, 0.01);
    near(model("deepseek-v3").total_parameters(), 671.0e9, 0.01);
    near(model("qwen3.5-122b-a10b").active_parameters(), 9.0e9, 0.005);
    near(model("qwen3-30b-a3b").active_parameters(), 3.0e9, 0.03);
    near(model("deepseek-v3").active_parameters(), 37.0e9, 0.03);
}

#[test]
fn sizes_of_the_reference_model() {
    let model = model("qwen3.5-122b-a10b");
    near(model.parameters(Part::Attention) / 12.0, 78.6e6, 0.001);
    near(model.parameters(Part::LinearAttention) / 36.0, 88.5e6, 0.001);
    near(model.state_bytes(None), 153.6e6, 0.001);
    near(model.kv_bytes(1.0, 1, Precision::Bfloat16), 24_576.0, 0.0);
    // Two heads on four GPUs: each is kept twice.
    near(model.kv_bytes(1.0, 4, Precision::Bfloat16), 12_288.0, 0.0);
    // A latent vector is kept by every GPU.
    let latent = crate::workload::model("deepseek-v3");
    near(latent.kv_bytes(1.0, 1, Precision::Bfloat16), 61.0 * 576.0 * 2.0, 0.0);
    near(latent.kv_bytes(1.0, 8, Precision::Bfloat16), 61.0 * 576.0 * 2.0, 0.0);
}

#[test]
fn experts_touched_by_uniform_routing() {
    let model = model("qwen3.5-122b-a10b");
    let uniform = Routing { spread: 1.0 };
    for (tokens, expected) in [(1.0, 8.0), (2.0, 15.8), (8.0, 57.4), (32.0, 163.0), (128.0, 251.6)]
    {
        near(model.touched(tokens, uniform), expected, 0.005);
    }
}

/// Times with one straight line through host memory, and the published curves over peers.
fn times(latency_us: f64, rate: f64) -> Times {
    let gpu = hardware::find("rtx-pro-6000").unwrap();
    let mut times = Times::seeds(gpu.link, 4);
    let line = Curve::line(latency_us * 1e-6, rate * 1e9, 4);
    times.host.curves = [line.clone(), line.clone(), line];
    times
}

struct Case {
    host: (f64, f64),
    sequences: f64,
    draft_steps: u32,
    memory_share: f64,
    fixed_ms: f64,
}

fn terms(case: &Case, arm: Arm) -> (Terms, Work) {
    let model = model("qwen3.5-122b-a10b");
    let gpu = hardware::find("rtx-pro-6000").unwrap();
    let times = times(case.host.0, case.host.1);
    let setup = Setup {
        model: &model,
        gpu: &gpu,
        layout: Layout::tensor(4),
        times: &times,
        pair: &times,
        kv: Precision::Bfloat16,
        state: None,
        message: 2.0,
        replay: false,
    };
    let work = Work { sequences: case.sequences, context: 1536.0, draft_steps: case.draft_steps };
    let scenario = Scenario {
        memory_share: case.memory_share,
        compute_share: 0.67,
        fixed_per_layer: case.fixed_ms * 1e-3 / 48.0,
        routing: Routing { spread: 1.0 },
        levels: Levels::MIDDLE,
    };
    (setup.decode(&work, arm, &scenario), work)
}

#[track_caller]
fn check(case: &Case, accepted: f64, arms: &[(Arm, f64)]) {
    for (arm, expected) in arms {
        let (terms, work) = terms(case, *arm);
        near(work.sequences * accepted / terms.total(), *expected, 0.03);
    }
}

#[test]
fn one_sequence() {
    let case =
        |host| Case { host, sequences: 1.0, draft_steps: 0, memory_share: 0.8, fixed_ms: 3.05 };
    check(&case((25.0, 20.0)), 1.0, &[(Arm::Host, 114.0)]);
    check(
        &case((30.0, 12.0)),
        1.0,
        &[(Arm::Host, 108.0), (Arm::Peer, 132.0), (Arm::PeerKernel, 145.0)],
    );
    check(&case((48.0, 10.0)), 1.0, &[(Arm::Host, 90.0)]);
    let (seen, _) = terms(&case((30.0, 12.0)), Arm::Host);
    near(seen.dense_weights + seen.experts + seen.state + seen.kv, 3.2e-3, 0.01);
    near(seen.all_reduce, 2.99e-3, 0.01);
    near(seen.gather, 0.061e-3, 0.01);
}

#[test]
fn many_sequences() {
    let case =
        |host| Case { host, sequences: 128.0, draft_steps: 0, memory_share: 0.8, fixed_ms: 3.5 };
    check(&case((25.0, 20.0)), 1.0, &[(Arm::Host, 1991.0)]);
    check(
        &case((30.0, 12.0)),
        1.0,
        &[(Arm::Host, 1824.0), (Arm::Peer, 2047.0), (Arm::PeerKernel, 2063.0)],
    );
    check(&case((48.0, 10.0)), 1.0, &[(Arm::Host, 1715.0)]);
}

#[test]
fn speculation_for_one_sequence() {
    for (steps, accepted, host, peer, kernel) in [
        (1, 1.8, 160.0, 191.0, 206.0),
        (2, 2.4, 183.0, 214.0, 228.0),
        (3, 2.7, 180.0, 209.0, 221.0),
    ] {
        let case = Case {
            host: (30.0, 12.0),
            sequences: 1.0,
            draft_steps: steps,
            memory_share: 0.8,
            fixed_ms: 3.05,
        };
        let arms = [(Arm::Host, host), (Arm::Peer, peer), (Arm::PeerKernel, kernel)];
        check(&case, accepted, &arms);
    }
}

#[test]
fn speculation_for_many_sequences() {
    for (sequences, steps, accepted, slow, fast) in [
        (8.0, 3, 2.7, 542.0, 574.0),
        (32.0, 3, 2.7, 1238.0, 1381.0),
        (64.0, 3, 2.7, 1877.0, 2211.0),
        (128.0, 1, 1.8, 2557.0, 2989.0),
        (128.0, 3, 2.7, 2568.0, 3221.0),
    ] {
        for (host, expected) in [((30.0, 12.0), slow), ((25.0, 20.0), fast)] {
            let case =
                Case { host, sequences, draft_steps: steps, memory_share: 0.85, fixed_ms: 3.5 };
            check(&case, accepted, &[(Arm::Host, expected)]);
        }
    }
}
