//! Access control as listings show it.

use peerway_core::diagnose::assessment::Assessment;

use super::{Assessed, Case, rank};

pub(super) fn check(case: &Case<'_>) -> Vec<Assessed> {
    let acs = &case.material.acs;
    if acs.is_empty() {
        return Vec::new();
    }
    let redirecting: Vec<_> = acs.iter().filter(|one| one.redirects).collect();
    if redirecting.is_empty() {
        let why = "no port of the listing redirects (request, completion and egress bits are clear); \
                   source validation redirects nothing";
        return vec![Assessed::new(Assessment::AcsExonerated, rank::ACS, why)];
    }
    let why = "ports of the listing redirect requests to the root complex; whether they lie between \
               the GPUs, the tree decides";
    let ports = redirecting.iter().filter_map(|one| one.device);
    vec![Assessed::new(Assessment::AcsRedirect, rank::ACS, why).about(ports)]
}
