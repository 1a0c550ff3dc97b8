//! Reset, power-state and ownership trouble of a passed-through device.

use peerway_core::diagnose::assessment::Assessment;
use peerway_core::diagnose::rules::device_state::TROUBLE;
use peerway_core::snapshot::faults::{DriverEvent, FaultClass};

use super::{Assessed, Case, devices, first_line, rank};

/// Errors of the link that a reset or a wrong requester makes.
const LINK: [&str; 4] = ["acs-violation", "contained", "completion-timeout", "fatal"];

pub(super) fn check(case: &Case<'_>) -> Vec<Assessed> {
    let mut events: Vec<&DriverEvent> = case.events("device_state", &TROUBLE);
    events.extend(case.events("domain_refused", &["firmware-region"]));
    events.extend(case.events("nvidia", &["unbind-waits", "unbind-failed"]));
    events.extend(case.events("peer_dma", &["vfio-map-failed"]));
    let reported = &case.material.guest_logs;
    if events.is_empty() && !reported.is_empty() {
        let why = "QEMU could not take or start a passed-through device";
        let devices = reported.iter().flat_map(|log| &log.devices);
        return vec![Assessed::new(Assessment::VfioReset, rank::RESET, why).about(devices)];
    }
    if events.is_empty() {
        events = case.events("pcie_error", &LINK);
        let passed_through = case.snapshot.devices.iter().any(|device| {
            device.driver_name().is_some_and(|name| name.contains("vfio") || name == "pciback")
        });
        if events.is_empty() || !passed_through {
            return Vec::new();
        }
    } else {
        events.extend(case.events("pcie_error", &LINK));
    }
    // A device that hangs in its reset answers no invalidation: those events follow from it.
    let follows = case.facts().is_some_and(|facts| {
        let first = first_line(&events);
        facts
            .of_class(FaultClass::Event)
            .all(|one| first.is_some_and(|reset| reset < one.first.line))
    });
    let rank = if follows { rank::RESET_FIRST } else { rank::RESET };
    // Page faults of other classes and failed starts have their own place before this.
    let rank = if case.has_class(FaultClass::Event) { rank } else { rank::RESET };
    let why = "a device did not come back from a reset or a sleep state, or cannot be taken back";
    vec![Assessed::new(Assessment::VfioReset, rank, why).about(devices(&events))]
}
