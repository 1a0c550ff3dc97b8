//! Architectures that are known: what their configurations mean, as data.

/// How a family's layers are built, as far as it cannot be read from the fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Family {
    /// `model_type` values.
    pub(super) types: &'static [&'static str],
    /// Matrices of a feed-forward block: 3 with a gate, 2 without.
    pub(super) matrices: u32,
    /// Attention and feed-forward share one sum, so one all-reduce a layer.
    pub(super) parallel_residual: bool,
    /// `intermediate_size` is the width of an expert.
    pub(super) width_of_experts: bool,
    /// The query projection carries an output gate although no field says so.
    pub(super) output_gate: bool,
}

const PLAIN: Family = Family {
    types: &[],
    matrices: 3,
    parallel_residual: false,
    width_of_experts: false,
    output_gate: false,
};

/// From the engines' model classes for these types and the models' own published configurations.
const FAMILIES: &[Family] = &[
    Family {
        types: &[
            "llama",
            "mistral",
            "ministral3",
            "qwen2",
            "qwen3",
            "phi3",
            "granite",
            "olmo2",
            "olmo3",
            "internlm2",
            "internlm3",
            "seed_oss",
            "smollm3",
            "exaone4",
            "gemma2",
            "gemma3_text",
            "glm4",
            "qwen2_vl",
            "qwen2_vl_text",
            "qwen2_5_vl",
            "qwen2_5_vl_text",
            "qwen3_vl_text",
        ],
        ..PLAIN
    },
    Family {
        types: &[
            "qwen2_moe",
            "qwen3_moe",
            "qwen3_vl_moe_text",
            "glm4_moe",
            "glm4_moe_text",
            "deepseek_v2",
            "deepseek_v3",
            "deepseek_v32",
            "kimi_k2",
        ],
        ..PLAIN
    },
    Family {
        types: &["mixtral", "minimax_m2", "gpt_oss", "phimoe"],
        width_of_experts: true,
        ..PLAIN
    },
    Family {
        types: &["qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"],
        output_gate: true,
        ..PLAIN
    },
    Family { types: &["starcoder2", "gpt_bigcode", "opt"], matrices: 2, ..PLAIN },
    Family {
        types: &["falcon", "gptj", "gpt_neox", "phi"],
        matrices: 2,
        parallel_residual: true,
        ..PLAIN
    },
    Family { types: &["cohere", "cohere2"], parallel_residual: true, ..PLAIN },
];

/// The family of a `model_type`.
pub(super) fn find(model_type: &str) -> Option<Family> {
    FAMILIES.iter().find(|family| family.types.contains(&model_type)).copied()
}

/// All types that are known, for a message.
pub(super) fn types() -> String {
    FAMILIES.iter().flat_map(|family| family.types).copied().collect::<Vec<_>>().join(", ")
}
