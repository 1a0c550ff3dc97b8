//! What a road is expected to bring, as an interval with its basis.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Expected gain in throughput of the workload.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Gain {
    /// The interval in words.
    pub text: String,
    /// Lower end, per cent; absent where nothing was estimated.
    pub low_percent: Option<f64>,
    /// Upper end, per cent.
    pub high_percent: Option<f64>,
    /// What it rests on.
    pub basis: GainBasis,
    /// Where the numbers come from.
    pub source: String,
}

/// What an expected gain rests on.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum GainBasis {
    /// Measured with this workload on this host.
    Measured,
    /// Estimated for this workload.
    Estimated,
    /// Reported by others for similar workloads.
    Reported,
    /// Nobody estimated it.
    None,
}

impl Gain {
    /// Nobody has estimated it.
    pub(crate) fn not_estimated(text: &str) -> Self {
        Self {
            text: text.to_owned(),
            low_percent: None,
            high_percent: None,
            basis: GainBasis::None,
            source: "peerway worth estimate gives an interval for a model and an engine".to_owned(),
        }
    }

    /// As an ordered number for ranking: hundredths of a per cent of the lower end, zero where
    /// nothing is known of this workload.
    pub fn hundredths(&self) -> i64 {
        let Some(low) = self.ranks() else { return 0 };
        let bounded = (low.clamp(-1.0e6, 1.0e6) * 100.0).round();
        #[expect(
            clippy::as_conversions,
            clippy::cast_possible_truncation,
            reason = "bounded above"
        )]
        let number = bounded as i64;
        number
    }

    /// The lower end where it is about this workload; reports about others do not rank.
    pub(crate) fn ranks(&self) -> Option<f64> {
        match self.basis {
            GainBasis::Measured | GainBasis::Estimated => {
                self.low_percent.filter(|low| low.is_finite())
            }
            GainBasis::Reported | GainBasis::None => None,
        }
    }
}
