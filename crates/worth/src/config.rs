//! A model's `config.json`, as far as its cost depends on it.
//!
//! Field names are those of the public checkpoints; models with vision or audio nest the language
//! part. What the fields mean is known by `model_type`: an architecture that is not known is an
//! error and never guessed at.

mod family;
mod fields;
mod quantisation;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use thiserror::Error;

use crate::precision::Precision;
use family::Family;
use fields::Fields;

/// Why a configuration cannot be used.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// Not JSON.
    #[error("the configuration is not JSON: {0}")]
    NotJson(String),
    /// JSON, but no object.
    #[error("the configuration is no JSON object")]
    NotAnObject,
    /// A field that the model cannot be without.
    #[error("the configuration lacks {field}")]
    Missing {
        /// Its name, with where it stands.
        field: String,
    },
    /// A field of another kind.
    #[error("{field} should be {wanted}, and is {found}")]
    Kind {
        /// Its name.
        field: String,
        /// What it should be.
        wanted: &'static str,
        /// What it is.
        found: String,
    },
    /// A number that no model has.
    #[error("{field} is {value}; expected {least} to {most}")]
    Range {
        /// Its name.
        field: String,
        /// What it is.
        value: String,
        /// Least accepted.
        least: u32,
        /// Most accepted.
        most: u32,
    },
    /// Fields that contradict each other.
    #[error("{field}: {why}")]
    Contradiction {
        /// The field.
        field: &'static str,
        /// What it contradicts.
        why: String,
    },
    /// An architecture that this program does not know.
    #[error("model_type {model_type:?} is unknown to this version; known are: {}", family::types())]
    UnknownArchitecture {
        /// What the configuration says.
        model_type: String,
    },
    /// A quantisation that this program does not know.
    #[error(
        "the quantisation is unknown to this version ({field}), so the size of the weights is unknown"
    )]
    UnknownQuantisation {
        /// Field and value.
        field: String,
    },
}

/// A part of the weights.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// Projections of full attention.
    Attention,
    /// Projections of linear attention.
    LinearAttention,
    /// Feed-forward blocks that every token passes.
    DenseFfn,
    /// Routed experts.
    Experts,
    /// Experts that every token passes.
    SharedExpert,
    /// Routers of the experts.
    Router,
    /// The output projection to the vocabulary.
    Head,
    /// The input embedding.
    Embedding,
    /// Layers that draft tokens.
    Draft,
}

impl Part {
    /// All parts.
    pub const ALL: [Self; 9] = [
        Self::Attention,
        Self::LinearAttention,
        Self::DenseFfn,
        Self::Experts,
        Self::SharedExpert,
        Self::Router,
        Self::Head,
        Self::Embedding,
        Self::Draft,
    ];

    /// Parts that a quantisation covers unless it spares them: the linear layers of the blocks.
    const QUANTISED: [Self; 6] = [
        Self::Attention,
        Self::LinearAttention,
        Self::DenseFfn,
        Self::Experts,
        Self::SharedExpert,
        Self::Draft,
    ];
}

/// The format of each part.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Weights {
    formats: std::collections::BTreeMap<Part, Precision>,
    base: Precision,
}

impl Weights {
    /// One format for everything.
    pub fn all(base: Precision) -> Self {
        Self { formats: std::collections::BTreeMap::new(), base }
    }

    /// The format of a part.
    pub fn of(&self, part: Part) -> Precision {
        self.formats.get(&part).copied().unwrap_or(self.base)
    }

    /// The format of what is not quantised.
    pub const fn base(&self) -> Precision {
        self.base
    }

    /// Sets the format of a part.
    pub fn set(&mut self, part: Part, format: Precision) {
        self.formats.insert(part, format);
    }

    /// The same with every linear layer of the blocks in one format.
    #[must_use]
    pub fn quantised(&self, format: Precision) -> Self {
        let mut other = self.clone();
        for part in Part::QUANTISED {
            other.set(part, format);
        }
        other
    }

    /// The formats in words: `bfloat16`, or `NVFP4 with bfloat16`.
    pub fn words(&self) -> String {
        let mut seen: Vec<&str> = Vec::new();
        for part in Part::ALL {
            let word = self.of(part).word();
            if !seen.contains(&word) {
                seen.push(word);
            }
        }
        let base = self.base.word();
        let others: Vec<&str> = seen.into_iter().filter(|word| *word != base).collect();
        if others.is_empty() {
            base.to_owned()
        } else {
            format!("{} with {base}", others.join(", "))
        }
    }
}

