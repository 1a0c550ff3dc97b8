//! `quantization_config`: which parts of the weights are stored in which format.

use serde_json::{Map, Value};

use super::fields::Fields;
use super::{ConfigError, Part, Weights};
use crate::precision::Precision;

const PLACE: &str = "quantization_config.";

/// The formats of all parts, given the format of what is not quantised.
pub(super) fn weights(
    map: Option<&Map<String, Value>>,
    base: Precision,
    layers: &dyn Fn(Part) -> u32,
) -> Result<Weights, ConfigError> {
    let mut weights = Weights::all(base);
    let Some(map) = map else { return Ok(weights) };
    let fields = Fields::new(map, PLACE);
    let method = fields
        .word("quant_method")?
        .ok_or_else(|| ConfigError::Missing { field: format!("{PLACE}quant_method") })?;
    let format = format(&fields, method)?;
    let spared = spared(&fields, layers)?;
    match group_size(&fields)? {
        Group::Unsaid => {}
        Group::Row => weights.set_int4_group(None),
        Group::Of(group) => weights.set_int4_group(Some(group)),
    }
    for part in Part::QUANTISED {
        if !spared.contains(&part) {
            weights.set(part, format);
        }
    }
    // Checkpoints in MXFP4 store only the experts so.
    if format == Precision::Mxfp4 && method == "mxfp4" {
        weights = Weights::all(base);
        if !spared.contains(&Part::Experts) {
            weights.set(Part::Experts, format);
        }
    }
    Ok(weights)
}

fn format(fields: &Fields<'_>, method: &str) -> Result<Precision, ConfigError> {
    let unknown =
        |found: String| ConfigError::UnknownQuantisation { field: format!("{PLACE}{found}") };
    Ok(match method {
        "fp8" | "fbgemm_fp8" => Precision::Fp8,
        "mxfp4" => Precision::Mxfp4,
        "awq" | "gptq" | "awq_marlin" | "gptq_marlin" | "auto-round" => {
            bits(fields.count(&["bits", "w_bit"], 1, 16)?.unwrap_or(4))
                .ok_or_else(|| unknown("bits".to_owned()))?
        }
        "bitsandbytes" => {
            if fields.flag("load_in_8bit")?.unwrap_or(false) {
                Precision::Int8
            } else {
                Precision::Int4
            }
        }
        "modelopt" | "modelopt_fp4" => {
            let algorithm = fields.word("quant_algo")?.unwrap_or("NVFP4");
            match algorithm.to_ascii_uppercase().as_str() {
                "NVFP4" | "W4A16_NVFP4" => Precision::Nvfp4,
                "FP8" | "FP8_PB_WO" => Precision::Fp8,
                "W4A16_AWQ" | "W4A8_AWQ" => Precision::Int4,
                "MXFP4" => Precision::Mxfp4,
                _ => return Err(unknown(format!("quant_algo: {algorithm}"))),
            }
        }
        "compressed-tensors" => {
            compressed(fields)?.ok_or_else(|| unknown("config_groups".to_owned()))?
        }
        other => return Err(unknown(format!("quant_method: {other}"))),
    })
}

fn bits(bits: u32) -> Option<Precision> {
    match bits {
        4 => Some(Precision::Int4),
        8 => Some(Precision::Int8),
        16 => Some(Precision::Bfloat16),
        _ => None,
    }
}

/// Of `config_groups.*.weights` the first: `num_bits`, `type`, `group_size`.
fn compressed(fields: &Fields<'_>) -> Result<Option<Precision>, ConfigError> {
    let Some(groups) = fields.object("config_groups")? else { return Ok(None) };
    let Some(Value::Object(group)) = groups.values().next() else { return Ok(None) };
    let place = "quantization_config.config_groups.*.weights.";
    let Some(Value::Object(map)) = group.get("weights") else { return Ok(None) };
    let weights = Fields::new(map, place);
    let width = weights.need(&["num_bits"], 1, 32)?;
    let kind = weights.word("type")?.unwrap_or("int");
    let group_size = weights.get("group_size").and_then(Value::as_i64);
    Ok(match (width, kind, group_size) {
        (8, "float", _) => Some(Precision::Fp8),
        (4, "float", Some(32)) => Some(Precision::Mxfp4),
        (4, "float", _) => Some(Precision::Nvfp4),
        (width, _, _) => bits(width),
    })
}

/// Numbers that share a scale.
enum Group {
    /// The configuration does not say.
    Unsaid,
    /// A whole row (-1, or per channel).
    Row,
    /// So many.
    Of(u32),
}

