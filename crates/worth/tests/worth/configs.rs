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
    refused(
        LLAMA,
        &json!({"num_key_value_heads": 5}),
        "num_key_value_heads: 5 do not divide the 64 query heads",
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

/// An ignore list as checkpoints have it: each module of every layer by its name.
fn listed(modules: &[&str], layers: u32) -> Value {
    let mut all = vec!["lm_head".to_owned()];
    for layer in 0..layers {
        all.extend(
            modules.iter().map(|module| format!("model.language_model.layers.{layer}.{module}")),
        );
    }
    json!({"quantization_config": {"quant_method": "fp8", "modules_to_not_convert": all}})
}

#[test]
fn small_leaves_spare_no_part() {
    let small = [
        "mlp.gate",
        "mlp.shared_expert_gate",
        "linear_attn.A_log",
        "linear_attn.dt_bias",
        "linear_attn.conv1d",
        "linear_attn.in_proj_a",
        "linear_attn.in_proj_b",
        "linear_attn.in_proj_ba",
        "linear_attn.norm",
        "self_attn.q_norm",
        "input_layernorm",
        "visual.blocks.3.attn.qkv",
    ];
    for part in
        [Part::Attention, Part::LinearAttention, Part::SharedExpert, Part::Experts, Part::Draft]
    {
        formats(&listed(&small, 48), part, "FP8");
    }
    // Every twelfth of the layers has full attention; all of those are half of them and more.
    let mut full = listed(&[], 0);
    let list = full["quantization_config"]["modules_to_not_convert"].as_array_mut().unwrap();
    list.extend((0..12).map(|at| json!(format!("model.layers.{}.self_attn.q_proj", at * 4 + 3))));
    formats(&full, Part::Attention, "bfloat16");
    formats(&full, Part::LinearAttention, "FP8");
    let vision = json!({"quantization_config": {"quant_method": "fp8", "modules_to_not_convert":
        ["model.visual.blocks.0.attn.qkv", "re:visual.*mlp.*", "multi_modal_projector",
         "audio_tower.layers.0.self_attn", "mtp.fc", "model.layers.0.mlp.gate"]}});
    for part in [Part::Attention, Part::DenseFfn, Part::Experts, Part::Draft] {
        formats(&vision, part, "FP8");
    }
}

#[track_caller]
fn four_bits(quantisation: &Value, expected: f64) {
    let config = changed(LLAMA, &json!({"quantization_config": quantisation}));
    let model = ModelConfig::parse(&config).unwrap();
    assert!((model.weights.bytes(Part::DenseFfn) - expected).abs() < 1e-12);
}

#[test]
fn scales_of_four_bit_integers() {
    four_bits(&json!({"quant_method": "gptq", "bits": 4, "group_size": 32}), 0.5625);
    four_bits(&json!({"quant_method": "gptq", "bits": 4, "group_size": 128}), 0.515_625);
    four_bits(&json!({"quant_method": "gptq", "bits": 4, "group_size": -1}), 0.5);
    four_bits(&json!({"quant_method": "awq", "bits": 4, "q_group_size": 64}), 0.531_25);
    four_bits(&json!({"quant_method": "awq", "bits": 4}), 0.515_625);
    let groups = |size: Value| {
        json!({"quant_method": "compressed-tensors", "config_groups":
        {"group_0": {"weights": {"num_bits": 4, "type": "int", "group_size": size}}}})
    };
    four_bits(&groups(json!(32)), 0.5625);
    four_bits(&groups(Value::Null), 0.5);
    refused(
        LLAMA,
        &json!({"quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 0}}),
        "quantization_config.group_size should be -1, or a whole number",
    );
}

/// Layers with a window, its tokens, and whether the embedding is the head's matrix.
#[track_caller]
fn family(config: Value, window: Option<(u32, u32)>, tied: bool) {
    let mut config = config;
    for (name, value) in [
        ("hidden_size", 512),
        ("num_attention_heads", 8),
        ("num_key_value_heads", 8),
        ("intermediate_size", 1024),
        ("vocab_size", 1000),
    ] {
        config[name] = json!(value);
    }
    let model = ModelConfig::parse(&config.to_string()).unwrap();
    let seen = model.window.map(|window| (window.layers, window.tokens));
    assert_eq!((seen, model.tied), (window, tied), "{config}");
    let said = config.get("tie_word_embeddings").is_some();
    assert_eq!(model.assumed.iter().any(|note| note.contains("input embedding")), !said);
}

#[test]
fn windows_and_tied_embeddings() {
    let of = |kind: &str, layers: u32| json!({"model_type": kind, "num_hidden_layers": layers});
    let with = |mut config: Value, more: Value| {
        for (name, value) in more.as_object().unwrap() {
            config[name] = value.clone();
        }
        config
    };
    let window = json!({"sliding_window": 1024});
    family(of("gemma2", 42), None, true);
    family(with(of("gemma2", 42), window.clone()), Some((21, 1024)), true);
    family(with(of("gemma3_text", 62), window.clone()), Some((52, 1024)), true);
    let pattern = json!({"sliding_window": 4096, "sliding_window_pattern": 4});
    family(with(of("cohere2", 40), pattern), Some((30, 4096)), true);
    let word = json!({"sliding_window": 4096, "sliding_window_pattern": "LLLG"});
    family(with(of("exaone4", 64), word), Some((48, 4096)), false);
    let types = vec!["sliding_attention", "full_attention", "full_attention", "full_attention"];
    let listed = json!({"sliding_window": 128, "layer_types": types,
        "tie_word_embeddings": false});
    family(with(of("llama", 4), listed), Some((1, 128)), false);
    family(with(of("mistral", 32), window.clone()), Some((32, 1024)), false);
    family(with(of("mistral", 32), json!({"sliding_window": null})), None, false);
    let off = json!({"sliding_window": 1024, "use_sliding_window": false});
    family(with(of("qwen2", 28), off), None, false);
    let on = json!({"sliding_window": 1024, "use_sliding_window": true, "max_window_layers": 20});
    family(with(of("qwen2", 28), on), Some((8, 1024)), false);
    family(with(of("cohere", 40), json!({"tie_word_embeddings": false})), None, false);
    family(of("llama", 32), None, false);
}

#[test]
fn windowed_layers_keep_their_window() {
    let config = json!({"model_type": "gpt_oss", "hidden_size": 2880, "num_hidden_layers": 36,
        "num_attention_heads": 64, "num_key_value_heads": 8, "head_dim": 64,
        "intermediate_size": 2880, "num_local_experts": 128, "num_experts_per_tok": 4,
        "vocab_size": 201_088, "sliding_window": 128, "tie_word_embeddings": false});
    let model = ModelConfig::parse(&config.to_string()).unwrap();
    let bytes =
        |context: f64| model.kv_bytes(context, 1, peerway_worth::precision::Precision::Bfloat16);
    let layer = 2.0 * 8.0 * 64.0 * 2.0;
    assert!((bytes(100.0) - 36.0 * layer * 100.0).abs() < 1.0);
    assert!((bytes(10_000.0) - 18.0 * layer * (10_000.0 + 128.0)).abs() < 1.0);
}
