//! PW0306: this generation needs the open kernel modules.

use super::support;
use crate::boards::{self, Architecture};
use crate::code::CLOSED_DRIVER;
use crate::diagnose::finding::{Finding, Severity, device_file};
use crate::diagnose::{Context, Rule};
use crate::judge::Confidence;
use crate::snapshot::driver::DriverFlavour;
use crate::snapshot::query::vendor;

pub(super) const RULE: Rule = Rule {
    code: CLOSED_DRIVER,
    title: "the closed kernel modules are loaded, and this GPU needs the open ones",
    page: "\
NVIDIA ships two builds of its kernel driver. Blackwell GPUs work with the open kernel modules only;
the closed ones refuse them at start, with a line in the kernel log that names the open modules. The
two builds have the same version number and the same programs beside them, so that everything but
the kernel module looks right.

How it was seen: the version line in `/proc/driver/nvidia/version`, which has the words \"Open
Kernel Module\" for the open build only, and the GPU's device number.

Why it matters: the GPU does not come up, and `nvidia-smi` may name another GPU's trouble or none.
On older generations either build works, but only the open one can be read, and rebuilt where a
change is needed (the road `mapping-driver`).

What helps: install the open flavour of the same version (packages end in `-open`, or the
installer's question about the kernel module type), and reload the driver. That stops every program
that uses GPUs of this driver; guests with VFIO devices are not touched.

What not to believe: that the board is defective, or that an IOMMU setting keeps it from starting.

Sources: NVIDIA open kernel modules, README (supported GPUs) and `nv-procfs.c` (version line);
NVIDIA's installation guide.",
    check,
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let snapshot = context.snapshot;
    let Some(version) = snapshot.nvidia.version.known() else { return Vec::new() };
    if version.flavour != DriverFlavour::Closed {
        return Vec::new();
    }
    let refused: Vec<_> = snapshot
        .devices
        .iter()
        .filter(|device| device.is_gpu() && device.is_vendor(vendor::NVIDIA) && !device.is_vfio())
        .filter_map(|device| Some((device, *device.ids.known()?)))
        .filter(|(_, ids)| boards::architecture(*ids) == Some(Architecture::Blackwell))
        .collect();
    if refused.is_empty() {
        return Vec::new();
    }
    let mut finding = Finding::new(
        RULE.code,
        Severity::Error,
        Confidence::Probable,
        format!(
            "{} the open kernel modules, and the closed ones are loaded",
            support::counted(refused.len(), "GPU needs", "GPUs need")
        ),
    )
    .about_all(refused.iter().map(|(device, _)| device.address));
    finding = support::with_driver(finding, snapshot);
    for (device, ids) in refused.iter().take(8) {
        let name = boards::lookup(*ids).map_or("a Blackwell chip", |board| board.name);
        finding = finding.seen(device_file(device.address, "device"), format!("{ids}: {name}"));
    }
    vec![finding.remedy("install the open flavour of the same version and reload the driver")]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::testing::{A, B, Host, fires, silent, value};

    #[test]
    fn blackwell_and_closed_modules() {
        let host = Host::amd().driver("580.95.05", DriverFlavour::Closed);
        let finding = fires(&RULE, &host);
        assert_eq!(finding.severity, Severity::Error);
        assert!(value(&finding, A).contains("RTX PRO 6000"));
        silent(&RULE, &host.guest(&[A, B]));
    }

    #[test]
    fn other_chips_and_open_modules() {
        silent(&RULE, &Host::amd().driver("580.95.05", DriverFlavour::Closed).board(0x26b1));
        silent(&RULE, &Host::amd());
    }
}
