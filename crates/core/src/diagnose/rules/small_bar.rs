//! PW0802: a memory window smaller than the memory.

use super::p2p_mechanism::{Mechanism, SMALLEST_MEMORY, mechanism};
use super::support;
use crate::code::SMALL_BAR;
use crate::diagnose::finding::{Finding, Severity, device_file};
use crate::diagnose::{Context, Rule};
use crate::judge::Confidence;
use crate::observed::Observed;
use crate::snapshot::Snapshot;
use crate::snapshot::pci::{Bar, PciDevice, ResizableBar};
use crate::snapshot::query::vendor;

pub(super) const RULE: Rule = Rule {
    code: SMALL_BAR,
    title: "the memory region that peers reach is smaller than the device's memory",
    page: "\
A peer reaches a GPU's memory through its large memory region (BAR1). On many boards this region is
256 MiB at power-on and is enlarged to the whole memory by Resizable BAR, if the board, the firmware
and the place in the address map allow it. Here it is small.

How it was seen: the size in `resource`; the Resizable BAR capability, if it could be read, with its
present and its largest size. A region of 256 MiB or less counts as small without that capability
too: no present board has so little memory.

What it means for peer access depends on the driver's way (PW0303). *Mailbox* needs a small aperture
only, and works with a small region. *BAR1*, which patched drivers use always and newer ones may,
needs the regions of **both** GPUs to hold their whole memory: peer access is refused or hangs at
start, with a message about the static mapping.

Why else it matters: GPUDirect RDMA of network controllers is limited to the window as well.

What helps: in firmware look for `Resizable BAR Support` together with `Above 4G Decoding`, or the
like; a 64-bit window that is large enough; a board firmware that offers the size. Inside a guest
the capability is hidden: look on the host. All of it needs a reboot, and moves the regions of every
device, those of other tenants too.

What not to believe: that a small region explains IOMMU faults or damaged data. It does not.

Sources: PCI Express Base Specification 7.8.6; NVIDIA open kernel modules, `kern_bus_tu102.c`,
`kbusIsStaticBar1Supported_TU102`. Not measured on hardware.",
    check,
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let snapshot = context.snapshot;
    let small: Vec<(&PciDevice, &Bar, Option<ResizableBar>)> = snapshot
        .devices
        .iter()
        .filter(|device| device.is_gpu() && !device.is_vfio())
        .filter_map(|device| {
            let bar = device.peer_bar().filter(|bar| bar.assigned)?;
            let entry = resizable(device, bar);
            is_small(device, bar, entry).then_some((device, bar, entry))
        })
        .collect();
    if small.is_empty() {
        return Vec::new();
    }
    let matters = small.iter().any(|(device, _, _)| needs_it(snapshot, device));
    let certain = small.iter().all(|(_, _, entry)| entry.is_some());
    let mut finding = Finding::new(
        RULE.code,
        if matters { Severity::Warning } else { Severity::Info },
        if certain { Confidence::Certain } else { Confidence::Probable },
        format!(
            "{} only part of the memory to peers",
            support::counted(small.len(), "GPU shows", "GPUs show")
        ),
    )
    .about_all(small.iter().map(|(device, _, _)| device.address));
    for (device, bar, entry) in small.iter().take(8) {
        finding = finding.seen(
            device_file(device.address, "resource"),
            format!("region {} of {} MiB", bar.index, bar.size >> 20),
        );
        if let Some(entry) = entry {
            finding = finding.seen(
                format!("{} (Resizable BAR)", device_file(device.address, "config")),
                format!("{} MiB of {} MiB", entry.current >> 20, entry.largest >> 20),
            );
        }
    }
    vec![finding.remedy(
        "look in firmware for \"Resizable BAR Support\" and \"Above 4G Decoding\", or the like; a \
         reboot, which moves the regions of every tenant's devices",
    )]
}

fn resizable(device: &PciDevice, bar: &Bar) -> Option<ResizableBar> {
    let config = device.config.known()?;
    let Observed::Known(entries) = &config.resizable else { return None };
    entries.iter().find(|entry| entry.index == bar.index).copied()
}

fn is_small(device: &PciDevice, bar: &Bar, entry: Option<ResizableBar>) -> bool {
    match entry {
        // A small region is small even where the board offers no larger one.
        Some(entry) => {
            bar.size <= 256 << 20 || (entry.current < entry.largest && bar.size <= SMALLEST_MEMORY)
        }
        None => device.is_vendor(vendor::NVIDIA) && bar.size <= 256 << 20,
    }
}

/// Whether the driver's way of peer access asks for the whole memory.
fn needs_it(snapshot: &Snapshot, device: &PciDevice) -> bool {
    let (mechanism, why) = mechanism(snapshot, device);
    mechanism == Mechanism::Bar1 || why.contains("smaller than the memory")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::testing::{A, B, Host, fires, silent, value};

    fn with_region(size: u64) -> Host {
        Host::amd().identity().gpus(|gpu| {
            if let Observed::Known(bars) = &mut gpu.bars {
                bars[1].size = size;
            }
            if let Observed::Known(config) = &mut gpu.config
                && let Observed::Known(entries) = &mut config.resizable
            {
                entries[0].current = size;
            }
        })
    }

    #[test]
    fn a_small_region_that_could_be_larger() {
        let finding = fires(&RULE, &with_region(256 << 20));
        assert_eq!((finding.severity, finding.confidence), (Severity::Info, Confidence::Certain));
        assert_eq!(finding.subjects, [A, B]);
        assert_eq!(value(&finding, "Resizable BAR"), "256 MiB of 131072 MiB");
        let asked = with_region(256 << 20).parameter("RegistryDwords", "RMPcieP2PType=1");
        assert_eq!(fires(&RULE, &asked).severity, Severity::Warning);
    }

    #[test]
    fn a_small_region_that_the_board_cannot_enlarge() {
        let host = with_region(256 << 20).gpus(|gpu| {
            if let Observed::Known(config) = &mut gpu.config
                && let Observed::Known(entries) = &mut config.resizable
            {
                entries[0].largest = 256 << 20;
            }
        });
        assert_eq!(value(&fires(&RULE, &host), "Resizable BAR"), "256 MiB of 256 MiB");
    }

    #[test]
    fn the_window_of_the_requester_counts_for_a_fork() {
        use crate::judge::Verdict;
        use crate::snapshot::driver::DriverFlavour;
        let one_small =
            with_region(128 << 30).driver("570.148.08", DriverFlavour::Fork).device(A, |gpu| {
                if let Observed::Known(bars) = &mut gpu.bars {
                    bars[1].size = 256 << 20;
                }
            });
        let pairs = crate::diagnose::pairs::judge_all(&one_small.snapshot, &one_small.scope);
        for pair in &pairs {
            assert_eq!(pair.verdict, Verdict::Broken, "{pair:?}");
            assert!(pair.codes.contains(&SMALL_BAR), "{pair:?}");
        }
    }

    #[test]
    fn a_small_region_without_the_capability() {
        let host = with_region(256 << 20)
            .config(A, |config| config.resizable = Observed::Absent)
            .config(B, |config| config.resizable = Observed::Absent);
        assert_eq!(fires(&RULE, &host).confidence, Confidence::Probable);
    }

    #[test]
    fn regions_that_hold_the_memory_and_guests() {
        silent(&RULE, &Host::amd());
        // Room for twice the memory is no lack of it.
        silent(&RULE, &with_region(64 << 30));
        silent(&RULE, &with_region(256 << 20).guest(&[A, B]));
    }
}
