//! PW0210: the target's memory is not reachable at all.

use super::support;
use crate::code::TARGET_UNREACHABLE;
use crate::diagnose::finding::{Finding, Severity, device_file};
use crate::diagnose::{Context, Rule};
use crate::observed::Observed;

pub(super) const RULE: Rule = Rule {
    code: TARGET_UNREACHABLE,
    title: "the target has no memory that a peer could reach",
    page:
        "\
A peer reaches a device's memory through one of its memory regions (BARs): for a GPU the large
prefetchable one, which is the framebuffer aperture. This target has no such region, or memory
decoding is switched off in its command register, so that nothing answers at the addresses that the
region has.

How it was seen: the lines of `resource` in sysfs, which list the regions, and bit 1 of the command
register in configuration space (byte 4).

Why it matters: requests to it fail as unsupported, whatever the IOMMU and the switches do. Writes
vanish; reads come back as ones.

Common reasons: no driver is bound, and nobody enabled the device; a driver gave up while it
started; a reset left the command register cleared; the device is a virtual function whose memory is
reached through its physical function; the declared region of an accelerator has the wrong index.

What helps: bind the driver and look at the kernel log for the reason why it did not start. Memory
decoding is switched on by the driver, not by hand: switching it on under a driver that failed only
hides the failure.

What not to believe: that peer access is what is broken here. The device itself is not usable.

Sources: PCI Local Bus Specification, command register; `drivers/pci/pci-sysfs.c`, `resource_show`.",
    check,
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let Some(affected) = support::own(context, RULE.code) else { return Vec::new() };
    let snapshot = context.snapshot;
    let targets = affected.targets();
    let mut finding = Finding::new(
        RULE.code,
        Severity::Error,
        affected.confidence(),
        format!("the memory of {} cannot be reached by any peer", support::listed(&targets, 2)),
    )
    .about_all(&targets);
    for address in &targets {
        let Some(device) = snapshot.device(*address) else { continue };
        finding = match snapshot.peer_memory(device) {
            Some((memory, bar)) => finding.seen(
                device_file(memory.address, "resource"),
                format!("region {} at {}, {} bytes", bar.index, bar.start, bar.size),
            ),
            None => finding.seen(device_file(*address, "resource"), "no memory region for peers"),
        };
        if let Observed::Known(config) = &device.config {
            let state = if config.memory_enabled { "on" } else { "off" };
            finding = finding.seen(
                format!("{} (command)", device_file(*address, "config")),
                format!("memory decoding {state}"),
            );
        }
        finding = finding.observed(device_file(*address, "driver"), &device.driver);
    }
    vec![finding.remedy("bind its driver, or read in the kernel log why the driver gave up")]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::testing::{A, B, Host, fires, silent, value};

    #[test]
    fn memory_decoding_off() {
        let host = Host::amd().identity().config(B, |config| config.memory_enabled = false);
        let finding = fires(&RULE, &host);
        assert_eq!(finding.subjects, [B]);
        assert_eq!(value(&finding, "(command)"), "memory decoding off");
    }

    #[test]
    fn no_region() {
        let host = Host::amd().identity().device(A, |gpu| gpu.bars = Observed::Known(Vec::new()));
        assert_eq!(value(&fires(&RULE, &host), "resource"), "no memory region for peers");
    }

    #[test]
    fn a_region_that_answers() {
        silent(&RULE, &Host::amd().identity());
    }
}
