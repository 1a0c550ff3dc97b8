//! What an estimate takes from its request, and what it refuses.

use peerway_worth::allreduce::{Arm, Times};
use peerway_worth::config::Part;
use peerway_worth::hardware::{self, Link};
use peerway_worth::options::Available;
use peerway_worth::precision::Precision;
use peerway_worth::{Layout, Request, estimate};
use serde_json::json;

use crate::workload::{model, reference};

#[track_caller]
fn accepted(steps: u32, length: f64, expected: &str) {
    let request = Request { draft_steps: steps, accepted: Some(length), ..reference() };
    let seen = match estimate(&request) {
        Ok(found) => {
            let measured: Vec<u32> = found
                .speculation
                .iter()
                .filter(|row| !row.accepted_assumed)
                .map(|row| row.draft_steps)
                .collect();
            format!("measured at {measured:?}")
        }
        Err(error) => error.to_string(),
    };
    assert!(seen.starts_with(expected), "{seen}");
}

#[test]
fn an_accept_length_holds_for_its_depth() {
    accepted(0, 2.4, "an accept length says nothing without its depth");
    accepted(2, 2.4, "measured at [2]");
    accepted(3, 2.4, "measured at [3]");
    accepted(1, 2.4, "accept length is 2.4; expected 1 to the draft steps and one more");
}

fn measured(widths: &[usize], arms: &[&str]) -> String {
    let mut rows = Vec::new();
    for width in widths {
        for arm in arms {
            for (bytes, seconds) in [(1024, 20e-6), (1_048_576, 150e-6)] {
                let gpus: Vec<usize> = (0..*width).collect();
                rows.push(json!({"gpus": gpus, "arm": arm, "bytes": bytes, "seconds": seconds,
                    "verdict": "intact"}));
            }
        }
    }
    json!({"all_reduce": rows}).to_string()
}

/// Whether sums were assumed, by row of decode, and of the option of two replicas.
#[track_caller]
fn sums(widths: &[usize], arms: &[&str], rows: &[(Arm, bool)], replicas: bool) {
    let text = measured(widths, arms);
    // A model of which two GPUs hold a replica.
    let request = Request {
        model: model("qwen3-30b-a3b"),
        times: Some(Times::from_test(&text, Link::Pcie5, 4).unwrap()),
        other_times: Times::others_from_test(&text, Link::Pcie5, 4),
        ..reference()
    };
    let found = estimate(&request).unwrap();
    let seen: Vec<(Arm, bool)> =
        found.decode.iter().map(|row| (row.arm, row.sums_assumed)).collect();
    assert_eq!(seen, rows);
    let option = found.options.iter().find(|row| row.id == "replicas-2").unwrap();
    assert_eq!(option.sums_assumed, replicas, "{option:?}");
    let mixed = found.notes.iter().any(|note| note.contains("compares the two"));
    assert_eq!(mixed, arms.len() == 1, "{:?}", found.notes);
}

#[test]
fn measured_and_assumed_sums_are_told_apart() {
    let (host, peer, kernel) = (Arm::Host, Arm::Peer, Arm::PeerKernel);
    sums(&[4], &["host", "p2p"], &[(host, false), (peer, false), (kernel, true)], true);
    sums(&[4], &["host"], &[(host, false), (peer, true), (kernel, true)], true);
    sums(&[4], &["p2p"], &[(host, true), (peer, false), (kernel, true)], true);
    assert_eq!(Times::others_from_test(&measured(&[2, 4], &["host"]), Link::Pcie5, 4).len(), 1);
}

#[track_caller]
fn option(request: &Request, id: &str, expected: Available) {
    let found = estimate(request).unwrap();
    let row = found.options.iter().find(|row| row.id == id).unwrap();
    assert_eq!(row.available, expected, "{row:?}");
}

#[test]
fn options_that_do_not_fit_are_not_offered() {
    // 61 GB of weights on each of four GPUs.
    let tight = Request { memory_fraction: 0.5, ..reference() };
    for id in ["p2p", "p2p-kernels", "mtp", "int8-messages", "fp8-kv", "attention-dp"] {
        option(&tight, id, Available::No);
        option(&reference(), id, Available::Yes);
    }
    option(&tight, "fp8-weights", Available::Yes);
}

#[test]
fn a_message_is_of_one_share_of_the_batch() {
    let of = |pp, replicas| {
        let layout = Layout { pp, replicas, ..Layout::tensor(4) };
        let found = estimate(&Request { concurrency: 64, layout, ..reference() }).unwrap();
        found.sizes.all_reduce_bytes / (3072.0 * 2.0)
    };
    assert_eq!([of(1, 1), of(2, 1), of(1, 2), of(2, 2)], [64.0, 32.0, 32.0, 16.0]);
}

/// Seconds of computation alone in a long chunk of prefill.
fn prefill_compute(request: &Request) -> f64 {
    let mut request = request.clone();
    request.prompt = 8192;
    request.gpu.memory_rate = 1e18;
    let found = estimate(&request).unwrap();
    let terms = &found.prefill[0].terms;
    terms.iter().find(|term| term.term == "compute").unwrap().seconds.mid
}

#[test]
fn prefill_needs_one_row_of_logits() {
    let small = Request { model: model("qwen3-30b-a3b"), ..reference() };
    let mut wide = small.clone();
    wide.model.vocabulary *= 8;
    assert!((prefill_compute(&wide) / prefill_compute(&small) - 1.0).abs() < 0.01);
}

#[test]
fn prefill_of_a_latent_model_attends_over_heads() {
    let model = model("deepseek-v3");
    let (decode, prefill) =
        (model.attention_operations(1000.0, false), model.attention_operations(1000.0, true));
    let layers = 61.0 * 1000.0 * 2.0 * 128.0;
    assert!((decode / (layers * (2.0 * 512.0 + 64.0)) - 1.0).abs() < 1e-9);
    assert!((prefill / (layers * (128.0 + 64.0 + 128.0)) - 1.0).abs() < 1e-9);
}

#[test]
fn four_bits_are_computed_with_where_the_gpu_can() {
    let of = |gpu: &str, format| {
        let mut request = Request { gpu: hardware::find(gpu).unwrap(), ..reference() };
        for part in [Part::Experts, Part::DenseFfn] {
            request.model.weights.set(part, format);
        }
        prefill_compute(&request)
    };
    let ratio = |gpu| of(gpu, Precision::Bfloat16) / of(gpu, Precision::Nvfp4);
    assert!(ratio("rtx-pro-6000") > 1.9);
    assert!((ratio("h200") - 1.0).abs() < 1e-3);
}

#[test]
fn the_way_to_the_host_is_that_of_the_type() {
    let rate = |name: &str| hardware::find(name).unwrap().link.host_rate();
    assert!(rate("a100-sxm") < 32e9 && rate("h200") > 60e9);
    assert!(hardware::find("a100-sxm").unwrap().link.is_nvlink());
}
