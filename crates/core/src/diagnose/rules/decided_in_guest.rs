//! PW0207: the requester is in a guest: decided there.

use std::collections::BTreeSet;

use super::support;
use crate::code::DECIDED_IN_GUEST;
use crate::diagnose::finding::{Finding, Severity, device_file};
use crate::diagnose::{Context, Rule};
use crate::snapshot::iommu::IommuVendor;
use crate::snapshot::kernel::Tristate;
use crate::snapshot::tenant::TenantId;

pub(super) const RULE: Rule = Rule {
    code: DECIDED_IN_GUEST,
    title: "the devices belong to a guest, which decides what is mapped for them",
    page: "\
These devices are bound to a VFIO driver. While a guest runs, its virtual machine monitor fills the
devices' IOMMU domain: guest memory, and the memory regions of the other devices that the same guest
was given. Peer access inside one guest therefore goes through translation and is isolated from the
rest of the host. Whether it works is a matter of the guest's driver, of the topology that the guest
is shown, and of whether the monitor could map the regions.

How it was seen: the driver link of the device. The group's `type` says nothing here: it shows the
default domain, not the one in use while VFIO owns the group.

Why it is unknown from outside: nothing below `/sys` shows the guest's mappings, and this program
does not look into guests. NVIDIA's guest driver offers peer access only if it sees a topology that
it trusts, or a peer clique announced by the monitor; announcing one does not make data arrive, as a
report of silently wrong copies in such a guest shows.

What helps: run the data-checked test inside the guest. On a host with SME active the entries for
peer memory carry the encryption bit on every kernel that was read (PW0206), unless kernel (7.0,
late 6.19) and monitor both map them through iommufd as shared buffers; which QEMU does is not
known.

What not to believe: that a guest without peer access is a fault. GPUs in confidential-computing
mode exchange data through bounce buffers by design.

Sources: `drivers/vfio/vfio_iommu_type1.c`, `vaddr_get_pfns`; QEMU `hw/vfio`. Not measured on
hardware by this project.",
    check,
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let Some(affected) = support::own(context, RULE.code) else { return Vec::new() };
    let snapshot = context.snapshot;
    let requesters = affected.requesters();
    let owners: BTreeSet<TenantId> = requesters
        .iter()
        .filter_map(|address| snapshot.tenant_of(snapshot.device(*address)?))
        .collect();
    let whose = if owners.is_empty() { "guests".to_owned() } else { support::listed(owners, 3) };
    let mut finding = Finding::new(
        RULE.code,
        Severity::Info,
        affected.confidence(),
        support::title(&format!(
            "{} decided inside {whose}, not on the host",
            affected.that("is", "are")
        )),
    )
    .about_all(&requesters);
    for address in &requesters {
        if let Some(device) = snapshot.device(*address) {
            finding = finding.observed(device_file(*address, "driver"), &device.driver);
        }
    }
    let sme = snapshot.memory_encryption.sme.state;
    if sme != Tristate::No && snapshot.iommu_vendor() == Some(IommuVendor::Amd) {
        finding = finding.seen(
            "SME",
            format!("{sme}: where active, VFIO's entries for peers carry the encryption bit"),
        );
    }
    vec![finding.remedy("run the data-checked test inside the guest (peerway test)")]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::testing::{A, B, Host, fires, silent, value};

    #[test]
    fn two_devices_of_a_guest() {
        let finding = fires(&RULE, &Host::amd().guest(&[A, B]));
        assert_eq!(finding.severity, Severity::Info);
        assert!(finding.title.contains("vm:132"));
        assert_eq!(value(&finding, A), "vfio-pci");
        assert!(finding.evidence.iter().all(|one| one.source != "SME"));
        let sme = fires(&RULE, &Host::amd().guest(&[A, B]).sme(Tristate::Yes));
        assert!(value(&sme, "SME").starts_with("yes: where active"));
    }

    #[test]
    fn nothing_on_the_hosts_own() {
        silent(&RULE, &Host::amd());
        silent(&RULE, &Host::amd().guest(&[B]));
    }
}
