//! PW0213: a domain that refuses all DMA.

use super::support;
use crate::code::BLOCKED_DOMAIN;
use crate::diagnose::finding::{Finding, Severity};
use crate::diagnose::{Context, Rule};

pub(super) const RULE: Rule = Rule {
    code: BLOCKED_DOMAIN,
    title: "the requester's group refuses all DMA",
    page: "\
The default domain of the requester's IOMMU group is of the type `blocked`: the IOMMU refuses every
request of every device in it, to main memory as well as to peers. The kernel uses such a domain for
the moments in which a group changes hands between kernel drivers and user space, and as the parking
place of devices that nobody may drive.

How it was seen: the group's `type` file reads `blocked`.

Why it matters: a driver bound to such a device cannot work at all. Peer access is the least of its
troubles; the device's own start fails first, with faults in the kernel log or with a firmware that
never arrives.

As a lasting default it is unusual on x86. A type that reads `blocked` while somebody runs a guest
is not the guest's domain: `type` shows the default domain, and a running guest has one of its own.

What helps: with no driver bound, write the type that the group should have (`DMA-FQ`, or `DMA`) and
read the file back; a write that finds a driver bound fails (`EPERM` from 6.4 on, `EBUSY` before).
If the group belongs to a guest, leave it to its owner.

What not to believe: that a peer-to-peer setting of the driver has anything to do with it.

Sources: `drivers/iommu/iommu.c`, `iommu_group_show_type`;
`Documentation/ABI/testing/sysfs-kernel-iommu_groups`. The text of the type is from the kernel's
source; no host with it as a default has been seen.",
    check,
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let Some(affected) = support::own(context, RULE.code) else { return Vec::new() };
    let requesters = affected.requesters();
    let finding = Finding::new(
        RULE.code,
        Severity::Error,
        affected.confidence(),
        format!("all DMA of {} is refused: the group is blocked", support::listed(&requesters, 2)),
    )
    .about_all(&requesters);
    let finding = support::with_domains(finding, context.snapshot, &requesters);
    vec![finding.remedy(
        "with no driver bound, write DMA-FQ or DMA to the group's type file and read it back",
    )]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::testing::{A, B, Host, fires, silent, value};
    use crate::snapshot::iommu::DomainType;

    #[test]
    fn a_blocked_group() {
        let finding = fires(&RULE, &Host::amd().domains(&DomainType::Blocked));
        assert_eq!(finding.subjects, [A, B]);
        assert_eq!(value(&finding, "groups/12/type"), "blocked");
    }

    #[test]
    fn other_types() {
        silent(&RULE, &Host::amd());
        silent(&RULE, &Host::amd().domains(&DomainType::NoDefault));
        silent(&RULE, &Host::amd().domains(&DomainType::Blocked).guest(&[A, B]));
    }
}
