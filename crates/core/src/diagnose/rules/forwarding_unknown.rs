//! PW0203: nobody knows whether the root complex forwards.

use std::collections::BTreeSet;

use super::support;
use crate::code::FORWARDING_UNKNOWN;
use crate::diagnose::finding::{Finding, Severity, device_file};
use crate::diagnose::{Context, Rule};
use crate::observed::Observed;
use crate::snapshot::pci::RootBus;

pub(super) const RULE: Rule = Rule {
    code: FORWARDING_UNKNOWN,
    title: "nobody knows whether the root complex forwards peer requests",
    page: "\
A request that leaves its switch, or never had one in common with its target, turns round in the
root complex. PCI Express does not oblige a root complex to pass requests from one root port to
another: some do, some drop them, and none says so.

How it is judged here: AMD processors from family 17h (Zen) on are taken to forward, as the kernel
takes them; for others the kernel keeps a list of host bridges, some of them good only between ports
of one and the same bridge. This host's bridges are not on that list, or the processor could not be
identified. Not being listed is no proof of the opposite: the list is for the kernel's own
peer-to-peer code, and NVIDIA's driver has a list of its own.

Why it matters: if the requests are dropped, there is no IOMMU fault. Writes vanish without a trace;
reads come back as ones or zeros, or end in a time-out or an Xid (31, 167).

What helps: a copy whose data is checked on the owner's side, both ways (`peerway test`). It settles
the question for this pair until firmware or slots change. Slots below a common switch avoid the
question where access control there allows it.

What not to believe: that a firmware menu opens the way (no such entry is known), that a tool's `OK`
means more than that a table did not say no.

Sources: PCI Express Base Specification 1.3.1; `drivers/pci/p2pdma.c`, `pci_p2pdma_whitelist` and
`cpu_supports_p2pdma`. Not measured on hardware by this project.",
    check,
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let Some(affected) = support::own(context, RULE.code) else { return Vec::new() };
    let snapshot = context.snapshot;
    let mut finding = Finding::new(
        RULE.code,
        Severity::Warning,
        affected.confidence(),
        format!(
            "{} in a root complex of which nobody knows that it forwards",
            affected.that("turns", "turn")
        ),
    )
    .about_all(affected.requesters())
    .observed("/proc/cpuinfo (vendor_id)", &snapshot.cpu.vendor)
    .observed("/proc/cpuinfo (cpu family)", &snapshot.cpu.family);
    let roots: BTreeSet<RootBus> = affected
        .requesters()
        .union(&affected.targets())
        .filter_map(|address| snapshot.device(*address).map(|device| device.root))
        .collect();
    for root in roots {
        let first = snapshot
            .devices
            .iter()
            .find(|device| device.root == root && device.ancestors.is_empty());
        if let Some(first) = first {
            let ids = match &first.ids {
                Observed::Known(ids) => format!("{ids}, first function below {root}"),
                other => other.to_string(),
            };
            finding = finding.seen(device_file(first.address, "device"), ids);
        }
    }
    vec![affected.routes(finding).remedy(
        "measure it with data that is checked on the owner's side, both ways (peerway test); \
         until then leave peer access off",
    )]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::testing::{Host, PORT, fires, silent, value};

    #[test]
    fn an_unlisted_host_bridge() {
        let finding = fires(&RULE, &Host::intel().identity());
        assert_eq!(finding.severity, Severity::Warning);
        assert_eq!(value(&finding, "vendor_id"), "GenuineIntel");
        assert!(value(&finding, PORT).contains("first function below pci0000:00"));
    }

    #[test]
    fn listed_bridges_and_zen_forward() {
        silent(&RULE, &Host::amd().identity());
        let listed = Host::intel().identity().edit(|snapshot| {
            for device in snapshot.devices.iter_mut().filter(|device| device.is_bridge()) {
                device.ids = Observed::Known(crate::address::VendorDevice {
                    vendor: 0x8086,
                    device: 0x09a2,
                });
            }
        });
        silent(&RULE, &listed);
    }
}
