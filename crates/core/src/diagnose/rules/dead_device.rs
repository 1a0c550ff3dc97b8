//! PW0801: a device does not answer.

use std::collections::BTreeSet;

use super::support;
use crate::address::PciAddress;
use crate::code::DEAD_DEVICE;
use crate::diagnose::finding::{Finding, Severity, device_file};
use crate::diagnose::{Context, Rule};
use crate::judge::Confidence;
use crate::judge::reach::is_dead;

pub(super) const RULE: Rule = Rule {
    code: DEAD_DEVICE,
    title: "a device does not answer: its configuration space reads as ones",
    page: "\
Every byte of the device's configuration space reads `ff`. That is what the bus returns when nobody
answers: the device has fallen off the bus, lost power or its link, or is stuck in a reset. The
kernel still lists it, with the facts that it learned at boot.

How it was seen: the first bytes of `config`, read by this program.

Why it matters: pairs with it are broken whatever else is right. NVIDIA's driver reports it as `GPU
has fallen off the bus` (Xid 79); programs that hold the GPU hang or fail; `nvidia-smi` may stop
showing the other GPUs as well. A port above that reads as ones takes everything below with it.

Reasons: power (a connector, a supply at its limit under load), heat, a riser or a cable, a link
that never trained after a reset, a sleep state that the board does not return from, a failed board.
A reset of a device in use has the same effect for a while.

What helps: the kernel log around the first message about the device, with corrected errors of its
port before it. A reset through the port above may bring it back; if not, a power cycle, which a
warm reboot is not. Nothing of that should be tried while a guest holds the device.

What not to believe: the IOMMU. A device that does not answer configuration reads is not blocked by
it.

Sources: PCI Express Base Specification 2.3.2; `include/linux/pci.h`, `PCI_POSSIBLE_ERROR`; NVIDIA
Xid catalog.",
    check,
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let snapshot = context.snapshot;
    let mut concerned: BTreeSet<PciAddress> = BTreeSet::new();
    for device in snapshot.accelerated() {
        concerned.insert(device.address);
        concerned.extend(&device.ancestors);
    }
    concerned.extend(context.pairs.iter().map(|pair| pair.from));
    let dead: Vec<_> = concerned
        .into_iter()
        .filter_map(|address| snapshot.device(address))
        .filter(|device| is_dead(device))
        .collect();
    if dead.is_empty() {
        return Vec::new();
    }
    let mut finding = Finding::new(
        RULE.code,
        Severity::Error,
        Confidence::Certain,
        format!(
            "{} not answer: configuration space reads as ones",
            support::counted(dead.len(), "device does", "devices do")
        ),
    )
    .about_all(dead.iter().map(|device| device.address));
    for device in dead.iter().take(8) {
        finding = finding
            .seen(device_file(device.address, "config"), "ff in every byte")
            .observed(device_file(device.address, "driver"), &device.driver);
    }
    vec![finding.remedy(
        "read the kernel log from its first message on; check power and cabling; a power cycle \
         if a reset through the port does not bring it back",
    )]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::testing::{A, Host, PORT, fires, silent};
    use crate::observed::Observed;

    #[test]
    fn all_ones() {
        let host = Host::amd().config(A, |config| config.dead = true);
        let finding = fires(&RULE, &host);
        assert_eq!(finding.subjects, [A]);
        assert_eq!(finding.severity, Severity::Error);
        let port = Host::amd().config(PORT, |config| config.dead = true);
        assert_eq!(fires(&RULE, &port).subjects, [PORT]);
    }

    #[test]
    fn unread_is_not_dead() {
        silent(&RULE, &Host::amd().device(A, |gpu| gpu.config = Observed::default()));
        silent(&RULE, &Host::amd());
    }
}
