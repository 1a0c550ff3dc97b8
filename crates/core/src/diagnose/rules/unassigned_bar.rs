//! PW0803: a region without an address.

use super::support;
use crate::code::UNASSIGNED_BAR;
use crate::diagnose::finding::{Finding, Severity, device_file};
use crate::diagnose::{Context, Rule};
use crate::judge::Confidence;
use crate::snapshot::pci::{Bar, PciDevice};

pub(super) const RULE: Rule = Rule {
    code: UNASSIGNED_BAR,
    title: "a memory region of a GPU has no address",
    page: "\
The kernel found no room for a memory region of this device: the region has a size and no address.
Nobody can reach it, neither the processor nor a peer. NVIDIA's driver refuses a GPU whose large
region is missing.

How it was seen: the line of the region in `resource` carries the flag for \"unset\" or starts at 0.
The kernel log has a line `BAR N [mem size …]: can't assign; no space` from the boot, and often a
second attempt.

Reasons: `Above 4G Decoding` off in firmware; 64-bit windows of the host bridge that are too small
for all the large regions; Resizable BAR that asks for more than the window of the port above holds;
a GPU that was hot-added below a port whose window was fixed at boot; bus numbers that ran out.

Why it matters: for this device nothing works. For the others it is a warning, since a change of
windows moves their regions too.

What helps: in firmware look for `Above 4G Decoding`, `MMIO High Granularity Size`, `Memory Mapped
I/O above 4GB`, or the like. `pci=realloc` lets the kernel lay the windows out anew and sometimes
helps; it moves regions of every device, so recorded addresses of faults no longer match. All of it
needs a reboot.

The expansion ROM (index 6) without an address is normal and no finding.

What not to believe: an IOMMU setting as the cure.

Sources: `drivers/pci/setup-res.c`, `pci_assign_resource`; `include/linux/ioport.h`,
`IORESOURCE_UNSET`; `drivers/pci/pci-sysfs.c`, `resource_show`.",
    check,
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let snapshot = context.snapshot;
    let unset: Vec<(&PciDevice, &Bar)> = snapshot
        .accelerated()
        .into_iter()
        .filter_map(|device| Some((device, device.bars.known()?)))
        .flat_map(|(device, bars)| bars.iter().map(move |bar| (device, bar)))
        .filter(|(_, bar)| bar.memory && !bar.assigned && bar.index < 6)
        .collect();
    if unset.is_empty() {
        return Vec::new();
    }
    let large = unset.iter().any(|(device, bar)| {
        snapshot.peer_memory(device).is_some_and(|(_, peer)| peer.index == bar.index)
    });
    let mut finding = Finding::new(
        RULE.code,
        if large { Severity::Error } else { Severity::Warning },
        Confidence::Certain,
        format!(
            "{} no address",
            support::counted(
                unset.len(),
                "memory region of a GPU has",
                "memory regions of GPUs have"
            )
        ),
    );
    for (device, bar) in unset.iter().take(16) {
        let name = device.address.to_string();
        if !finding.subjects.contains(&name) {
            finding = finding.about(name);
        }
        finding = finding.seen(
            device_file(device.address, "resource"),
            format!("region {} of {} MiB is unset", bar.index, bar.size >> 20),
        );
    }
    let lines = support::log_lines(snapshot, &["can't assign; no space", "no space for"]);
    vec![support::with_log(finding, &lines).remedy(
        "look in firmware for \"Above 4G Decoding\" and the size of the 64-bit windows, or the \
         like (a reboot, which stops every tenant)",
    )]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::testing::{A, Host, fires, silent, value};
    use crate::observed::Observed;

    fn without_address(index: usize) -> Host {
        Host::amd().device(A, |gpu| {
            if let Observed::Known(bars) = &mut gpu.bars {
                bars[index].assigned = false;
            }
        })
    }

    #[test]
    fn the_large_region_and_a_small_one() {
        let finding = fires(&RULE, &without_address(1));
        assert_eq!((finding.severity, finding.subjects), (Severity::Error, vec![A.to_owned()]));
        let small = fires(&RULE, &without_address(0));
        assert_eq!(small.severity, Severity::Warning);
        assert_eq!(value(&small, "resource"), "region 0 of 64 MiB is unset");
    }

    #[test]
    fn an_expansion_rom_is_no_finding() {
        let host = Host::amd().device(A, |gpu| {
            if let Observed::Known(bars) = &mut gpu.bars {
                let rom = Bar { index: 6, assigned: false, size: 1 << 19, ..bars[0].clone() };
                bars.push(rom);
            }
        });
        silent(&RULE, &host);
    }
}
