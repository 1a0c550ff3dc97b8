//! How a model is spread over GPUs.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::config::{Attention, ModelConfig, Part};
use crate::precision::Precision;

/// A parallel layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Layout {
    /// Tensor parallel: every layer is cut into so many pieces.
    pub tp: u32,
    /// Pipeline parallel: the layers are cut into so many stages.
    pub pp: u32,
    /// Replicas beside each other, each with a share of the requests.
    pub replicas: u32,
    /// Experts are placed whole on the tensor-parallel GPUs and not cut.
    pub expert_parallel: bool,
    /// Attention is replicated and its requests are divided over the tensor-parallel GPUs.
    pub attention_dp: bool,
}

/// Why a layout does not fit a model.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum LayoutError {
    /// A size out of range.
    #[error("{what} is {value}; expected 1 to {most}")]
    Range {
        /// Which size.
        what: &'static str,
        /// Its value.
        value: u32,
        /// Most accepted.
        most: u32,
    },
    /// Heads that cannot be divided.
    #[error("{heads} attention heads cannot be divided by {tp} tensor-parallel GPUs")]
    Heads {
        /// Heads.
        heads: u32,
        /// GPUs.
        tp: u32,
    },
    /// More stages than layers.
    #[error("{pp} pipeline stages are more than the model's {layers} layers")]
    Stages {
        /// Stages.
        pp: u32,
        /// Layers.
        layers: u32,
    },
    /// Expert parallelism without experts.
    #[error("expert parallelism needs a model with experts")]
    NoExperts,
    /// More ranks than experts.
    #[error("{tp} GPUs are more than the model's {experts} experts")]
    FewExperts {
        /// GPUs.
        tp: u32,
        /// Experts.
        experts: u32,
    },
}

impl Layout {
    /// Tensor parallelism alone.
    pub const fn tensor(tp: u32) -> Self {
        Self { tp, pp: 1, replicas: 1, expert_parallel: false, attention_dp: false }
    }

    /// GPUs that it takes.
    pub const fn gpus(&self) -> u32 {
        self.tp.saturating_mul(self.pp).saturating_mul(self.replicas)
    }

    /// GPUs of one replica: those that exchange messages.
    pub const fn together(&self) -> u32 {
        self.tp.saturating_mul(self.pp)
    }

    /// Pieces that attention is cut into: data-parallel attention is whole on every GPU.
    pub const fn attention_cut(&self) -> u32 {
        if self.attention_dp { 1 } else { self.tp }
    }

    /// Of so many sequences of a replica, those whose keys and states one GPU keeps.
    pub fn own_sequences(&self, sequences: f64) -> f64 {
        if self.attention_dp { (sequences / f64::from(self.tp)).max(1.0) } else { sequences }
    }

    /// Bytes of weights on each GPU; those of layers that draft only if they are loaded.
    pub fn weight_bytes(&self, model: &ModelConfig, with_draft: bool) -> f64 {
        let (tp, pp) = (f64::from(self.tp), f64::from(self.pp));
        let attention = model.bytes(Part::Attention) + model.bytes(Part::LinearAttention);
        let rest = model.weight_bytes(with_draft) - attention;
        (attention / f64::from(self.attention_cut()) + rest / tp) / pp
    }

    /// Bytes of recurrent state on each GPU, of a sequence that it keeps.
    pub fn state_bytes(&self, model: &ModelConfig, format: Option<Precision>) -> f64 {
        model.state_bytes(format) / f64::from(self.attention_cut()) / f64::from(self.pp)
    }

    /// Bytes of keys and values on each GPU, of a sequence that it keeps, behind so many tokens.
    pub fn kv_bytes(&self, model: &ModelConfig, context: f64, format: Precision) -> f64 {
        model.kv_bytes(context, self.attention_cut(), format) / f64::from(self.pp)
    }

    /// All-reduces of a pass over all layers. With data-parallel attention there is none: tokens are
    /// gathered before the experts and scattered after.
    pub fn all_reduces(&self, model: &ModelConfig) -> u32 {
        if self.tp < 2 || self.attention_dp {
            return 0;
        }
        let of_a_layer = if model.parallel_residual { 1 } else { 2 };
        model.layers.saturating_mul(of_a_layer).saturating_add(1)
    }

    /// Holds it against a model.
    ///
    /// # Errors
    /// What does not fit.
    pub fn check(&self, model: &ModelConfig) -> Result<(), LayoutError> {
        let sizes =
            [("--tp", self.tp, 64), ("--pp", self.pp, 256), ("--replicas", self.replicas, 1024)];
        for (what, value, most) in sizes {
            if value == 0 || value > most {
                return Err(LayoutError::Range { what, value, most });
            }
        }
        let (Attention::Grouped { heads, .. } | Attention::Latent { heads, .. }) = model.attention;
        if !self.attention_dp && !heads.is_multiple_of(self.tp) {
            return Err(LayoutError::Heads { heads, tp: self.tp });
        }
        if self.pp > model.layers {
            return Err(LayoutError::Stages { pp: self.pp, layers: model.layers });
        }
        match model.experts {
            None if self.expert_parallel => Err(LayoutError::NoExperts),
            Some(experts) if experts.count < self.tp => {
                Err(LayoutError::FewExperts { tp: self.tp, experts: experts.count })
            }
            _ => Ok(()),
        }
    }

    /// In words: `TP4`, `TP2 x PP2`, `2 replicas of TP2`.
    pub fn words(&self) -> String {
        let mut words = vec![format!("TP{}", self.tp)];
        if self.pp > 1 {
            words.push(format!("x PP{}", self.pp));
        }
        if self.expert_parallel {
            words.push("with experts placed".to_owned());
        }
        if self.attention_dp {
            words.push("with attention data-parallel".to_owned());
        }
        if self.replicas > 1 {
            words.insert(0, format!("{} replicas of", self.replicas));
        }
        words.join(" ")
    }
}
