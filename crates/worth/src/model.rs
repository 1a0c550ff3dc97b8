//! Sizes of a model: parameters, bytes, what a token and a sequence keep.

use crate::config::{Attention, Experts, Linear, ModelConfig, Part};
use crate::precision::Precision;

/// A share of experts between those that one token chooses and all of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Routing {
    /// Share of the experts beyond one token's choice that a batch touches, of what uniform routing
    /// would: 1 is uniform. Real routing is skewed, so uniform is an upper bound.
    pub spread: f64,
}

impl ModelConfig {
    /// Parameters of a part, over all layers.
    pub fn parameters(&self, part: Part) -> f64 {
        let hidden = f64::from(self.hidden);
        match part {
            Part::Attention => f64::from(self.full_layers) * self.attention_layer(),
            Part::LinearAttention => {
                self.linear.map_or(0.0, |one| f64::from(one.layers) * linear_layer(hidden, one))
            }
            Part::DenseFfn => f64::from(self.dense_layers) * self.block(self.dense_width),
            Part::Experts => self.experts.map_or(0.0, |one| {
                f64::from(one.layers) * f64::from(one.count) * self.block(one.width)
            }),
            Part::SharedExpert => {
                self.experts.map_or(0.0, |one| f64::from(one.layers) * self.block(one.shared_width))
            }
            Part::Router => self
                .experts
                .map_or(0.0, |one| f64::from(one.layers) * hidden * f64::from(one.count)),
            Part::Head => self.vocabulary_matrix(),
            Part::Embedding => {
                if self.tied {
                    0.0
                } else {
                    self.vocabulary_matrix()
                }
            }
            Part::Draft => f64::from(self.draft_layers) * self.draft_layer(),
        }
    }

    /// Parameters of the model, without layers that draft.
    pub fn total_parameters(&self) -> f64 {
        let parts = Part::ALL.into_iter().filter(|part| *part != Part::Draft);
        parts.map(|part| self.parameters(part)).sum()
    }

    /// Parameters that a token passes, without the input embedding.
    pub fn active_parameters(&self) -> f64 {
        let chosen = self.experts.map_or(0.0, |one| {
            f64::from(one.layers) * f64::from(one.chosen) * self.block(one.width)
        });
        self.dense_parts().map(|part| self.parameters(part)).sum::<f64>() + chosen
    }

    /// Parts that every token reads in full.
    pub fn dense_parts(&self) -> impl Iterator<Item = Part> + use<> {
        [
            Part::Attention,
            Part::LinearAttention,
            Part::DenseFfn,
            Part::SharedExpert,
            Part::Router,
            Part::Head,
        ]
        .into_iter()
    }

    /// Bytes of a part.
    pub fn bytes(&self, part: Part) -> f64 {
        self.parameters(part) * self.weights.bytes(part)
    }

    /// Bytes of all weights; those of layers that draft only if they are loaded.
    pub fn weight_bytes(&self, with_draft: bool) -> f64 {
        let parts = Part::ALL.into_iter().filter(|part| with_draft || *part != Part::Draft);
        parts.map(|part| self.bytes(part)).sum()
    }

    /// Bytes that one layer's experts take, for so many of them.
    pub fn expert_bytes(&self, touched: f64) -> f64 {
        self.experts
            .map_or(0.0, |one| touched * self.block(one.width) * self.weights.bytes(Part::Experts))
    }

    /// Distinct experts of a layer that so many tokens touch.
    pub fn touched(&self, tokens: f64, routing: Routing) -> f64 {
        let Some(one) = self.experts else { return 0.0 };
        let (count, chosen) = (f64::from(one.count), f64::from(one.chosen));
        let uniform = count * (1.0 - (1.0 - chosen / count).powf(tokens.max(1.0)));
        (chosen + (uniform - chosen).max(0.0) * routing.spread).min(count)
    }

    /// Bytes of keys and values that a sequence with so many tokens behind it keeps on each of `tp`
    /// GPUs, over all layers: windowed layers keep their window. Where there are fewer heads than
    /// GPUs they are kept several times; a latent vector is kept by all.
    pub fn kv_bytes(&self, context: f64, tp: u32, format: Precision) -> f64 {
        self.seen_over_layers(context) * self.kv_values(tp) * format.bytes()
    }

    /// Tokens that attention sees with so many behind, summed over the layers with keys.
    fn seen_over_layers(&self, context: f64) -> f64 {
        let windowed = self.window.map_or(0, |window| window.layers);
        let within = self.window.map_or(0.0, |window| context.min(f64::from(window.tokens)));
        f64::from(self.full_layers.saturating_sub(windowed)) * context
            + f64::from(windowed) * within
    }

