//! PW0502: more than one tenant claims a device.

use std::collections::{BTreeMap, BTreeSet};

use super::support;
use crate::address::PciAddress;
use crate::code::CONTESTED;
use crate::diagnose::finding::{Finding, Severity};
use crate::diagnose::{Context, Rule};
use crate::judge::Confidence;
use crate::snapshot::tenant::TenantId;

pub(super) const RULE: Rule = Rule {
    code: CONTESTED,
    title: "more than one tenant says that a device is theirs",
    page: "\
A device can be claimed without being held: a stopped virtual machine names it in its configuration,
a second container has a device rule that covers it, a mapping lists it as an alternative. As long
as there is more than one claimant, nobody owns the device alone, whoever holds it at this moment.

How it was seen: each claim names its source: a file with the words that make the claim, or a
process that holds the device. `held now` tells which claims are active.

Usual cases: a template or an old virtual machine with `hostpci` entries for GPUs that a container
uses today; the device rule `c 195:* rwm`, which gives **all** NVIDIA GPUs of the host to a
container, those of others included; a host service that keeps a GPU open beside a container.

Why it matters: at the start of the other claimant the device changes hands. Proxmox binds every
device of the IOMMU group to `vfio-pci` then and never gives it back; the present holder loses it
under way. And a change that is harmless for one claimant may not be for the other, so no gate of
this program passes for a contested device.

What helps: remove the claim that is no longer meant; narrow `c 195:*` to the minor numbers that the
container should have (`c 195:0`, and 255 for the control node).

What not to believe: that the present holder is the owner, or that a stopped machine's entry is
harmless.

Sources: Proxmox VE, configuration of virtual machines and containers;
`Documentation/admin-guide/devices.txt` (major 195).",
    check,
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let snapshot = context.snapshot;
    let mut by_claimants: BTreeMap<BTreeSet<&TenantId>, Vec<PciAddress>> = BTreeMap::new();
    for device in snapshot.accelerated() {
        let claimants: BTreeSet<&TenantId> =
            snapshot.claims_on(device.address).map(|claim| &claim.tenant).collect();
        if claimants.len() > 1 {
            by_claimants.entry(claimants).or_default().push(device.address);
        }
    }
    by_claimants
        .into_iter()
        .map(|(claimants, devices)| {
            let mut finding = Finding::new(
                RULE.code,
                Severity::Warning,
                Confidence::Certain,
                support::title(&format!(
                    "{} claimed by {}",
                    support::counted(devices.len(), "device is", "devices are"),
                    support::listed(&claimants, 3)
                )),
            )
            .about_all(&devices)
            .about_all(&claimants);
            let mut told = BTreeSet::new();
            for device in &devices {
                for claim in snapshot.claims_on(*device) {
                    if told.len() < 12 && told.insert((&claim.source, &claim.tenant, claim.active))
                    {
                        finding = finding.seen(
                            support::cut(&claim.source),
                            format!("{}, held now: {}", claim.tenant, claim.active),
                        );
                    }
                }
            }
            finding.remedy("remove the claim that is no longer meant; until then no change is made")
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::testing::{A, B, Host, fires, silent, value};
    use crate::snapshot::kernel::Tristate;

    #[test]
    fn a_stopped_machine_and_a_container() {
        let host = Host::amd().container(&[A, B]).claimed(A, "vm:140", Tristate::No).claimed(
            B,
            "vm:140",
            Tristate::No,
        );
        let finding = fires(&RULE, &host);
        assert_eq!(finding.title, "2 devices are claimed by lxc:129, vm:140");
        assert_eq!(value(&finding, "configuration of vm:140"), "vm:140, held now: no");
    }

    #[test]
    fn long_names_do_not_make_long_titles() {
        let pod = |digit: &str| format!("pod:{}", digit.repeat(60));
        let host =
            Host::amd().claimed(A, &pod("1"), Tristate::Yes).claimed(A, &pod("2"), Tristate::No);
        assert!(fires(&RULE, &host).title.ends_with('…'));
    }

    #[test]
    fn one_claimant_with_two_claims() {
        silent(&RULE, &Host::amd().container(&[A]).claimed(A, "lxc:129", Tristate::No));
        silent(&RULE, &Host::amd().container(&[A]).claimed(B, "vm:140", Tristate::No));
    }
}
