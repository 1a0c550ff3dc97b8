//! PW0610: peer access refused by the kernel's or the driver's own checks.

use super::fault_support as log;
use super::support;
use crate::code::PEER_REFUSED;
use crate::diagnose::finding::{Finding, Severity};
use crate::diagnose::{Context, Rule};
use crate::judge::Confidence;
use crate::snapshot::faults::DriverEvent;

pub(super) const RULE: Rule = Rule {
    code: PEER_REFUSED,
    title: "a check of the kernel or of the driver refused peer access",
    page: "\
Peer access was refused before any request was sent. The line in the log says which check did it:

- `cannot be used for peer-to-peer DMA as the client and provider do not share an upstream bridge or
  whitelisted host bridge`: the kernel's own peer-to-peer code knows no host bridge here that
  forwards. The requester stands in front, the provider in the text. Drivers that ask the kernel
  (AMD, Intel, NVMe) stop here; NVIDIA's driver does not ask.
- `ACS redirect is set between the client and provider`: the same code, below one switch. Redirect
  on the switch ports sends requests up; the port that should change stands in the text.
- `The peer DMA address … is not aligned at …`: NVIDIA's driver wants a peer's region aligned to
  512 MiB when it maps it statically. The line after it says \"IOMMU mapping failed\", with the IOMMU
  off too: the name of a function, no event of an IOMMU.
- QEMU's `PCI peer-to-peer transactions on BARs are not supported`: a peer's region could not be
  mapped for a guest.

How it was seen: these lines in the kernel log.

What helps: for the host bridge, a switch above both or a platform on the kernel's list; for
redirect, clearing it on the ports between the two where no other tenant is below them; for the
alignment, no console or display on that GPU.

What not to believe: that changing the IOMMU's mode lifts a check that does not look at it.

Sources: `drivers/pci/p2pdma.c`, `calc_map_type_and_dist`; `src/nvidia/src/kernel/gpu/bus`, static
BAR1 mapping; `hw/vfio/common.c` of QEMU.",
    check,
};

/// What NVIDIA's driver says when its own mapping of a peer fails.
const DRIVER: [&str; 2] = ["peer-alignment", "peer-map-failed"];

fn check(context: &Context<'_>) -> Vec<Finding> {
    let Some(facts) = log::facts(context) else { return Vec::new() };
    let events: Vec<&DriverEvent> = facts
        .driver_events
        .iter()
        .filter(|event| {
            event.kind == "peer_dma"
                || event.kind == "nvidia" && DRIVER.iter().any(|code| event.is(code))
        })
        .collect();
    let has = |code: &str| events.iter().any(|event| event.is(code));
    let title = if events.is_empty() {
        return Vec::new();
    } else if has("acs-redirect") {
        "the kernel refuses peer-to-peer DMA: access control redirects between the two devices"
    } else if has("no-shared-bridge") || has("host-bridge-not-listed") {
        "the kernel refuses peer-to-peer DMA: no common bridge, and a host bridge it does not know"
    } else if has("peer-alignment") {
        "the driver refuses a peer's region for its alignment; the IOMMU has no part in it"
    } else if has("peer-map-failed") {
        "the driver could not map a peer's region"
    } else {
        "a peer's region could not be mapped for a guest"
    };
    let finding = Finding::new(RULE.code, Severity::Warning, Confidence::Certain, title)
        .about_all(log::subjects(&events));
    let mut finding = log::with_events(finding, facts, &events);
    for event in &events {
        if let Some(provider) = event.other {
            let client = event.device.map_or("?".to_owned(), |device| device.to_string());
            let value = format!("{client} asks for memory of {provider}");
            finding = finding.seen("who asks for whose memory", support::cut(&value));
        }
    }
    vec![finding.remedy("the page of this finding says what each check looks at")]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::fault_testing::{event, logged};
    use crate::diagnose::rules::testing::{A, B, at, fires, silent, value};

    #[test]
    fn the_kernel_refuses() {
        let mut refused = event("peer_dma", "no-shared-bridge", "xe 0000:01:00.0: cannot be used");
        refused.other = Some(at(B));
        let finding = fires(&RULE, &logged(vec![], vec![refused]));
        assert_eq!(finding.subjects, [A, B]);
        assert!(finding.title.contains("host bridge"));
        assert_eq!(value(&finding, "who asks"), "0000:01:00.0 asks for memory of 0000:41:00.0");
    }

    #[test]
    fn alignment_is_no_matter_of_the_iommu() {
        let refused = event("nvidia", "peer-alignment", "NVRM: The peer DMA address 0x18 is not");
        assert!(fires(&RULE, &logged(vec![], vec![refused])).title.contains("no part"));
        silent(&RULE, &logged(vec![], vec![event("nvidia", "assertion", "NVRM: x")]));
    }
}
