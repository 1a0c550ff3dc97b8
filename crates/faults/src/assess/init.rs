//! A GPU that the NVIDIA driver cannot bring up, and whether the IOMMU took part.

use peerway_core::diagnose::assessment::Assessment;

use super::{Assessed, Case, devices, first_line, rank};

/// Xids of a failed start: they do not come before it, they are it.
const OF_START: [&str; 4] = ["143", "119", "120", "154"];

pub(super) fn check(case: &Case<'_>) -> Vec<Assessed> {
    let Some(facts) = case.facts() else { return Vec::new() };
    let events = facts.init_failures();
    if events.is_empty() {
        return Vec::new();
    }
    let mut about = devices(&events);
    if about.is_empty() {
        // The lines name no GPU; where the log names one only, it is that one.
        if let [only] = case.gpus().as_slice() {
            about.insert(only.clone());
        }
    }
    let refused = facts.refused_during_init();
    // The platform gave it no address that it can reach: the IOMMU's window is the trouble.
    let window = events.iter().any(|event| event.is("not-addressable") || event.is("dma-setup"));
    if !refused.is_empty() || window {
        let why = if window {
            "the platform gives the GPU no address for DMA that it can reach"
        } else {
            "the IOMMU refused the GPU's own requests while the driver brought it up"
        };
        return vec![
            Assessed::new(Assessment::NvidiaInitFailIommu, rank::INIT_IOMMU, why).about(about),
        ];
    }
    // A GPU that ran and then failed: the Xid before is the cause.
    let ran = facts
        .of_kind("xid")
        .filter(|xid| {
            let of_start = OF_START.iter().any(|number| xid.is(number));
            let near =
                events.iter().any(|event| xid.first.is_near(&xid.last, &event.first, &event.last));
            !(xid.is("154") || of_start && near)
        })
        .map(|xid| xid.first.line)
        .min();
    let after = ran.is_some_and(|xid| first_line(&events).is_some_and(|init| xid < init));
    let rank = if after { rank::INIT_AFTER } else { rank::INIT };
    let why = "the driver cannot bring the GPU up, and the log shows no refused request of it then";
    vec![Assessed::new(Assessment::NvidiaInitFail, rank, why).about(about)]
}
