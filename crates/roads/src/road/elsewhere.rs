//! `elsewhere`: what makes the workload faster without peer access.

use super::{Actor, Draft};
use crate::gain::{Gain, GainBasis};
use crate::gate::Passed;
use crate::id::RoadId;
use crate::knowledge::EvidenceLevel;
use crate::operator;
use crate::scene::Scene;

pub(super) fn road(_: &Scene<'_>) -> Draft {
    Draft {
        in_force: Passed::Unknown,
        level: EvidenceLevel::HardwareElsewhere,
        interacts: &[RoadId::PeerMap, RoadId::IdentityGroups, RoadId::LiveWithout],
        gain: Gain {
            text: "12 to 45 % per request with speculative decoding".to_owned(),
            low_percent: Some(12.0),
            high_percent: Some(45.0),
            basis: GainBasis::Reported,
            source:
                "reported for MTP on similar models; not measured here. peerway worth estimate \
                     gives an interval for a model and an engine"
                    .to_owned(),
        },
        notes: vec![
            "gains here and by peer access do not add up: speculation divides the number of \
             all-reduces, which is what peer access speeds up"
                .to_owned(),
            "which options an engine has depends on its version and on memory: peerway worth \
             launch renders them for the version found"
                .to_owned(),
        ],
        guide: operator::workload::options(),
        ..Draft::new(Actor::Operator, Vec::new())
    }
}
