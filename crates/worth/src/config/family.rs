//! Architectures that are known: what their configurations mean, as data.

/// How a family's layers are built, as far as it cannot be read from the fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent columns of a table")]
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
    /// Input embedding and output projection are one matrix where no field says so.
    pub(super) tied: bool,
    /// Which layers have a window where `sliding_window` is given and no field says which.
    pub(super) sliding: Sliding,
}

/// Which layers see the last tokens only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sliding {
    /// Those that `use_sliding_window` and `max_window_layers` say, none without.
    WhereSaid,
    /// All of them.
    All,
    /// All but every so-manieth.
    Every(u32),
}

const PLAIN: Family = Family {
    types: &[],
    matrices: 3,
    parallel_residual: false,
    width_of_experts: false,
    output_gate: false,
    tied: false,
    sliding: Sliding::WhereSaid,
};

/// From the engines' model classes for these types and the models' own published configurations.
const FAMILIES: &[Family] = &[
    Family {
        types: &[
            "llama",
            "qwen2",
            "qwen3",
            "granite",
            "olmo2",
            "internlm2",
            "internlm3",
            "seed_oss",
            "glm4",
            "qwen2_vl",
            "qwen2_vl_text",
            "qwen2_5_vl",
            "qwen2_5_vl_text",
            "qwen3_vl_text",
        ],
        ..PLAIN
    },
    Family { types: &["mistral", "ministral3", "phi3"], sliding: Sliding::All, ..PLAIN },
    Family { types: &["olmo3", "exaone4"], sliding: Sliding::Every(4), ..PLAIN },
    Family { types: &["smollm3"], tied: true, ..PLAIN },
    Family { types: &["gemma2"], tied: true, sliding: Sliding::Every(2), ..PLAIN },
    Family { types: &["gemma3_text"], tied: true, sliding: Sliding::Every(6), ..PLAIN },
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
        types: &["mixtral", "phimoe"],
        width_of_experts: true,
        sliding: Sliding::All,
        ..PLAIN
    },
    Family { types: &["minimax_m2"], width_of_experts: true, ..PLAIN },
    Family { types: &["gpt_oss"], width_of_experts: true, sliding: Sliding::Every(2), ..PLAIN },
    Family {
        types: &["qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text"],
        output_gate: true,
        ..PLAIN
    },
    Family { types: &["starcoder2"], matrices: 2, tied: true, sliding: Sliding::All, ..PLAIN },
    Family { types: &["gpt_bigcode", "opt"], matrices: 2, tied: true, ..PLAIN },
    Family { types: &["falcon"], matrices: 2, parallel_residual: true, tied: true, ..PLAIN },
    Family { types: &["gptj", "gpt_neox", "phi"], matrices: 2, parallel_residual: true, ..PLAIN },
    Family { types: &["cohere"], parallel_residual: true, tied: true, ..PLAIN },
    Family {
        types: &["cohere2"],
        parallel_residual: true,
        tied: true,
        sliding: Sliding::Every(4),
        ..PLAIN
    },
];

/// The family of a `model_type`.
pub(super) fn find(model_type: &str) -> Option<Family> {
    FAMILIES.iter().find(|family| family.types.contains(&model_type)).copied()
}

/// All types that are known, for a message.
pub(super) fn types() -> String {
    FAMILIES.iter().flat_map(|family| family.types).copied().collect::<Vec<_>>().join(", ")
}
