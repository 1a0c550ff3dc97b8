//! What holds for every configuration, GPU and layout.

use peerway_worth::allreduce::{Arm, Curve, Times};
use peerway_worth::hardware::{GPUS, Link};
use peerway_worth::{Interval, Layout, ModelConfig, Request, estimate};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::workload::reference;

/// Numbers of a configuration, within and far without what models have.
fn number() -> impl Strategy<Value = Value> {
    prop_oneof![
        200 => (1_u32..8192).prop_map(|n| json!(n)),
        1 => (1_u32..2_000_000_000).prop_map(|n| json!(n)),
        1 => Just(json!(0)),
        1 => Just(json!(-3)),
        1 => Just(json!(1e308)),
        1 => Just(json!("12")),
        1 => Just(Value::Null),
    ]
}

fn config() -> impl Strategy<Value = String> {
    const NAMES: [&str; 22] = [
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "num_key_value_heads",
        "head_dim",
        "intermediate_size",
        "vocab_size",
        "num_experts",
        "num_experts_per_tok",
        "moe_intermediate_size",
        "shared_expert_intermediate_size",
        "linear_num_key_heads",
        "linear_num_value_heads",
        "linear_key_head_dim",
        "linear_value_head_dim",
        "linear_conv_kernel_dim",
        "full_attention_interval",
        "kv_lora_rank",
        "qk_nope_head_dim",
        "qk_rope_head_dim",
        "v_head_dim",
        "mtp_num_hidden_layers",
    ];
    const KINDS: [&str; 6] =
        ["llama", "qwen3_moe", "qwen3_5_moe", "deepseek_v3", "falcon", "gpt_oss"];
    (proptest::sample::select(&KINDS[..]), prop::collection::vec(number(), NAMES.len())).prop_map(
        |(kind, numbers)| {
            let mut map = serde_json::Map::new();
            map.insert("model_type".to_owned(), json!(kind));
            for (name, number) in NAMES.iter().zip(numbers) {
                map.insert((*name).to_owned(), number);
            }
            Value::Object(map).to_string()
        },
    )
}

/// A small configuration that is always accepted.
fn sound() -> impl Strategy<Value = ModelConfig> {
    (1_u32..64, 1_u32..8, 1_u32..100, 0_u32..300, 0_u32..3).prop_map(
        |(wide, heads, layers, experts, drafts)| {
            let mut config = json!({
                "model_type": "qwen3_5_moe", "hidden_size": wide * 64, "num_hidden_layers": layers,
                "num_attention_heads": heads * 8, "num_key_value_heads": heads, "head_dim": 64,
                "intermediate_size": wide * 128, "vocab_size": wide * 1000,
                "mtp_num_hidden_layers": drafts,
            });
            if experts > 7 {
                config["num_experts"] = json!(experts);
                config["num_experts_per_tok"] = json!(4);
                config["moe_intermediate_size"] = json!(wide * 32);
                config["shared_expert_intermediate_size"] = json!(0);
            }
            ModelConfig::parse(&config.to_string()).unwrap()
        },
    )
}

#[track_caller]
fn sane(interval: Interval) {
    assert!(interval.low.is_finite() && interval.high.is_finite(), "{interval:?}");
    assert!(interval.low <= interval.mid && interval.mid <= interval.high, "{interval:?}");
}

fn small(request: Request) -> Request {
    // Two levels of few assumptions keep a case quick.
    let mut assumptions = request.assumptions.clone();
    assumptions.compute_share = Interval::exact(assumptions.compute_share.mid);
    assumptions.memory_share = Interval::exact(assumptions.memory_share.mid);
    Request { assumptions, ..request }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_configuration_gives_numbers_or_an_error(
        text in config(), tp in 1_u32..9, concurrency in 1_u32..1000, gpu in 0_usize..GPUS.len(),
    ) {
        if let Ok(model) = ModelConfig::parse(&text) {
            let request = small(Request {
                model,
                gpu: GPUS[gpu],
                layout: Layout::tensor(tp),
                concurrency,
                ..reference()
            });
            if let Ok(estimate) = estimate(&request) {
                for row in &estimate.decode {
                    sane(row.tokens_per_second);
                    prop_assert!(row.tokens_per_second.low >= 0.0);
                    row.terms.iter().for_each(|term| {
                        sane(term.seconds);
                        assert!(term.seconds.low >= 0.0);
                    });
                }
                for option in &estimate.options {
                    option.gain_percent.into_iter().for_each(sane);
                    option.gain_with_p2p_percent.into_iter().for_each(sane);
                }
            }
        }
    }

    #[test]
    fn sound_configurations_are_estimated(model in sound(), concurrency in 1_u32..512) {
        let request = small(Request { model, layout: Layout::tensor(4), concurrency, ..reference() });
        let estimate = estimate(&request).unwrap();
        prop_assert_eq!(estimate.decode.len(), 3);
        prop_assert!(estimate.decode.iter().all(|row| row.tokens_per_second.low > 0.0));
    }

    #[test]
    fn more_memory_rate_is_never_slower(model in sound(), faster in 1.0_f64..10.0) {
        let slow = small(Request { model, ..reference() });
        let mut fast = slow.clone();
        fast.gpu.memory_rate *= faster;
        let rate = |request: &Request| estimate(request).unwrap().decode[0].tokens_per_second;
        prop_assert!(rate(&fast).mid >= rate(&slow).mid * (1.0 - 1e-9));
        prop_assert!(rate(&fast).low >= rate(&slow).low * (1.0 - 1e-9));
    }

    #[test]
    fn faster_messages_are_never_slower(model in sound(), faster in 1.0_f64..10.0) {
        let line = |rate: f64| {
            let mut times = Times::seeds(Link::Pcie5, 4);
            let curve = Curve::line(30e-6, rate, 4);
            times.host.curves = [curve.clone(), curve.clone(), curve];
            times
        };
        let rate = |link: f64| {
            let request =
                small(Request { model: model.clone(), times: Some(line(link)), ..reference() });
            estimate(&request).unwrap().decode[0].tokens_per_second.mid
        };
        prop_assert!(rate(10e9 * faster) >= rate(10e9) * (1.0 - 1e-9));
    }

    #[test]
    fn a_larger_message_takes_no_less_on_a_line(bytes in 1.0_f64..1e9, more in 1.0_f64..100.0) {
        for ranks in [2, 3, 4, 8, 16] {
            let times = Times::seeds(Link::Pcie5, ranks);
            for arm in [Arm::Host, Arm::Peer, Arm::PeerKernel] {
                let levels = peerway_worth::allreduce::Levels::MIDDLE;
                let (one, two) =
                    (times.all_reduce(arm, levels, bytes), times.all_reduce(arm, levels, bytes * more));
                prop_assert!(one.is_finite() && one > 0.0);
                // The published curves have a dip of a few per cent at their short end.
                prop_assert!(two >= one * 0.9);
            }
        }
    }
}
