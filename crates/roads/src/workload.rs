//! What a workload would gain, with roads and other options in one ranking.

use std::cmp::Reverse;

use schemars::JsonSchema;
use serde::Serialize;

use crate::gain::Gain;
use crate::id::RoadId;
use crate::road::{Road, State};

/// A workload and everything that could be done for it, best first.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Workload {
    /// The workload in words.
    pub text: String,
    /// Roads and options, best first.
    pub ranking: Vec<Choice>,
}

/// A road, or another option.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Choice {
    /// Place, from 1.
    pub rank: u32,
    /// Which of the two.
    pub kind: ChoiceKind,
    /// Name of the road or of the option.
    pub id: String,
    /// What it is.
    pub title: String,
    /// Whether it can be had.
    pub state: State,
    /// What it brings.
    pub gain: Gain,
    /// What it brings where peer access works already; absent where that is not known.
    pub gain_with_p2p: Option<Gain>,
    /// How it goes with peer access: `substitutes`, `complements`, `independent`, `is_p2p`,
    /// `unknown`.
    pub interaction: String,
    /// What it costs, or why it cannot be had.
    pub note: String,
}

/// What a choice is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ChoiceKind {
    /// A road of this host.
    Road,
    /// An option of the workload.
    Option,
}

/// Ranks judged roads together with options: what can be had first, then by the lower end of the
/// gain; among equals roads keep their order. `elsewhere` stands for the options and is left out.
pub fn rank(roads: &[Road], asked: Option<RoadId>, options: Vec<Choice>) -> Vec<Choice> {
    let mut all: Vec<Choice> = roads
        .iter()
        .filter(|road| road.id != RoadId::Elsewhere)
        .map(|road| Choice {
            rank: 0,
            kind: ChoiceKind::Road,
            id: road.id.word().to_owned(),
            title: road.title.clone(),
            state: road.state,
            gain: road.gain.clone(),
            gain_with_p2p: None,
            interaction: "is_p2p".to_owned(),
            note: road
                .reasons()
                .first()
                .map_or(String::new(), |gate| format!("{}: {}", gate.code, gate.read)),
        })
        .chain(options)
        .collect();
    all.sort_by_key(|choice| {
        (
            asked.is_none_or(|asked| asked.word() != choice.id),
            match choice.state {
                State::Open => 0_u8,
                State::Unknown => 1,
                State::Closed => 2,
            },
            Reverse(choice.gain.hundredths()),
        )
    });
    let mut place = 0;
    for choice in &mut all {
        place += 1;
        choice.rank = place;
    }
    all
}