    /// Numbers that a token keeps in one full-attention layer on each of `tp` GPUs.
    fn kv_values(&self, tp: u32) -> f64 {
        match self.attention {
            Attention::Grouped { kv_heads, head_dim, .. } => {
                let heads = (f64::from(kv_heads) / f64::from(tp.max(1))).max(1.0);
                2.0 * heads * f64::from(head_dim)
            }
            Attention::Latent { kv_rank, rope, .. } => f64::from(kv_rank) + f64::from(rope),
        }
    }

    /// Bytes of recurrent state that a sequence keeps, over all layers and GPUs: the state in its
    /// own format, the window of the convolution in 16 bits.
    pub fn state_bytes(&self, format: Option<Precision>) -> f64 {
        self.linear.map_or(0.0, |one| {
            let state = f64::from(one.value_heads)
                * f64::from(one.key_dim)
                * f64::from(one.value_dim)
                * format.unwrap_or(one.state).bytes();
            let window = convolved(one) * f64::from(one.convolution.saturating_sub(1)) * 2.0;
            f64::from(one.layers) * (state + window)
        })
    }

    /// Operations of attention for one token against so many of context, over all layers. In decode
    /// a latent model attends within the compressed vector; in prefill it expands keys and values
    /// first, and attends over heads.
    pub fn attention_operations(&self, context: f64, prefill: bool) -> f64 {
        let a_token = match self.attention {
            Attention::Latent { heads, nope, rope, value, .. } if prefill => {
                2.0 * f64::from(heads) * (f64::from(nope) + f64::from(rope) + f64::from(value))
            }
            Attention::Grouped { heads, head_dim, .. } => {
                4.0 * f64::from(heads) * f64::from(head_dim)
            }
            Attention::Latent { heads, kv_rank, rope, .. } => {
                2.0 * f64::from(heads) * (2.0 * f64::from(kv_rank) + f64::from(rope))
            }
        };
        a_token * self.seen_over_layers(context)
    }

    /// Parameters of a layer that drafts: attention, a feed-forward block of the model's kind, and
    /// the projection that joins the hidden state with the token.
    pub fn draft_layer(&self) -> f64 {
        let hidden = f64::from(self.hidden);
        let block = match self.experts {
            Some(one) => {
                f64::from(one.count) * self.block(one.width)
                    + self.block(one.shared_width)
                    + hidden * f64::from(one.count)
            }
            None => self.block(self.dense_width),
        };
        self.attention_layer() + block + 2.0 * hidden * hidden
    }

    /// Bytes that one pass of a drafting layer reads for so many tokens, without the head.
    pub fn draft_bytes(&self, tokens: f64, routing: Routing) -> f64 {
        let untouched = self.experts.map_or(0.0, |one| {
            (f64::from(one.count) - self.touched(tokens, routing)) * self.block(one.width)
        });
        (self.draft_layer() - untouched).max(0.0) * self.weights.bytes(Part::Draft)
    }

    fn attention_layer(&self) -> f64 {
        let hidden = f64::from(self.hidden);
        match self.attention {
            Attention::Grouped { heads, kv_heads, head_dim, gate } => {
                let width = f64::from(heads) * f64::from(head_dim);
                let query = if gate { 2.0 * width } else { width };
                hidden * (query + 2.0 * f64::from(kv_heads) * f64::from(head_dim) + width)
            }
            Attention::Latent { heads, query_rank, kv_rank, nope, rope, value } => {
                let heads = f64::from(heads);
                let query = heads * (f64::from(nope) + f64::from(rope));
                let queries =
                    query_rank.map_or(hidden * query, |rank| f64::from(rank) * (hidden + query));
                let rank = f64::from(kv_rank);
                queries
                    + hidden * (rank + f64::from(rope))
                    + rank * heads * (f64::from(nope) + f64::from(value))
                    + heads * f64::from(value) * hidden
            }
        }
    }

    fn block(&self, width: u32) -> f64 {
        f64::from(self.matrices) * f64::from(self.hidden) * f64::from(width)
    }

    fn vocabulary_matrix(&self) -> f64 {
        f64::from(self.hidden) * f64::from(self.vocabulary)
    }

    /// Experts, where there are any.
    pub const fn moe(&self) -> Option<Experts> {
        self.experts
    }
}

/// Channels that the convolution runs over.
fn convolved(one: Linear) -> f64 {
    2.0 * f64::from(one.key_heads) * f64::from(one.key_dim)
        + f64::from(one.value_heads) * f64::from(one.value_dim)
}

fn linear_layer(hidden: f64, one: Linear) -> f64 {
    let values = f64::from(one.value_heads) * f64::from(one.value_dim);
    // Queries, keys, values and gate; two scalars a value head; the convolution; the way out.
    hidden * (convolved(one) + values + 2.0 * f64::from(one.value_heads))
        + convolved(one) * f64::from(one.convolution)
        + values * hidden
}
