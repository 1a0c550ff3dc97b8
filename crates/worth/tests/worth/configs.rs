//! Configurations that are incomplete, absurd or unknown.

use peerway_worth::config::{Attention, Part};
use peerway_worth::{ModelConfig, known};
use serde_json::{Value, json};

/// A known configuration with some fields set, or taken away where null.
fn changed(name: &str, changes: &Value) -> String {
    let mut config: Value = serde_json::from_str(known::text(name).unwrap()).unwrap();
    for (key, value) in changes.as_object().unwrap() {
        let mut place = &mut config;
        let mut path: Vec<&str> = key.split('/').collect();
        let last = path.pop().unwrap();
        for step in path {
            place = &mut place[step];
        }
        if value.is_null() {
            place.as_object_mut().unwrap().remove(last);
        } else {
            place[last] = value.clone();
        }
    }
    config.to_string()
}

#[track_caller]
fn refused(name: &str, changes: &Value, expected: &str) {
    let seen = ModelConfig::parse(&changed(name, changes)).unwrap_err().to_string();
    assert!(seen.starts_with(expected), "{seen:?}");
}

const LLAMA: &str = "llama-3.1-70b";
const QWEN: &str = "qwen3.5-122b-a10b";

#[test]
fn errors_name_the_field() {
    refused(LLAMA, &json!({"hidden_size": null}), "the configuration lacks hidden_size or n_embd");
    refused(LLAMA, &json!({"vocab_size": null}), "the configuration lacks vocab_size");
    refused(LLAMA, &json!({"model_type": null}), "the configuration lacks model_type");
    refused(LLAMA, &json!({"hidden_size": "wide"}), "hidden_size should be a whole number, and is");
    refused(LLAMA, &json!({"hidden_size": -1}), "hidden_size is -1; expected 1 to 1048576");
    refused(LLAMA, &json!({"hidden_size": 1e300}), "hidden_size is 1e+300; expected 1 to");
    refused(LLAMA, &json!({"num_hidden_layers": 0}), "num_hidden_layers is 0; expected 1 to 4096");
    refused(
        LLAMA,
        &json!({"num_hidden_layers": 2.5}),
        "num_hidden_layers should be a whole number",
    );
    refused(LLAMA, &json!({"num_key_value_heads": 65}), "num_key_value_heads: 65 are more than");
    refused(LLAMA, &json!({"torch_dtype": "vast"}), "torch_dtype should be the name of a number");
    refused(
        LLAMA,
        &json!({"model_type": "hyena"}),
        "model_type \"hyena\" is unknown to this version",
    );
    refused(
        QWEN,
        &json!({"text_config/num_experts_per_tok": 300}),
        "num_experts_per_tok: 300 are more than the 256 experts",
    );
    refused(
        QWEN,
        &json!({"text_config/linear_key_head_dim": null}),
        "the configuration lacks text_config.linear_key_head_dim",
    );
    refused(
        QWEN,
        &json!({"text_config/layer_types": ["linear_attention"]}),
        "layer_types: lists 1 layers, and num_hidden_layers is 48",
    );
    refused(
        LLAMA,
        &json!({"quantization_config": {"quant_method": "tinyq"}}),
        "the quantisation is unknown to this version (quantization_config.quant_method: tinyq)",
    );
    refused(
        LLAMA,
        &json!({"quantization_config": {}}),
        "the configuration lacks quantization_config.quant_method",
    );
    for text in ["", "[1]", "{", "null", "{}"] {
        assert!(ModelConfig::parse(text).is_err(), "{text:?}");
    }
}

#[track_caller]
fn formats(changes: &Value, part: Part, expected: &str) {
    let model = ModelConfig::parse(&changed(QWEN, changes)).unwrap();
    assert_eq!(model.weights.of(part).word(), expected);
}

#[test]
fn quantised_parts() {
    let fp8 = json!({"quantization_config": {"quant_method": "fp8",
        "modules_to_not_convert": ["lm_head", "model.layers.0.mlp.gate"]}});
    formats(&fp8, Part::Experts, "FP8");
    formats(&fp8, Part::Head, "bfloat16");
    formats(&fp8, Part::Router, "bfloat16");
    let fp4 = json!({"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4",
        "ignore": ["re:.*self_attn.*", "*linear_attn*", "mtp*"]}});
    formats(&fp4, Part::Experts, "NVFP4");
    formats(&fp4, Part::Attention, "bfloat16");
    formats(&fp4, Part::LinearAttention, "bfloat16");
    formats(&fp4, Part::Draft, "bfloat16");
    let groups = json!({"quantization_config": {"quant_method": "compressed-tensors",
        "config_groups": {"group_0": {"weights": {"num_bits": 4, "type": "int", "group_size": 128}}},
        "ignore": ["lm_head"]}});
    formats(&groups, Part::SharedExpert, "INT4");
    let mxfp4 = json!({"quantization_config": {"quant_method": "mxfp4"}});
    formats(&mxfp4, Part::Experts, "MXFP4");
    formats(&mxfp4, Part::Attention, "bfloat16");
    // One layer that is spared does not spare the part.
    let one = json!({"quantization_config": {"quant_method": "fp8",
        "ignored_layers": ["model.layers.3.self_attn.q_proj"]}});
    formats(&one, Part::Attention, "FP8");
}

#[test]
fn nested_and_listed_layers() {
    let mut types = vec!["full_attention"; 24];
    types.extend(vec!["linear_attention"; 24]);
    let model =
        ModelConfig::parse(&changed(QWEN, &json!({"text_config/layer_types": types}))).unwrap();
    assert_eq!((model.full_layers, model.linear.unwrap().layers), (24, 24));
    let model = ModelConfig::parse(known::text("deepseek-v3").unwrap()).unwrap();
    assert_eq!(model.experts.unwrap().layers, 58);
    assert_eq!((model.dense_layers, model.draft_layers), (3, 1));
    assert!(matches!(model.attention, Attention::Latent { kv_rank: 512, rope: 64, .. }));
    assert_eq!(model.weights.words(), "FP8 with bfloat16");
}
