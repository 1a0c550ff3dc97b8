//! Everything that could be done, each with its gain alone, its gain where peer access works, and
//! what that says about the two together.

mod fixed;
mod variant;

use schemars::JsonSchema;
use serde::Serialize;

use crate::allreduce::Arm;
use crate::estimate::{Context, EstimateError};
use crate::interval::Interval;

/// Whether an option can be had here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Available {
    /// It can.
    Yes,
    /// It cannot, and the note says why.
    No,
    /// The engine's version decides, and was not given; or nobody knows.
    Unknown,
}

/// What a gain rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Basis {
    /// The model, for this workload.
    Estimated,
    /// Reports or guesses about others.
    Reported,
    /// Nothing.
    None,
}

/// What an option does to the value of peer access.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Interaction {
    /// It is worth less where peer access works: both save the same time.
    Substitutes,
    /// It is worth more where peer access works.
    Complements,
    /// About the same.
    Independent,
    /// It is about peer access itself.
    IsP2p,
    /// Nobody knows.
    Unknown,
}

/// An option.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct OptionRow {
    /// Its name.
    pub id: &'static str,
    /// What it is.
    pub title: String,
    /// Whether it can be had here.
    pub available: Available,
    /// More tokens a second of decode than today, peer access off, per cent.
    pub gain_percent: Option<Interval>,
    /// The same where peer access works already.
    pub gain_with_p2p_percent: Option<Interval>,
    /// What the gain rests on.
    pub basis: Basis,
    /// How it goes with peer access.
    pub interaction: Interaction,
    /// What it costs, or why it cannot be had.
    pub note: String,
    /// Where the figures come from.
    pub source: &'static str,
    /// Whether all-reduce times that the gain rests on were assumed and not measured.
    pub sums_assumed: bool,
}

/// How far apart two gains have to be, per cent, before they are called different.
const APART: f64 = 1.5;

/// Every option, the largest gain first; what cannot be had comes last.
pub(crate) fn rank(context: &Context<'_>) -> Result<Vec<OptionRow>, EstimateError> {
    let mut rows = variant::rows(context)?;
    rows.extend(fixed::rows(context));
    let key = |row: &OptionRow| {
        let place = match row.available {
            Available::Yes => 0,
            Available::Unknown => 1,
            Available::No => 2,
        };
        let gain = row.gain_percent.map_or(f64::NEG_INFINITY, |gain| gain.mid);
        (place, gain)
    };
    rows.sort_by(|a, b| {
        let (a_place, a_gain) = key(a);
        let (b_place, b_gain) = key(b);
        a_place.cmp(&b_place).then(b_gain.total_cmp(&a_gain))
    });
    Ok(rows)
}

/// How an option goes with peer access, from its gain without and with it.
fn interaction(without: Interval, with: Interval) -> Interaction {
    if with.mid < without.mid - APART {
        Interaction::Substitutes
    } else if with.mid > without.mid + APART {
        Interaction::Complements
    } else {
        Interaction::Independent
    }
}

/// Whether anything but one GPU takes part.
fn several(context: &Context<'_>) -> bool {
    context.arms().contains(&Arm::Peer)
}
