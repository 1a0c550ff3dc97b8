//! PW0205: an identity domain on an SNP host.

use std::collections::BTreeSet;

use super::fault_support as log;
use super::support;
use crate::address::PciAddress;
use crate::code::IDENTITY_UNDER_SNP;
use crate::diagnose::finding::{Finding, Severity};
use crate::diagnose::{Context, Rule};
use crate::judge::Confidence;
use crate::judge::domain::mode_zero_allowed;
use crate::observed::Observed;
use crate::snapshot::Snapshot;
use crate::snapshot::faults::Faulting;
use crate::snapshot::iommu::{DomainType, IommuVendor};
use crate::snapshot::kernel::Tristate;

pub(super) const RULE: Rule = Rule {
    code: IDENTITY_UNDER_SNP,
    title: "a group is identity on an SNP host: the IOMMU rejects every DMA of its devices",
    page: "\
With SEV-SNP switched on, AMD's IOMMU does not accept a device-table entry without a page table
(mode 0), and such an entry is what an identity domain programs. The hardware then rejects every DMA
of the device, peer or not, and logs `ILLEGAL_DEV_TABLE_ENTRY`. Drivers fail in ways that name
something else: a NIC's probe times out, and a GPU's security processor (FSP) could then not fetch
its firmware: the likeliest cause of one reported failure at the FSP boot command, not proven on
hardware.

How it comes about: kernels 6.13 to 6.19.9 accept the word `identity` in the group's `type` file on
an SNP host and say nothing. Kernels before refuse it (`ENOMEM`), later ones do (`EINVAL`). From
kernel 7.3 on it is allowed where every IOMMU reports EFR2 bit 13 (SNP page mode 0).

Why it matters: the device is unusable until the group is back at its former type, and a driver may
not survive the attempt.

What helps: first end every user of the GPU, the persistence daemon included, since an unbind with
users never returns. Then unbind every function of the group, write the former word (`DMA-FQ` or
`DMA`, as it was) to `type`, read it back, reset the GPU (FLR, or through the port above), and bind
again. `peerway roads` shows the ways that keep translation on.

What not to believe: that the board or its firmware is defective, before the same board failed
without the change of the group (unbind and bind alone). That booting with pass-through is better:
the kernel then gives SNP up, and with it every confidential guest.

Sources: `drivers/iommu/amd/iommu.c`, the global identity domain (commit 4402f2627d30), refused
again by ba17de98545d; `drivers/iommu/amd/init.c`, `iommu_snp_enable`; AMD I/O Virtualization
Technology specification, device table entry format. Derived from source, not measured on SNP
hardware.",
    check,
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let snapshot = context.snapshot;
    let devices = rejected(snapshot);
    if devices.is_empty() {
        return Vec::new();
    }
    let refused = refused_entries(snapshot, &devices);
    let confidence = if refused.is_empty() {
        support::own(context, RULE.code)
            .map_or(Confidence::Probable, |affected| affected.confidence())
    } else {
        Confidence::Certain
    };
    let finding = Finding::new(
        RULE.code,
        Severity::Error,
        confidence,
        format!(
            "{} in an identity group on an SNP host: all DMA is rejected",
            support::counted(devices.len(), "device is", "devices are")
        ),
    )
    .about_all(&devices);
    let mut finding = support::with_domains(finding, snapshot, &devices);
    if let (Some(one), Some(facts)) = (refused.first(), snapshot.faults.known()) {
        finding = finding.seen(log::line_source(facts, one.first.line), support::cut(&one.text));
    }
    finding = support::with_established(finding, &snapshot.memory_encryption.snp.evidence);
    finding = support::with_release(finding, snapshot);
    vec![
        finding
            .remedy(
                "first end every user of the GPU, the persistence daemon included (an unbind with \
                 users never returns); unbind every function of the group, write the former type \
                 back (DMA-FQ or DMA), read it, reset the GPU (FLR, or through the port above), \
                 and bind again",
            )
            .remedy("the roads that keep translation on are a peer map and a mapping driver"),
    ]
}

/// What the log says of these devices' table entries: then it was seen and is no prediction.
fn refused_entries<'s>(
    snapshot: &'s Snapshot,
    devices: &BTreeSet<PciAddress>,
) -> Vec<&'s Faulting> {
    let Some(facts) = snapshot.faults.known() else { return Vec::new() };
    facts
        .requesters
        .iter()
        .filter(|one| one.kind == "illegal_dev_table_entry")
        .filter(|one| one.address.is_some_and(|address| devices.contains(&address)))
        .collect()
}

/// Accelerators of the host that are untranslated although SNP forbids it.
fn rejected(snapshot: &Snapshot) -> BTreeSet<PciAddress> {
    let forbidden = snapshot.memory_encryption.snp.state == Tristate::Yes
        && snapshot.iommu_vendor() == Some(IommuVendor::Amd)
        && mode_zero_allowed(snapshot) != Tristate::Yes;
    if !forbidden {
        return BTreeSet::new();
    }
    snapshot
        .accelerated()
        .into_iter()
        // A guest's devices are in the guest's domain, whatever their default is.
        .filter(|device| !device.is_vfio())
        .filter(|device| snapshot.domain_of(device) == Observed::Known(DomainType::Identity))
        .map(|device| device.address)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::testing::{A, B, Host, fires, silent, value};
    use crate::snapshot::iommu::IommuUnit;

    #[test]
    fn identity_and_snp() {
        let finding = fires(&RULE, &Host::amd().identity().snp(Tristate::Yes));
        assert_eq!(finding.severity, Severity::Error);
        assert_eq!(finding.subjects, [A, B]);
        assert_eq!(value(&finding, "groups/11/type"), "identity");
        // Even where there is no pair.
        let single = Host::amd().identity().snp(Tristate::Yes).edit(|snapshot| {
            snapshot.devices.retain(|device| device.address.to_string() != B);
        });
        assert_eq!(fires(&RULE, &single).subjects, [A]);
    }

    #[test]
    fn what_the_log_shows_is_certain() {
        use crate::diagnose::rules::fault_testing::{faulting, logged};
        use crate::snapshot::faults::FaultClass;
        let seen = Faulting {
            kind: "illegal_dev_table_entry".to_owned(),
            text: "AMD-Vi: Event logged [ILLEGAL_DEV_TABLE_ENTRY …]".to_owned(),
            ..faulting(FaultClass::OtherDevice, 4)
        };
        let host = logged(vec![seen], vec![]).identity().snp(Tristate::Yes);
        let finding = fires(&RULE, &host);
        assert_eq!(finding.confidence, Confidence::Certain);
        assert!(value(&finding, "/dev/kmsg, line 3").contains("ILLEGAL_DEV_TABLE_ENTRY"));
        let quiet = Host::amd().identity().snp(Tristate::Yes);
        assert_eq!(fires(&RULE, &quiet).confidence, Confidence::Probable);
    }

    #[test]
    fn legal_where_the_hardware_and_the_kernel_allow_it() {
        let host = Host::amd().identity().snp(Tristate::Yes).kernel("7.3.4").edit(|snapshot| {
            if let Observed::Known(units) = &mut snapshot.iommu.units {
                let allow = |unit: &mut IommuUnit| unit.amd_efr2 = Observed::Known(1 << 13);
                units.iter_mut().for_each(allow);
            }
        });
        silent(&RULE, &host);
        silent(&RULE, &host.kernel("7.2.13").identity().snp(Tristate::No));
        silent(&RULE, &Host::amd().snp(Tristate::Yes));
        silent(&RULE, &Host::amd().identity().snp(Tristate::Yes).guest(&[A, B]));
    }
}
