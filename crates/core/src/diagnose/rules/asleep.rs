//! PW0703: a sleeping device was left alone.

use std::collections::BTreeSet;

use super::support;
use crate::address::PciAddress;
use crate::code::ASLEEP;
use crate::diagnose::finding::{Finding, Severity, device_file};
use crate::diagnose::{Context, Rule};
use crate::judge::Confidence;
use crate::observed::Observed;
use crate::snapshot::pci::{PciDevice, Power};

pub(super) const RULE: Rule = Rule {
    code: ASLEEP,
    title: "a sleeping device was left alone",
    page: "\
The device is suspended by runtime power management. Reading its configuration space would wake it,
and with it every bridge above, so this program did not. Looking must not change anything.

How it was seen: `power/runtime_status` reads `suspended` (or the device was on its way). Its other
sysfs files, such as memory regions, driver and group, are kept by the kernel and were read.

What is missing because of it: access control of a sleeping port, resizable-BAR and ATS facts of a
sleeping GPU, whether memory decoding is on. A verdict that needs one of these is unknown (PW0214).

Why a GPU sleeps: nobody uses it, and power management was allowed (`power/control` reads `auto`).
Ports sleep when everything below them does. On servers both are rare. A device that does not come
back from its sleep (D3cold) shows as dead at the next look (PW0801).

What helps: use the GPU, then look again; or `--wake`, which reads sleeping devices all the same and
wakes them.

What not to believe: that a sleeping device is a broken one, or that an idle link speed of 2.5 GT/s
means sleep.

Sources: `drivers/pci/pci-sysfs.c`, `pci_read_config` (resumes the device);
`Documentation/ABI/testing/sysfs-devices-power`.",
    check,
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let snapshot = context.snapshot;
    let mut concerned: BTreeSet<PciAddress> = BTreeSet::new();
    for device in snapshot.accelerated() {
        concerned.insert(device.address);
        concerned.extend(&device.ancestors);
    }
    let asleep: Vec<&PciDevice> = concerned
        .into_iter()
        .filter_map(|address| snapshot.device(address))
        .filter(|device| {
            matches!(device.power, Observed::Known(Power::Suspended | Power::Changing))
                && device.config.unreadable().is_some()
        })
        .collect();
    if asleep.is_empty() {
        return Vec::new();
    }
    let finding = Finding::new(
        RULE.code,
        Severity::Info,
        Confidence::Certain,
        format!(
            "{} asleep and left alone: part of the configuration is not known",
            support::counted(asleep.len(), "device is", "devices are")
        ),
    )
    .about_all(asleep.iter().map(|device| device.address));
    let finding = asleep.iter().take(8).fold(finding, |finding, device| {
        let state = match device.power {
            Observed::Known(Power::Suspended) => "suspended",
            _ => "suspending or resuming",
        };
        finding.seen(device_file(device.address, "power/runtime_status"), state)
    });
    vec![finding.remedy("use the device and look again, or --wake, which wakes it")]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::testing::{A, Host, PORT, fires, silent, value};

    fn suspended(address: &str) -> Host {
        Host::amd().device(address, |device| {
            device.power = Observed::Known(Power::Suspended);
            device.config = Observed::Unreadable("asleep".to_owned());
        })
    }

    #[test]
    fn a_gpu_or_a_port_above_it() {
        let finding = fires(&RULE, &suspended(A));
        assert_eq!(value(&finding, "runtime_status"), "suspended");
        assert_eq!(fires(&RULE, &suspended(PORT)).subjects, [PORT]);
    }

    #[test]
    fn awake_or_woken() {
        silent(&RULE, &Host::amd());
        let woken = Host::amd().device(A, |gpu| gpu.power = Observed::Known(Power::Suspended));
        silent(&RULE, &woken);
        silent(&RULE, &Host::amd().device(A, |gpu| gpu.config = Observed::default()));
    }
}
