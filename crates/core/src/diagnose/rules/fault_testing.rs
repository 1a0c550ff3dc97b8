//! Logs that say something, for the tests of the rules about the kernel log.

use super::testing::{A, B, Host, at};
use crate::address::BusAddress;
use crate::judge::Confidence;
use crate::observed::Observed::Known;
use crate::snapshot::faults::{
    BarHit, DriverEvent, FaultClass, FaultFacts, Faulting, Moment, Weight,
};

/// A log with one requester's events.
pub(super) fn faulting(class: FaultClass, count: u64) -> Faulting {
    let peer = class == FaultClass::PeerAccess;
    Faulting {
        name: A.to_owned(),
        address: Some(at(A)),
        iommu: "amd-vi".to_owned(),
        kind: "io_page_fault".to_owned(),
        count,
        access: "write".to_owned(),
        access_certain: false,
        lowest: Some(BusAddress(0x240_0000_0000)),
        highest: Some(BusAddress(0x240_0000_1000)),
        distinct: 2,
        hits: if peer { vec![hit(B, count)] } else { Vec::new() },
        class,
        confidence: Confidence::Certain,
        why: "made for a test".to_owned(),
        device: "GPU (driver nvidia)".to_owned(),
        first: Moment { line: 3, ..Moment::default() },
        last: Moment { line: 9, ..Moment::default() },
        text: "nvidia 0000:01:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT …]".to_owned(),
    }
}

/// Events inside a GPU's aperture.
pub(super) fn hit(device: &str, count: u64) -> BarHit {
    BarHit {
        device: at(device),
        bar: 2,
        offset_first: 0,
        offset_last: 0x1000,
        count,
        count_exact: true,
    }
}

/// A driver's event about the first GPU.
pub(super) fn event(kind: &str, code: &str, text: &str) -> DriverEvent {
    DriverEvent {
        kind: kind.to_owned(),
        code: Some(code.to_owned()),
        device: Some(at(A)),
        count: 2,
        other: None,
        first: Moment { line: 5, ..Moment::default() },
        last: Moment { line: 6, ..Moment::default() },
        text: text.to_owned(),
        meaning: None,
        weight: None,
    }
}

/// An Xid of the first GPU.
pub(super) fn xid(number: &str, weight: Weight, meaning: &str) -> DriverEvent {
    DriverEvent {
        weight: Some(weight),
        meaning: Some(meaning.to_owned()),
        ..event("xid", number, &format!("NVRM: Xid (PCI:0000:01:00): {number}, something"))
    }
}

/// A host whose log holds this.
pub(super) fn logged(requesters: Vec<Faulting>, driver_events: Vec<DriverEvent>) -> Host {
    Host::amd().edit(|snapshot| {
        snapshot.faults = Known(FaultFacts {
            source: "/dev/kmsg".to_owned(),
            lines: 10,
            events: requesters.iter().map(|one| one.count).sum(),
            requesters,
            driver_events,
            ..FaultFacts::default()
        });
    })
}