/// How full attention is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Attention {
    /// Heads with keys and values, several query heads to one of them.
    Grouped {
        /// Query heads.
        heads: u32,
        /// Key and value heads.
        kv_heads: u32,
        /// Width of a head.
        head_dim: u32,
        /// Whether the query projection carries an output gate, which doubles it.
        gate: bool,
    },
    /// Multi-head latent attention: one compressed vector a token.
    Latent {
        /// Heads.
        heads: u32,
        /// Rank of the query projection; absent where it is not factored.
        query_rank: Option<u32>,
        /// Rank of keys and values: what is kept of a token.
        kv_rank: u32,
        /// Width of a head without position.
        nope: u32,
        /// Width that carries the position, kept beside the rank.
        rope: u32,
        /// Width of a value.
        value: u32,
    },
}

/// Linear attention with a recurrent state (gated delta rule).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Linear {
    /// Layers of it.
    pub layers: u32,
    /// Key heads.
    pub key_heads: u32,
    /// Value heads.
    pub value_heads: u32,
    /// Width of a key.
    pub key_dim: u32,
    /// Width of a value.
    pub value_dim: u32,
    /// Width of the convolution before it.
    pub convolution: u32,
    /// Format of the state.
    pub state: Precision,
}

/// Routed experts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Experts {
    /// Layers that have them.
    pub layers: u32,
    /// Experts a layer.
    pub count: u32,
    /// Experts that a token passes.
    pub chosen: u32,
    /// Width of one.
    pub width: u32,
    /// Width of what every token passes beside them; 0 without.
    pub shared_width: u32,
}

/// A model, as far as its cost depends on it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ModelConfig {
    /// `model_type` of the language part.
    pub model_type: String,
    /// Width of the residual stream.
    pub hidden: u32,
    /// Layers, without those that draft.
    pub layers: u32,
    /// Layers with full attention.
    pub full_layers: u32,
    /// Full attention.
    pub attention: Attention,
    /// Linear attention; absent where every layer has full attention.
    pub linear: Option<Linear>,
    /// Width of the dense feed-forward blocks.
    pub dense_width: u32,
    /// Layers with a dense feed-forward block.
    pub dense_layers: u32,
    /// Matrices of a feed-forward block: 3 with a gate, 2 without.
    pub matrices: u32,
    /// Routed experts; absent in a dense model.
    pub experts: Option<Experts>,
    /// Attention and feed-forward share one sum.
    pub parallel_residual: bool,
    /// Words of the vocabulary.
    pub vocabulary: u32,
    /// Input embedding and output projection are one matrix.
    pub tied: bool,
    /// Layers that draft tokens (MTP, NEXTN).
    pub draft_layers: u32,
    /// Formats of the weights.
    pub weights: Weights,
    /// Longest context; absent where the configuration does not say.
    pub longest: Option<u32>,
    /// What was assumed because the configuration does not say it.
    pub assumed: Vec<String>,
}

impl ModelConfig {
    /// Reads a configuration.
    ///
    /// # Errors
    /// What is missing, absurd or unknown, by the name of the field.
    pub fn parse(text: &str) -> Result<Self, ConfigError> {
        let value: Value =
            serde_json::from_str(text).map_err(|error| ConfigError::NotJson(error.to_string()))?;
        let Value::Object(top) = value else { return Err(ConfigError::NotAnObject) };
        let (map, place) = language_part(&top);
        Reader { top: &top, fields: Fields::new(map, place) }.model()
    }
}

/// The language part of a configuration, and the prefix of its fields.
fn language_part(top: &Map<String, Value>) -> (&Map<String, Value>, &'static str) {
    const NESTED: [(&str, &str); 3] = [
        ("text_config", "text_config."),
        ("language_config", "language_config."),
        ("llm_config", "llm_config."),
    ];
    for (name, place) in NESTED {
        if let Some(Value::Object(map)) = top.get(name)
            && !map.is_empty()
        {
            return (map, place);
        }
    }
    (top, "")
}

struct Reader<'a> {
    top: &'a Map<String, Value>,
    fields: Fields<'a>,
}

/// Bounds that every published model is far within.
const WIDEST: u32 = 1 << 20;
const DEEPEST: u32 = 4096;

