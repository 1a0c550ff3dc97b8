//! PW0211: the target lies above what the requester can address.

use std::collections::BTreeSet;

use super::support;
use crate::code::BEYOND_ADDRESS_WIDTH;
use crate::diagnose::finding::{Finding, Severity, device_file};
use crate::diagnose::{Context, Rule};
use crate::judge::reach::address_bits;

pub(super) const RULE: Rule = Rule {
    code: BEYOND_ADDRESS_WIDTH,
    title: "the target's memory lies above the addresses that the requester can emit",
    page: "\
Every chip emits bus addresses of a certain width. NVIDIA's Turing, Ampere and Ada chips have 47
bits (128 TiB), Hopper and Blackwell 52 bits; older accelerators of other makers have 40 or 44.
Firmware with large windows may place a device's memory region above what another one can say. Such
a request cannot be formed: there is no fault and no peer access.

How it was seen: the end of the target's region in `resource`, against the width that the
requester's driver announced (`dma_mask_bits`), or else the width of its chip's generation.

Why it matters: the pair fails in one direction only where the widths differ, which looks like a
broken board. Under a translating domain an IOMMU entry at a low address would serve; raw addresses
never do.

What helps: a lower place for the 64-bit windows, which is firmware's decision. Look for `MMIO High
Base`, `MMIO High Granularity Size`, `Memory Mapped I/O above 4GB` base, or `Limit CPU PA to 46
bits`. On AMD the address bits that memory encryption takes away also move these windows. Any of
this needs a reboot and moves the regions of every device, those of other tenants too.

What not to believe: a 32-bit `dma_mask_bits`. It is the kernel's value before a driver set one and
is not used here.

Sources: NVIDIA open kernel modules, `src/common/inc/swref/published`; `drivers/pci/pci-sysfs.c`,
`dma_mask_bits_show`. Chip widths are from source; the failure was not measured on hardware.",
    check,
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let Some(affected) = support::own(context, RULE.code) else { return Vec::new() };
    let snapshot = context.snapshot;
    let mut finding = Finding::new(
        RULE.code,
        Severity::Error,
        affected.confidence(),
        format!("{} cannot form the target's addresses: they lie too high", affected.counted()),
    )
    .about_all(affected.requesters());
    for address in affected.requesters() {
        let Some(device) = snapshot.device(address) else { continue };
        if let Some((bits, source)) = address_bits(snapshot, device) {
            finding = finding
                .seen(device_file(address, "dma_mask_bits"), format!("{bits} bits ({source})"));
        }
    }
    let mut told = BTreeSet::new();
    for address in affected.targets() {
        let Some(device) = snapshot.device(address) else { continue };
        let Some((memory, bar)) = snapshot.peer_memory(device) else { continue };
        if told.insert(memory.address) {
            finding = finding.seen(
                device_file(memory.address, "resource"),
                format!("region {} ends at {:#x}", bar.index, bar.end()),
            );
        }
    }
    vec![finding.remedy(
        "look in firmware for \"MMIO High Base\" and \"MMIO High Granularity Size\", or the like; \
         it moves the regions of every device and stops every tenant (reboot)",
    )]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::BusAddress;
    use crate::diagnose::rules::testing::{A, B, Host, fires, silent, value};
    use crate::observed::Observed;

    fn placed(start: u64) -> Host {
        Host::amd().identity().device(A, |gpu| gpu.dma_mask_bits = Observed::Known(47)).device(
            B,
            |gpu| {
                if let Observed::Known(bars) = &mut gpu.bars {
                    bars[1].start = BusAddress(start);
                }
            },
        )
    }

    #[test]
    fn above_the_width() {
        let finding = fires(&RULE, &placed(1 << 47));
        assert_eq!(finding.subjects, [A]);
        assert_eq!(value(&finding, "dma_mask_bits"), "47 bits (dma_mask_bits)");
        assert!(value(&finding, "resource").starts_with("region 2 ends at"));
    }

    #[test]
    fn just_below_it() {
        silent(&RULE, &placed((1 << 47) - (128 << 30)));
    }
}
