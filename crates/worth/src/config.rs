//! A model's `config.json`, as far as its cost depends on it.
//!
//! Field names are those of the public checkpoints; models with vision or audio nest the language
//! part. What the fields mean is known by `model_type`: an architecture that is not known is an
//! error and never guessed at.

mod family;
mod fields;
mod quantisation;
mod read;
mod weights;

use schemars::JsonSchema;
use serde::Serialize;
use thiserror::Error;

pub use weights::{Part, Weights};

use crate::precision::Precision;

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

/// Layers whose attention sees the last tokens only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Window {
    /// Layers of them, among those with full attention.
    pub layers: u32,
    /// Tokens that they see and keep.
    pub tokens: u32,
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
    /// Layers with keys and values, windowed ones included.
    pub full_layers: u32,
    /// Those of them that see the last tokens only; absent without any.
    pub window: Option<Window>,
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
        read::model(text)
    }
}
