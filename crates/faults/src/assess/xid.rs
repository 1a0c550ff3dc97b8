//! Xids of GPUs, and the errors of the switches of `NVLink`.

use peerway_core::diagnose::assessment::Assessment;
use peerway_core::snapshot::faults::Weight;

use super::{Assessed, Case, devices, first_line, rank};

pub(super) fn check(case: &Case<'_>) -> Vec<Assessed> {
    let mut found = Vec::new();
    let xids = case.events("xid", &[]);
    let sxids = case.events("sxid", &[]);
    if !sxids.is_empty() {
        // Of a GPU's and a switch's errors the earlier is nearer to the cause.
        let later = first_line(&xids) < first_line(&sxids) && !xids.is_empty();
        let rank = if later { rank::XID + 1 } else { rank::SXID };
        let why = "an NVSwitch reports errors: the NVLink fabric, not PCIe";
        found.push(Assessed::new(Assessment::Sxid, rank, why).about(devices(&sxids)));
    }
    if !xids.is_empty() {
        // 154 only states the recovery that is wanted.
        let cause = xids
            .iter()
            .filter(|xid| xid.weight != Some(Weight::Advice))
            .min_by_key(|xid| xid.first.line)
            .or_else(|| xids.first());
        let why = match cause {
            Some(xid) => format!(
                "the driver reported Xid {} first{}",
                xid.code.as_deref().unwrap_or("?"),
                xid.meaning.as_ref().map(|meaning| format!(": {meaning}")).unwrap_or_default()
            ),
            None => String::new(),
        };
        found.push(Assessed::new(Assessment::Xid, rank::XID, why).about(devices(&xids)));
    }
    found
}
