//! PW0105: no IOMMU is active.

use super::boot;
use super::support;
use crate::code::IOMMU_OFF;
use crate::command_line::Effect;
use crate::diagnose::finding::{Finding, Severity};
use crate::diagnose::{Context, Rule};
use crate::judge::Confidence;
use crate::snapshot::kernel::Tristate;

pub(super) const RULE: Rule = Rule {
    code: IOMMU_OFF,
    title: "no IOMMU is active: every device's addresses pass as they are",
    page: "\
The kernel drives no IOMMU: `/sys/class/iommu` has no entry and there are no groups. Raw peer
addresses are not checked by anything; peer access depends only on switches and on whether the root
complex forwards. The kernel also leaves the access control bits of the ports as firmware set them.

How it comes about: firmware has the IOMMU disabled (on AMD the ACPI table IVRS is then missing, on
Intel DMAR); `iommu=off`, `amd_iommu=off` or `intel_iommu=off` on the command line; on Intel, a
kernel whose default is off without `intel_iommu=on`; a kernel without the drivers.

How it was seen: the empty class directory, together with the absence of groups. Where the two
contradict each other this program calls the state unknown.

What it costs: any device can write anywhere. No device can be given to a virtual machine safely.
SNP and other confidential guests are impossible, and the kernel does not even say so: with the
IOMMU off, no `AMD-Vi: SNP:` line is printed; RMP lines and `kvm_amd: SEV-SNP disabled` may be.
Without interrupt remapping there is no x2APIC, so processors with APIC numbers above 254 stay
unused.

Why this is no advice: an IOMMU that is off makes peer access easy for one tenant and ends the
isolation of all. On a host that is shared, translation with a peer map gives the first without the
second.

What not to believe: the banner `iommu: Default domain type: Translated`. It prints on hosts without
any IOMMU. Interrupt remapping lines are no DMA translation either.

Sources: `drivers/iommu/iommu.c`, `iommu_subsys_init`; `drivers/iommu/amd/init.c`,
`amd_iommu_detect`; `arch/x86/kernel/apic/apic.c`, `try_to_enable_x2apic`.",
    check,
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let snapshot = context.snapshot;
    let off = snapshot.iommu_active() == Tristate::No
        && snapshot.is_guest() != Tristate::Yes
        && support::has_accelerators(snapshot);
    if !off {
        return Vec::new();
    }
    let guests = support::guests(snapshot);
    let severity = if guests.is_empty() { Severity::Info } else { Severity::Warning };
    let mut finding = Finding::new(
        RULE.code,
        severity,
        Confidence::Certain,
        "no IOMMU is active: addresses of every device pass as they are",
    )
    .about("host")
    .seen("/sys/class/iommu", "no entry")
    .seen("/sys/kernel/iommu_groups", "no group");
    finding = boot::with_words(finding, &boot::with_effect(snapshot, &[Effect::IommuOff]));
    let table = if snapshot.cpu.vendor.known().is_some_and(|vendor| vendor == "AuthenticAMD") {
        ("/sys/firmware/acpi/tables/IVRS", snapshot.firmware.ivrs.as_ref().map(|_| "present"))
    } else {
        ("/sys/firmware/acpi/tables/DMAR", snapshot.firmware.dmar.as_ref().map(|_| "present"))
    };
    finding = finding.observed(table.0, &table.1);
    let banner = support::log_lines(snapshot, &["Default domain type:"]);
    finding = support::with_log(finding, &banner);
    if !guests.is_empty() {
        finding = finding.remedy(
            "guests with devices are not isolated on such a host; turning the IOMMU on is the \
             operator's decision and needs a reboot",
        );
    }
    vec![finding]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::testing::{Host, fires, silent, value};
    use crate::observed::Observed;

    fn off() -> Host {
        Host::amd().gpus(|gpu| gpu.group = Observed::Absent).edit(|snapshot| {
            snapshot.groups.clear();
            snapshot.iommu.units = Observed::Known(Vec::new());
        })
    }

    #[test]
    fn no_unit_and_no_group() {
        let host = off().boot("amd_iommu=off").logged("iommu: Default domain type: Translated");
        let finding = fires(&RULE, &host);
        assert_eq!(finding.severity, Severity::Info);
        assert_eq!(value(&finding, "cmdline"), "amd_iommu=off");
        assert_eq!(value(&finding, "IVRS"), "none");
        assert!(value(&finding, "kernel log").contains("Translated"));
        assert_eq!(fires(&RULE, &off().guest(&[])).severity, Severity::Warning);
    }

    #[test]
    fn an_active_one_a_guest_and_a_host_without_gpus() {
        silent(&RULE, &Host::amd());
        silent(
            &RULE,
            &off().edit(|snapshot| {
                snapshot.cpu.flags = Observed::Known(vec!["hypervisor".to_owned()]);
            }),
        );
        silent(&RULE, &off().edit(|snapshot| snapshot.devices.clear()));
        // Groups without units contradict each other.
        silent(&RULE, &Host::amd().edit(|snapshot| snapshot.iommu.units = Observed::Absent));
    }
}
