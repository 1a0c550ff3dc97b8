//! Parts of the weights and their formats.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::precision::Precision;

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
    pub(super) const QUANTISED: [Self; 6] = [
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
    /// Numbers that share a scale in 4-bit integers; absent where a whole row shares one.
    int4_group: Option<u32>,
}

/// What GPTQ and AWQ checkpoints use unless they say otherwise.
const INT4_GROUP: u32 = 128;

impl Weights {
    /// One format for everything.
    pub fn all(base: Precision) -> Self {
        Self { formats: std::collections::BTreeMap::new(), base, int4_group: Some(INT4_GROUP) }
    }

    /// The format of a part.
    pub fn of(&self, part: Part) -> Precision {
        self.formats.get(&part).copied().unwrap_or(self.base)
    }

    /// Bytes that one number of a part takes, its share of the scales included.
    pub fn bytes(&self, part: Part) -> f64 {
        match self.of(part) {
            Precision::Int4 => 0.5 + self.int4_group.map_or(0.0, |group| 2.0 / f64::from(group)),
            other => other.bytes(),
        }
    }

    /// Sets how many numbers share a 16-bit scale in 4-bit integers; none where a whole row does.
    pub(super) const fn set_int4_group(&mut self, group: Option<u32>) {
        self.int4_group = group;
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
        let mut other = Self { int4_group: Some(INT4_GROUP), ..self.clone() };
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
