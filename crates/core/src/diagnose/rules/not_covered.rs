//! PW0406: a device that no IOMMU covers.

use super::support;
use crate::code::NOT_COVERED;
use crate::diagnose::finding::{Finding, Severity, device_file};
use crate::diagnose::{Context, Rule};
use crate::judge::Confidence;
use crate::observed::Observed;
use crate::snapshot::kernel::Tristate;

pub(super) const RULE: Rule = Rule {
    code: NOT_COVERED,
    title: "an IOMMU is on, and this device is not behind it",
    page: "\
The host has active IOMMU units, and this device has neither a group nor a unit in sysfs: no entry
of the firmware's table (IVRS on AMD, DMAR on Intel) covers it. Its requests reach everything
untranslated and unchecked, while the rest of the host looks protected. This, and nothing else, is
what \"IOMMU coverage\" can mean; the coverage entries of AMD's menus concern SNP's table of memory
owners.

How it was seen: no `iommu_group` and no `iommu` link in the device's sysfs directory, with entries
below `/sys/class/iommu`.

Reasons: a defect of the firmware's table, such as older firmware that listed only some of the
IOMMUs (one board has a menu entry `Enumerate all IOMMU in IVRS` for it); on Intel a unit without
its devices in DMAR, or graphics exempted by `intel_iommu=igfx_off`; a device that the kernel added
before the driver of the IOMMU was ready.

Why it matters: peer access of this device works with raw addresses, and its stray writes go
anywhere. It cannot be given to a guest safely; VFIO refuses a device without a group.

What helps: a firmware update of the board; its table is data that the kernel takes as it is. Report
the device's address with the IVRS or DMAR table to the board's maker.

What not to believe: that it is a feature that can be used for peer access on purpose. It may end
with the next firmware.

Sources: `drivers/iommu/iommu.c`, `iommu_probe_device`; AMD I/O Virtualization Technology
specification, chapter 5; Intel VT-d specification, chapter 8.",
    check,
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let snapshot = context.snapshot;
    if snapshot.iommu_active() != Tristate::Yes {
        return Vec::new();
    }
    let bare: Vec<_> = snapshot
        .accelerated()
        .into_iter()
        .filter(|device| device.group == Observed::Absent)
        .collect();
    if bare.is_empty() {
        return Vec::new();
    }
    let mut finding = Finding::new(
        RULE.code,
        Severity::Warning,
        Confidence::Certain,
        format!(
            "{} not behind any IOMMU, although one is on",
            support::counted(bare.len(), "device is", "devices are")
        ),
    )
    .about_all(bare.iter().map(|device| device.address));
    for device in bare.iter().take(8) {
        finding = finding.seen(device_file(device.address, "iommu_group"), "no such link");
    }
    if let Some(units) = snapshot.iommu.units.known() {
        let names = support::listed(units.iter().map(|unit| unit.name.as_str()), 6);
        finding = finding.seen("/sys/class/iommu", names);
    }
    vec![finding.remedy("a firmware update of the board; tell its maker the device and the table")]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::testing::{A, Host, fires, silent};

    #[test]
    fn no_group_beside_active_units() {
        let host = Host::amd().device(A, |gpu| gpu.group = Observed::Absent);
        assert_eq!(fires(&RULE, &host).subjects, [A]);
    }

    #[test]
    fn no_iommu_at_all_or_a_group_that_was_not_read() {
        let off = Host::amd().gpus(|gpu| gpu.group = Observed::Absent).edit(|snapshot| {
            snapshot.groups.clear();
            snapshot.iommu.units = Observed::Known(Vec::new());
        });
        silent(&RULE, &off);
        silent(&RULE, &Host::amd().gpus(|gpu| gpu.group = Observed::default()));
        silent(&RULE, &Host::amd());
    }
}
