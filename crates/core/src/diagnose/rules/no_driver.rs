//! PW0308: GPUs without a driver.

use super::support;
use crate::code::NO_DRIVER;
use crate::diagnose::finding::{Finding, Severity, device_file};
use crate::diagnose::{Context, Rule};
use crate::judge::Confidence;
use crate::observed::Observed;

pub(super) const RULE: Rule = Rule {
    code: NO_DRIVER,
    title: "a GPU has no driver bound to it",
    page: "\
No kernel driver is bound to this GPU: the `driver` link in sysfs is missing. Nobody can use it,
neither the host nor a guest. It is counted among the host's GPUs, and pairs with it are unknown,
because how it would address its peers depends on the driver that will be bound.

How it was seen: `/sys/bus/pci/devices/ADDRESS/driver`. Where the link could not be read this
finding does not appear.

Reasons: the driver is not installed, not built for the running kernel (after a kernel update
without headers, DKMS builds nothing and says so only in its own log), or blocked by a list of
modules; the driver tried and gave up, which the kernel log says (`probe … failed with error`); an
unbind without a bind afterwards; a `driver_override` with a name that no driver has, which some
tools set on purpose; the closed kernel modules on a GPU that needs the open ones (PW0306).

Why it matters: `nvidia-smi` shows the remaining GPUs and no hint of the missing one. Count GPUs
from the PCI tree, never from the tool.

What helps: read the kernel log for this address; look at `driver_override`; build the module for
this kernel. A GPU that a tool left unbound in the middle of a change belongs to that change.

What not to believe: that an unbound GPU is free for a guest: who owns it is a matter of
configuration.

Sources: `drivers/base/dd.c`, `driver_probe_device`; `drivers/pci/pci-sysfs.c`,
`driver_override_show`.",
    check,
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let snapshot = context.snapshot;
    let unbound: Vec<_> = snapshot
        .devices
        .iter()
        .filter(|device| device.is_gpu() && device.driver == Observed::Absent)
        .collect();
    if unbound.is_empty() {
        return Vec::new();
    }
    let mut finding = Finding::new(
        RULE.code,
        Severity::Info,
        Confidence::Certain,
        format!("{} no driver", support::counted(unbound.len(), "GPU has", "GPUs have")),
    )
    .about_all(unbound.iter().map(|device| device.address));
    for device in unbound.iter().take(8) {
        finding = finding.observed(device_file(device.address, "driver"), &device.driver);
        if let Observed::Known(name) = &device.driver_override {
            finding =
                finding.seen(device_file(device.address, "driver_override"), support::cut(name));
        }
    }
    vec![finding.remedy("read the kernel log for this address; build or install the driver")]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::testing::{A, Host, fires, known, silent, value};

    #[test]
    fn an_unbound_gpu() {
        let host = Host::amd().device(A, |gpu| {
            gpu.driver = Observed::Absent;
            gpu.driver_override = known("none");
        });
        let finding = fires(&RULE, &host);
        assert_eq!(finding.subjects, [A]);
        assert_eq!(value(&finding, "driver_override"), "none");
    }

    #[test]
    fn bound_or_unread() {
        silent(&RULE, &Host::amd());
        silent(&RULE, &Host::amd().gpus(|gpu| gpu.driver = Observed::default()));
    }
}
