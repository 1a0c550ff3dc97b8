//! The kernel's or the driver's own check refuses peer access.

use peerway_core::diagnose::assessment::Assessment;

use super::{Assessed, Case, devices, rank};

pub(super) fn check(case: &Case<'_>) -> Vec<Assessed> {
    let mut found = Vec::new();
    let redirect = case.events("peer_dma", &["acs-redirect"]);
    if !redirect.is_empty() {
        let why = "the kernel's peer-to-peer code says that access control redirects between them";
        found.push(
            Assessed::new(Assessment::AcsRedirect, rank::PEER_REFUSED, why)
                .about(devices(&redirect)),
        );
    }
    let bridge = case.events("peer_dma", &["no-shared-bridge", "host-bridge-not-listed"]);
    if !bridge.is_empty() {
        let why = "the two share no bridge, and the kernel does not know their host bridge as one \
                   that forwards";
        found.push(
            Assessed::new(Assessment::P2pHostBridge, rank::PEER_REFUSED + 1, why)
                .about(devices(&bridge)),
        );
    }
    for distance in &case.material.distances {
        if !distance.redirecting.is_empty() {
            let why = "access control redirects on the switch ports; only then does the host bridge \
                       matter";
            found.push(
                Assessed::new(Assessment::AcsRedirect, rank::PEER_REFUSED, why)
                    .about(&distance.redirecting),
            );
        } else if distance.supported == Some(false) {
            let why = "the kernel does not know the host bridge as one that forwards";
            found.push(Assessed::new(Assessment::P2pHostBridge, rank::PEER_REFUSED + 1, why));
        } else if distance.supported == Some(true) {
            let why = "the kernel's check would allow it";
            found.push(Assessed::new(Assessment::P2pExpected, rank::MEASURED + 5, why));
        }
    }
    let failed = case.events("nvidia", &["peer-map-failed"]);
    if !failed.is_empty() && case.events("nvidia", &["peer-alignment"]).is_empty() {
        let why = "the driver could not map a peer's region; the words name a function of it";
        found.push(
            Assessed::new(Assessment::GpuP2pDriverError, rank::PEER_REFUSED, why)
                .about(devices(&failed)),
        );
    }
    found
}
