//! PW0504: bound to VFIO and held by nobody who was seen.

use super::support;
use crate::code::IDLE_VFIO;
use crate::diagnose::finding::{Finding, Severity, device_file};
use crate::diagnose::{Context, Rule};
use crate::judge::Confidence;
use crate::observed::Observed;
use crate::snapshot::kernel::Tristate;

pub(super) const RULE: Rule = Rule {
    code: IDLE_VFIO,
    title: "a device is bound to VFIO and nobody was seen holding it: it belongs to guests",
    page: "\
The device is bound to `vfio-pci` (or a variant of it), so that no driver of the host uses it, and
no process was seen that holds it. It waits for a guest: one that is stopped, one that is to come,
or one that could not be seen. This program treats it as a guest's and leaves it alone.

How it was seen: the `driver` link, and the list of processes with open VFIO nodes. Where processes
could not be looked into, \"nobody was seen\" is weaker, and the evidence says so.

Why protection is left to this program: from kernel 6.4 on, the kernel refuses to change a group's
type while a device of it has a driver that uses the DMA API or an owner in user space. An idle
`vfio-pci` is neither, so the kernel would let the change through. A group left `identity` hands a
device that a guest has just programmed untranslated access to all of the host's memory the moment
the guest ends, because a group returns to its default domain then. Up to 6.3 any bound driver
blocked the change.

What helps: nothing has to be done. If the device is meant for the host again, that is a change of
configuration and of binding, by whoever keeps the host.

What not to believe: that an unused device is free. The next start of its guest takes it, and the
reset that goes with it.

Sources: `drivers/iommu/iommu.c`, `iommu_group_store_type` and `__iommu_release_dma_ownership`;
`drivers/pci/pci-driver.c`, `pci_dma_configure` (`driver_managed_dma`).",
    check,
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let snapshot = context.snapshot;
    let idle: Vec<_> = snapshot
        .accelerated()
        .into_iter()
        .filter(|device| device.is_vfio())
        .filter(|device| {
            snapshot.claims_on(device.address).all(|claim| claim.active != Tristate::Yes)
        })
        .filter(|device| {
            let holders = snapshot.holders.known().map(Vec::as_slice).unwrap_or_default();
            !holders.iter().any(|holder| holder.devices.contains(&device.address))
        })
        .collect();
    if idle.is_empty() {
        return Vec::new();
    }
    let seen = snapshot.holders.known().is_some();
    let mut finding = Finding::new(
        RULE.code,
        Severity::Info,
        if seen { Confidence::Probable } else { Confidence::Possible },
        format!(
            "{} to VFIO and held by nobody seen: left to guests",
            support::counted(idle.len(), "device is bound", "devices are bound")
        ),
    )
    .about_all(idle.iter().map(|device| device.address));
    for device in idle.iter().take(8) {
        finding = finding.observed(device_file(device.address, "driver"), &device.driver);
        for claim in snapshot.claims_on(device.address).take(2) {
            finding = finding.seen(
                support::cut(&claim.source),
                format!("{}, held now: {}", claim.tenant, claim.active),
            );
        }
    }
    let holders = match &snapshot.holders {
        Observed::Known(_) => "none of these devices".to_owned(),
        Observed::Absent => "not recorded".to_owned(),
        Observed::Unreadable(why) => format!("unknown ({why})"),
    };
    finding = finding.seen("processes with device nodes", support::cut(&holders));
    if snapshot.kernel.version().is_some_and(|version| version.at_least(6, 4)) {
        finding = support::with_release(finding, snapshot).remedy(
            "from 6.4 on the kernel itself would let a type change of such a group through: \
             leave these groups alone",
        );
    }
    vec![finding]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::testing::{A, B, Host, fires, known, silent, value};

    fn bound() -> Host {
        Host::amd().device(B, |gpu| gpu.driver = known("vfio-pci"))
    }

    #[test]
    fn bound_and_idle() {
        let finding = fires(&RULE, &bound());
        assert_eq!(finding.subjects, [B]);
        assert!(finding.remedies[0].contains("from 6.4 on"));
        assert!(fires(&RULE, &bound().kernel("6.1.0")).remedies.is_empty());
        // A stopped machine claims it.
        let claimed = fires(&RULE, &bound().claimed(B, "vm:140", Tristate::No));
        assert_eq!(value(&claimed, "configuration"), "vm:140, held now: no");
    }

    #[test]
    fn nobody_could_look() {
        let host = bound().edit(|snapshot| snapshot.holders = Observed::default());
        assert_eq!(fires(&RULE, &host).confidence, Confidence::Possible);
    }

    #[test]
    fn held_by_a_guest_or_by_the_host() {
        silent(&RULE, &Host::amd().guest(&[A, B]));
        silent(&RULE, &Host::amd());
    }
}
