//! Reading a configuration: what its fields say, and what its family says where they are silent.

use serde_json::{Map, Value};

use super::family::{self, Family, Sliding};
use super::fields::Fields;
use super::{Attention, ConfigError, Experts, Linear, ModelConfig, Part, Window, quantisation};
use crate::precision::Precision;

/// Reads a configuration.
pub(super) fn model(text: &str) -> Result<ModelConfig, ConfigError> {
    let value: Value =
        serde_json::from_str(text).map_err(|error| ConfigError::NotJson(error.to_string()))?;
    let Value::Object(top) = value else { return Err(ConfigError::NotAnObject) };
    let (map, place) = language_part(&top);
    Reader { top: &top, fields: Fields::new(map, place) }.model()
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
            window: match attention {
                Attention::Latent { .. } => None,
                Attention::Grouped { .. } => {
                    self.window(layers, full_layers, family, &mut assumed)?
                }
            },
            attention,
            linear,
            dense_width,
            dense_layers,
            matrices: family.matrices,
            experts,
            parallel_residual,
            vocabulary: f.need(&["vocab_size"], 1, 1 << 26)?,
            tied: self.tied(family, &mut assumed)?,
            draft_layers: f
                .count(&["mtp_num_hidden_layers", "num_nextn_predict_layers"], 0, 64)?
                .unwrap_or(0),
            weights: quantisation::weights(quantisation, base, &|part| match part {
                Part::Attention => full_layers,
                Part::LinearAttention => linear.map_or(0, |one| one.layers),
                Part::DenseFfn => dense_layers,
                Part::Experts | Part::SharedExpert | Part::Router => {
                    experts.map_or(0, |one| one.layers)
                }
                Part::Draft => 1,
                Part::Head | Part::Embedding => 0,
            })?,
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
        if !heads.is_multiple_of(kv_heads) {
            return Err(ConfigError::Contradiction {
                field: "num_key_value_heads",
                why: format!("{kv_heads} do not divide the {heads} query heads"),
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
        let linear = if let Some(count) = self.of_type(layers, "linear_attention")? {
            count
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

    /// Layers of a type, where the configuration lists them.
    fn of_type(&self, layers: u32, wanted: &str) -> Result<Option<u32>, ConfigError> {
        let Some(types) = self.fields.list("layer_types")? else { return Ok(None) };
        let listed = u32::try_from(types.len()).unwrap_or(u32::MAX);
        if listed != layers {
            return Err(ConfigError::Contradiction {
                field: "layer_types",
                why: format!("lists {listed} layers, and num_hidden_layers is {layers}"),
            });
        }
        let count = types.iter().filter(|one| one.as_str() == Some(wanted)).count();
        Ok(Some(u32::try_from(count).unwrap_or(layers)))
    }

    /// Whether the input embedding and the output projection are one matrix: as the configuration
    /// says, else as the family's published checkpoints have it.
    fn tied(&self, family: Family, assumed: &mut Vec<String>) -> Result<bool, ConfigError> {
        let top = Fields::new(self.top, "");
        let name = "tie_word_embeddings";
        if let Some(said) = self.fields.flag(name)?.or(top.flag(name)?) {
            return Ok(said);
        }
        let how = if family.tied { "one matrix" } else { "two matrices" };
        assumed.push(format!("input embedding and output projection: {how}, as the family has it"));
        Ok(family.tied)
    }

    /// Layers that see the last tokens only.
    fn window(
        &self,
        layers: u32,
        full: u32,
        family: Family,
        assumed: &mut Vec<String>,
    ) -> Result<Option<Window>, ConfigError> {
        let f = &self.fields;
        let Some(tokens) = f.count(&["sliding_window"], 0, 1 << 30)?.filter(|size| *size > 0)
        else {
            return Ok(None);
        };
        let used = f.flag("use_sliding_window")?;
        if used == Some(false) {
            return Ok(None);
        }
        let found = if let Some(count) = self.of_type(layers, "sliding_attention")? {
            count
        } else if let Some(every) = self.pattern()? {
            layers - layers / every
        } else {
            match family.sliding {
                Sliding::Every(every) => {
                    assumed.push(format!(
                        "layers with a window: all but every {every}th, as the family has it"
                    ));
                    layers - layers / every
                }
                Sliding::All => layers,
                Sliding::WhereSaid if used == Some(true) => {
                    layers - f.count(&["max_window_layers"], 0, DEEPEST)?.unwrap_or(0).min(layers)
                }
                Sliding::WhereSaid => 0,
            }
        };
        let layers = found.min(full);
        Ok((layers > 0).then_some(Window { layers, tokens }))
    }

    /// Every how many layers one sees everything: a number, or a word such as `LLLG`.
    fn pattern(&self) -> Result<Option<u32>, ConfigError> {
        let names = ["sliding_window_pattern", "_sliding_window_pattern"];
        let f = &self.fields;
        for name in names {
            if let Some(Value::String(word)) = f.get(name) {
                let length = u32::try_from(word.len()).unwrap_or(0);
                return Ok(Some(length).filter(|length| (1..=DEEPEST).contains(length)));
            }
        }
        f.count(&names, 1, DEEPEST)
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