impl Reader<'_> {
    fn model(&self) -> Result<ModelConfig, ConfigError> {
        let top = Fields::new(self.top, "");
        let model_type = match self.fields.word("model_type")? {
            Some(word) => word,
            None => top
                .word("model_type")?
                .ok_or_else(|| ConfigError::Missing { field: "model_type".to_owned() })?,
        };
        let family = family::find(model_type).ok_or_else(|| ConfigError::UnknownArchitecture {
            model_type: model_type.chars().take(80).collect(),
        })?;
        let mut assumed = Vec::new();
        let f = &self.fields;
        let hidden = f.need(&["hidden_size", "n_embd"], 1, WIDEST)?;
        let layers = f.need(&["num_hidden_layers", "n_layer"], 1, DEEPEST)?;
        let base = self.base(&mut assumed)?;
        let linear = self.linear(layers, &mut assumed)?;
        let full_layers = layers - linear.map_or(0, |linear| linear.layers);
        let attention = self.attention(hidden, family)?;
        let experts = self.experts(layers, family)?;
        let dense_layers = layers - experts.map_or(0, |experts| experts.layers);
        let dense_width = if dense_layers == 0 {
            0
        } else {
            match f.count(&["intermediate_size", "ffn_hidden_size", "n_inner"], 1, WIDEST)? {
                Some(width) => width,
                None if family.parallel_residual => {
                    assumed
                        .push("width of the feed-forward blocks: 4 times hidden_size".to_owned());
                    hidden.saturating_mul(4)
                }
                None => f.need(&["intermediate_size"], 1, WIDEST)?,
            }
        };
        let parallel_residual = family.parallel_residual
            && f.flag("use_parallel_residual")?.or(f.flag("parallel_attn")?).unwrap_or(true);
        let quantisation = top
            .object("quantization_config")?
            .or(f.object("quantization_config")?)
            .or(top.object("compression_config")?);
        Ok(ModelConfig {
            model_type: model_type.to_owned(),
            hidden,
            layers,
            full_layers,
            attention,
            linear,
            dense_width,
            dense_layers,
            matrices: family.matrices,
            experts,
            parallel_residual,
            vocabulary: f.need(&["vocab_size"], 1, 1 << 26)?,
            tied: f
                .flag("tie_word_embeddings")?
                .or(top.flag("tie_word_embeddings")?)
                .unwrap_or(false),
            draft_layers: f
                .count(&["mtp_num_hidden_layers", "num_nextn_predict_layers"], 0, 64)?
                .unwrap_or(0),
            weights: quantisation::weights(quantisation, base, layers)?,
            longest: f.count(&["max_position_embeddings", "n_positions"], 1, 1 << 30)?,
            assumed,
        })
    }

    /// The format of what is not quantised.
    fn base(&self, assumed: &mut Vec<String>) -> Result<Precision, ConfigError> {
        let top = Fields::new(self.top, "");
        for fields in [&self.fields, &top] {
            for name in ["dtype", "torch_dtype"] {
                if let Some(word) = fields.word(name)? {
                    return Precision::parse(word).ok_or_else(|| ConfigError::Kind {
                        field: name.to_owned(),
                        wanted: "the name of a number format",
                        found: word.chars().take(40).collect(),
                    });
                }
            }
        }
        assumed.push("the format of the weights: bfloat16, no dtype is given".to_owned());
        Ok(Precision::Bfloat16)
    }

    fn attention(&self, hidden: u32, family: Family) -> Result<Attention, ConfigError> {
        let f = &self.fields;
        let heads = f.need(&["num_attention_heads", "n_head"], 1, 1 << 14)?;
        if let Some(kv_rank) = f.count(&["kv_lora_rank"], 1, WIDEST)? {
            return Ok(Attention::Latent {
                heads,
                query_rank: f.count(&["q_lora_rank"], 1, WIDEST)?,
                kv_rank,
                nope: f.need(&["qk_nope_head_dim"], 0, 1 << 14)?,
                rope: f.need(&["qk_rope_head_dim"], 0, 1 << 14)?,
                value: f.need(&["v_head_dim"], 1, 1 << 14)?,
            });
        }
        let kv_heads = match f.count(&["num_key_value_heads", "num_kv_heads"], 1, 1 << 14)? {
            Some(count) => count,
            None if f.flag("multi_query")?.unwrap_or(false) => 1,
            None => heads,
        };
        if kv_heads > heads {
            return Err(ConfigError::Contradiction {
                field: "num_key_value_heads",
                why: format!("{kv_heads} are more than the {heads} query heads"),
            });
        }
        let head_dim = match f.count(&["head_dim"], 1, 1 << 14)? {
            Some(width) => width,
            None => (hidden / heads).max(1),
        };
        let gate = f.flag("attn_output_gate")?.unwrap_or(family.output_gate);
        Ok(Attention::Grouped { heads, kv_heads, head_dim, gate })
    }

    fn linear(
        &self,
        layers: u32,
        assumed: &mut Vec<String>,
    ) -> Result<Option<Linear>, ConfigError> {
        let f = &self.fields;
        let Some(value_heads) = f.count(&["linear_num_value_heads"], 1, 1 << 14)? else {
            return Ok(None);
        };
        let linear = if let Some(types) = f.list("layer_types")? {
            let listed = u32::try_from(types.len()).unwrap_or(u32::MAX);
            if listed != layers {
                return Err(ConfigError::Contradiction {
                    field: "layer_types",
                    why: format!("lists {listed} layers, and num_hidden_layers is {layers}"),
                });
            }
            let count = types.iter().filter(|one| one.as_str() == Some("linear_attention")).count();
            u32::try_from(count).unwrap_or(layers)
        } else {
            let every = f.need(&["full_attention_interval"], 1, DEEPEST)?;
            layers - layers / every
        };
        let state = if let Some(word) = f.word("mamba_ssm_dtype")? {
            Precision::parse(word).ok_or_else(|| ConfigError::Kind {
                field: "mamba_ssm_dtype".to_owned(),
                wanted: "the name of a number format",
                found: word.chars().take(40).collect(),
            })?
        } else {
            assumed.push("the format of the recurrent state: float32".to_owned());
            Precision::Float32
        };
        Ok(Some(Linear {
            layers: linear,
            key_heads: f.need(&["linear_num_key_heads"], 1, 1 << 14)?,
            value_heads,
            key_dim: f.need(&["linear_key_head_dim"], 1, 1 << 14)?,
            value_dim: f.need(&["linear_value_head_dim"], 1, 1 << 14)?,
            convolution: f.need(&["linear_conv_kernel_dim"], 1, 1 << 10)?,
            state,
        }))
    }

    fn experts(&self, layers: u32, family: Family) -> Result<Option<Experts>, ConfigError> {
        let f = &self.fields;
        let names = ["num_experts", "n_routed_experts", "num_local_experts"];
        let Some(count) = f.count(&names, 0, 1 << 16)?.filter(|count| *count > 0) else {
            return Ok(None);
        };
        let chosen = f.need(&["num_experts_per_tok", "num_experts_per_token"], 1, 1 << 16)?;
        if chosen > count {
            return Err(ConfigError::Contradiction {
                field: "num_experts_per_tok",
                why: format!("{chosen} are more than the {count} experts"),
            });
        }
        let width = if family.width_of_experts {
            f.need(&["intermediate_size"], 1, WIDEST)?
        } else {
            f.need(&["moe_intermediate_size"], 1, WIDEST)?
        };
        let shared = f.count(&["n_shared_experts"], 0, 1 << 10)?.unwrap_or(0);
        let shared_width = f
            .count(&["shared_expert_intermediate_size"], 0, WIDEST)?
            .unwrap_or_else(|| width.saturating_mul(shared));
        let layers = self.expert_layers(layers)?;
        Ok((layers > 0).then_some(Experts { layers, count, chosen, width, shared_width }))
    }

    fn expert_layers(&self, layers: u32) -> Result<u32, ConfigError> {
        let f = &self.fields;
        let first_dense = f.count(&["first_k_dense_replace"], 0, DEEPEST)?.unwrap_or(0);
        let every = f.count(&["moe_layer_freq", "decoder_sparse_step"], 1, DEEPEST)?.unwrap_or(1);
        let dense = f.list("mlp_only_layers")?.unwrap_or_default();
        let named: Vec<u64> = dense.iter().filter_map(Value::as_u64).collect();
        // Both fields count the layer from one; a layer below the first is dense.
        let sparse = (0..layers)
            .filter(|layer| {
                *layer >= first_dense
                    && (layer + 1) % every == 0
                    && !named.contains(&u64::from(*layer))
            })
            .count();
        Ok(u32::try_from(sparse).unwrap_or(layers))
    }
}
