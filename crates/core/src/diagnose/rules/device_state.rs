//! PW0609: reset, power-state or ownership trouble, and errors of the link.

use super::fault_support as log;
use crate::code::DEVICE_STATE;
use crate::diagnose::finding::{Finding, Severity};
use crate::diagnose::{Context, Rule};
use crate::judge::Confidence;
use crate::snapshot::faults::DriverEvent;

pub(super) const RULE: Rule = Rule {
    code: DEVICE_STATE,
    title: "a device has reset, power-state or link trouble",
    page: "\
The kernel log says that a device did not come back from a reset or a sleep state, that VFIO cannot
get it back from whoever holds it, or that its link failed.

How it was seen: lines of the PCI core, of `vfio-pci` and of the port services in the kernel log.

How to read it: `Unable to change power state from D3cold` means that the configuration space cannot
be read; a `reset done` after it is no success. `not ready … after FLR` counts up to a minute and
then gives up. `Link Down` or `Card not present` of a hot-plug port is a removal, and what the
device's driver says afterwards is its consequence. `ACSViol` is an error bit for a request with a
wrong requester ID or on a forbidden path; it says nothing about access control redirecting peer
traffic.

Why it matters: a device in this state does no peer access, and nothing about the IOMMU or access
control will help it.

What helps: a reset through the slot or the port above, or a power cycle; keeping the device out of
D3cold (`d3cold_allowed`); a reset method that works for the board (`reset_method`).

What not to believe: that a virtual machine's assertion about interrupts is the cause. All-ones
configuration space is.

Sources: `drivers/pci/pci.c`, `pci_power_up`, `pci_dev_wait`; `drivers/vfio/pci/vfio_pci_core.c`;
`drivers/pci/pcie/aer.c`; `drivers/pci/hotplug/pciehp_ctrl.c`.",
    check,
};

/// States that are trouble; the others are steps of an ordinary reset.
pub const TROUBLE: [&str; 7] = [
    "stuck-in-d3cold",
    "reset-failed",
    "not-ready",
    "pending-transaction",
    "vfio-release-asked",
    "vfio-release-blocked",
    "vfio-trouble",
];
/// Errors of the link that are more than noise.
const LINK: [&str; 6] =
    ["nonfatal", "fatal", "acs-violation", "contained", "link-down", "completion-timeout"];
/// Removals that wait or fail.
const REMOVAL: [&str; 2] = ["unbind-waits", "unbind-failed"];

fn check(context: &Context<'_>) -> Vec<Finding> {
    let Some(facts) = log::facts(context) else { return Vec::new() };
    let of = |event: &&DriverEvent, kind: &str, codes: &[&str]| {
        event.kind == kind && codes.iter().any(|code| event.is(code))
    };
    let events: Vec<&DriverEvent> = facts
        .driver_events
        .iter()
        .filter(|event| {
            of(event, "device_state", &TROUBLE)
                || of(event, "pcie_error", &LINK)
                || of(event, "nvidia", &REMOVAL)
        })
        .collect();
    if events.is_empty() {
        return Vec::new();
    }
    let link = events.iter().all(|event| event.kind == "pcie_error");
    let title = if link {
        "a link or port reported errors"
    } else {
        "a device did not come back from a reset or a sleep state, or cannot be taken back"
    };
    let finding = Finding::new(RULE.code, Severity::Warning, Confidence::Certain, title)
        .about_all(log::subjects(&events));
    let finding = log::with_events(finding, facts, &events);
    vec![finding.remedy("a reset through the slot or the port above, or a power cycle")]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::fault_testing::{event, logged};
    use crate::diagnose::rules::testing::{fires, silent};

    #[test]
    fn trouble_and_not_every_reset() {
        let stuck = event("device_state", "stuck-in-d3cold", "vfio-pci 0000:01:00.0: Unable to …");
        let done = event("device_state", "reset-done", "vfio-pci 0000:01:00.0: reset done");
        let finding = fires(&RULE, &logged(vec![], vec![stuck, done.clone()]));
        assert_eq!(finding.evidence.len(), 1);
        silent(&RULE, &logged(vec![], vec![done]));
    }

    #[test]
    fn a_link_that_failed() {
        let down = event("pcie_error", "link-down", "pcieport 0000:00:07.0: pciehp: Link Down");
        assert!(fires(&RULE, &logged(vec![], vec![down])).title.contains("link"));
        silent(&RULE, &logged(vec![], vec![event("pcie_error", "corrected", "x")]));
    }
}
