//! Loud lines that mean nothing.

use peerway_core::diagnose::assessment::Assessment;

use super::{Assessed, Case, devices, rank};

pub(super) fn check(case: &Case<'_>) -> Vec<Assessed> {
    let events = case.events("nvidia", &["cleanup-noise", "assertion"]);
    if events.is_empty() {
        return Vec::new();
    }
    let why = "the driver complains about itself while it cleans up or checks; nothing failed";
    vec![Assessed::new(Assessment::DriverNoise, rank::NOISE, why).about(devices(&events))]
}
