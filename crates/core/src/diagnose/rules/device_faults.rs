//! PW0603: refused requests of other devices.

use super::fault_support::{self as log, times};
use crate::code::DEVICE_FAULTS;
use crate::diagnose::finding::{Finding, Severity};
use crate::diagnose::{Context, Rule};
use crate::snapshot::faults::FaultClass;

pub(super) const RULE: Rule = Rule {
    code: DEVICE_FAULTS,
    title: "the IOMMU refused requests of a device that is no GPU, or of an unknown one",
    page: "\
A network adapter, a drive, a USB or Thunderbolt controller, or a device whose kind the log does not
say, sent requests that the IOMMU refused. That is a defect of its driver, its firmware, or of what
the firmware tells the kernel about reserved memory. It is not peer access between GPUs, and nothing
about GPUs should be changed for it.

How it was seen: the requester of each fault, with its class from the host, from the kernel log's
enumeration lines, or from the driver's name in front of the message. A name such as `vfio-pci` says
nothing about the class. Where neither was there, the place in the tree (a graphics function is
function 0 of device 0 behind its port) or the pattern of addresses gave a guess, and the confidence
says so.

Flags and address sizes can equal those of GPU peer access: a network adapter that writes to a high,
never mapped address looks the same. Only the device's class and the memory regions tell them apart.

One exception concerns GPUs: a network adapter whose refused addresses lie inside a GPU's memory
region is GPUDirect RDMA under translation; the evidence names the region then.

What helps: a newer kernel or firmware for the device; the log just before the first fault. For a
guest's device: faults right after its guest ended usually mean that it went on for a moment.

Sources: `drivers/iommu/amd/iommu.c`; `drivers/iommu/intel/dmar.c`; `drivers/base/core.c`,
`__dev_printk`.",
    check,
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let Some(facts) = log::facts(context) else { return Vec::new() };
    [(FaultClass::OtherDevice, "no GPU"), (FaultClass::UnknownDevice, "an unknown device")]
        .into_iter()
        .filter_map(|(class, what)| {
            let rows = log::rows(facts, &[class]);
            let first = rows.first()?;
            let what = match rows.as_slice() {
                [_] if class == FaultClass::OtherDevice => first.device.as_str(),
                _ => what,
            };
            let title = format!(
                "{} refused by the IOMMU, and the requester is {what}",
                times(log::count(&rows), "request", "requests"),
            );
            let title: String = title.chars().take(100).collect();
            let finding = Finding::new(RULE.code, Severity::Warning, log::confidence(&rows), title)
                .about_all(log::names(&rows));
            let finding = log::with_rows(finding, facts, &rows);
            Some(finding.remedy(
                "look at this device's driver and firmware; nothing about GPUs has to change for it",
            ))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::fault_testing::{faulting, logged};
    use crate::diagnose::rules::testing::{all, fires, silent};

    #[test]
    fn the_kind_of_device_is_said() {
        let mut row = faulting(FaultClass::OtherDevice, 3);
        row.device = "network (driver ice)".to_owned();
        let finding = fires(&RULE, &logged(vec![row], vec![]));
        assert_eq!(
            finding.title,
            "3 requests refused by the IOMMU, and the requester is network (driver ice)"
        );
    }

    #[test]
    fn known_and_unknown_apart() {
        let rows =
            vec![faulting(FaultClass::OtherDevice, 3), faulting(FaultClass::UnknownDevice, 2)];
        assert_eq!(all(&RULE, &logged(rows, vec![])).len(), 2);
        silent(&RULE, &logged(vec![faulting(FaultClass::PeerAccess, 1)], vec![]));
    }
}
