//! PW0804: an external device.

use crate::address::PciAddress;
use crate::code::EXTERNAL_DEVICE;
use crate::diagnose::finding::{Finding, Severity, device_file};
use crate::diagnose::{Context, Rule};
use crate::judge::Confidence;
use crate::snapshot::Snapshot;
use crate::snapshot::pci::PciDevice;

pub(super) const RULE: Rule = Rule {
    code: EXTERNAL_DEVICE,
    title: "a GPU sits behind an external port, and the kernel does not trust it",
    page: "\
The GPU, or a port above it, is marked removable: it hangs behind Thunderbolt, USB4 or another port
that leads out of the case. The kernel treats such devices as untrusted, since whoever can plug in a
cable can plug in a device that reads memory.

How it was seen: the file `removable` of the device or of a port above reads `removable`. The kernel
derives it from firmware's marks on external-facing ports. Trust itself has no file; the group's
type shows it.

What follows for an untrusted device:

- its group translates whatever the command line says (`iommu=pt` included), and a write of
  `identity` is refused with `EINVAL`;
- its IOTLB is flushed at once (type `DMA`), small transfers go through bounce buffers;
- ATS stays off, and translation blocking is set on its port.

Why it matters: raw peer addresses from it always meet translation (PW0103). Its link is narrow and
slow against a slot (often x4), so that peer access through it would be slow in any case. It can
vanish at any time.

What helps: a slot inside the case. Peer access with an external GPU is nothing to build on.

What not to believe: that firmware's Thunderbolt security level changes the IOMMU's part.

Sources: `drivers/pci/probe.c`, `set_pcie_untrusted` and `pci_set_removable`;
`drivers/iommu/iommu.c`, `iommu_get_def_domain_type`. Read in source, not measured.",
    check,
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let snapshot = context.snapshot;
    let mut finding = Finding::new(
        RULE.code,
        Severity::Info,
        Confidence::Probable,
        "an external GPU is not trusted by the kernel: its group translates whatever is set",
    );
    for device in snapshot.accelerated() {
        if let Some(place) = removable_place(snapshot, device) {
            finding =
                finding.about(device.address).seen(device_file(place, "removable"), "removable");
        }
    }
    if finding.subjects.is_empty() {
        return Vec::new();
    }
    vec![finding.remedy("for peer access use a slot inside the case")]
}

/// The device itself or the nearest port above it that is marked removable.
fn removable_place(snapshot: &Snapshot, device: &PciDevice) -> Option<PciAddress> {
    let marked =
        |device: &&PciDevice| device.removable.known().is_some_and(|word| word == "removable");
    let above = device.ancestors.iter().rev().filter_map(|address| snapshot.device(*address));
    std::iter::once(device).chain(above).find(marked).map(|found| found.address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::testing::{A, Host, PORT, fires, known, silent, value};

    #[test]
    fn a_gpu_behind_an_external_port() {
        let host = Host::amd().device(PORT, |port| port.removable = known("removable"));
        let finding = fires(&RULE, &host);
        assert_eq!(finding.subjects, [A]);
        assert_eq!(value(&finding, PORT), "removable");
    }

    #[test]
    fn a_fixed_one() {
        silent(&RULE, &Host::amd());
        silent(&RULE, &Host::amd().device(A, |gpu| gpu.removable = known("fixed")));
    }
}
