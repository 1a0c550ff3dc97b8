//! NCCL and RCCL logs.

use peerway_core::diagnose::assessment::Assessment;

use super::{Assessed, Case, rank};

pub(super) fn check(case: &Case<'_>) -> Vec<Assessed> {
    let nccl = &case.material.nccl;
    if !nccl.seen {
        return Vec::new();
    }
    let chosen: Vec<String> =
        nccl.transports.iter().map(|(name, count)| format!("{name} ({count})")).collect();
    let mut why = if chosen.is_empty() {
        "the log names no channel's transport: NCCL_DEBUG=INFO would".to_owned()
    } else {
        format!("channels go by {}", chosen.join(", "))
    };
    if nccl.uses_p2p() && !nccl.connected {
        why.push_str(
            "; peer access was chosen and nothing was connected after it: a hang there \
                      needs the host's evidence (IOMMU, access control)",
        );
    } else if !nccl.uses_p2p() && !chosen.is_empty() {
        why.push_str("; peer access is not in use and cannot be the cause");
    }
    if let Some(failure) = &nccl.failure {
        why = format!("{why}; first failure: {failure}");
    }
    vec![Assessed::new(Assessment::NcclLog, rank::TRANSPORT, why).about(&nccl.devices)]
}