/// Numbers that share a scale, as the configuration says it.
fn group_size(fields: &Fields<'_>) -> Result<Group, ConfigError> {
    let group = match fields.object("config_groups")? {
        Some(groups) => groups.values().next().and_then(|group| group.get("weights")),
        None => None,
    };
    let said = match group {
        Some(Value::Object(weights)) => weights.get("group_size").cloned(),
        _ => ["group_size", "q_group_size"].iter().find_map(|name| fields.get(name)).cloned(),
    };
    let wrong = |value: &Value| ConfigError::Kind {
        field: format!("{PLACE}group_size"),
        wanted: "-1, or a whole number from 1 to 1048576",
        found: value.to_string().chars().take(40).collect(),
    };
    match said {
        None => Ok(Group::Unsaid),
        Some(Value::Null) => Ok(Group::Row),
        Some(value) => match value.as_i64() {
            Some(-1) => Ok(Group::Row),
            Some(size @ 1..=1_048_576) => {
                u32::try_from(size).map(Group::Of).map_err(|_| wrong(&value))
            }
            _ => Err(wrong(&value)),
        },
    }
}

/// Parts that the configuration excludes: by a pattern for all layers, or by naming at least half
/// of the layers that have the part one by one.
fn spared(fields: &Fields<'_>, layers: &dyn Fn(Part) -> u32) -> Result<Vec<Part>, ConfigError> {
    let mut entries: Vec<&str> = Vec::new();
    for name in ["ignore", "modules_to_not_convert", "ignored_layers", "exclude_modules"] {
        let list = fields.list(name)?.unwrap_or_default();
        entries.extend(list.iter().filter_map(Value::as_str));
    }
    Ok(Part::ALL
        .into_iter()
        .filter(|part| {
            let half = usize::try_from(layers(*part).div_ceil(2)).unwrap_or(usize::MAX).max(1);
            let mut named = std::collections::BTreeSet::new();
            for entry in entries.iter().filter(|entry| part_of(entry) == Some(*part)) {
                match layer(entry) {
                    None => return true,
                    Some(layer) => {
                        named.insert(layer);
                    }
                }
            }
            named.len() >= half
        })
        .collect())
}

/// Number of the layer that a module's name holds.
fn layer(entry: &str) -> Option<u32> {
    let (_, rest) = entry.split_once("layers.")?;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

/// Modules beside the language part: what is spared there says nothing about it.
const ELSEWHERE: [&str; 7] =
    ["visual", "vision", "audio", "projector", "merger", "image", "patch_embed"];

/// Small leaves: norms, gates, and what linear attention has beside its projections. They are spared
/// in most checkpoints, and their bytes are nothing beside those of the projections.
const SMALL: [&str; 8] =
    ["a_log", "dt_bias", "conv1d", "in_proj_a", "in_proj_b", "in_proj_ba", "bias", "rotary_emb"];

/// The part that a module's name or pattern is about; none where it is about a small leaf, or about
/// no part of the language model.
fn part_of(entry: &str) -> Option<Part> {
    let entry = entry.trim_start_matches("re:").to_ascii_lowercase();
    let has = |word: &str| entry.contains(word);
    if ELSEWHERE.iter().any(|word| has(word)) {
        return None;
    }
    let end = entry.trim_end_matches(['$', '*', '.', '\\']);
    let end = end.strip_suffix(".weight").unwrap_or(end);
    let leaf = end.rsplit(['.', '*', '/']).next().unwrap_or(end);
    if leaf.ends_with("norm") || leaf.ends_with("_gate") || SMALL.contains(&leaf) {
        return None;
    }
    if has("router") || leaf == "gate" {
        return Some(Part::Router);
    }
    Some(if has("mtp") || has("nextn") {
        // What joins a draft layer to the model is little beside the layer.
        if ["fc", "eh_proj", "embed_tokens", "head", "shared_head"].contains(&leaf) {
            return None;
        }
        Part::Draft
    } else if has("lm_head") {
        Part::Head
    } else if has("embed") {
        Part::Embedding
    } else if has("linear_attn") || has("mamba") {
        Part::LinearAttention
    } else if has("attn") || has("attention") {
        Part::Attention
    } else if has("shared_expert") {
        Part::SharedExpert
    } else if has("experts") {
        Part::Experts
    } else if has("mlp") {
        Part::DenseFfn
    } else {
        return None;
    })
}
