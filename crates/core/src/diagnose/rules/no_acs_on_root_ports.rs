//! PW0407: root ports without access control although an IOMMU is on.

use super::firmware_menu::{Detector, Maker, SETTINGS};
use super::firmware_settings::platform;
use super::firmware_state::root_ports_above;
use super::support;
use crate::code::NO_ACS_ON_ROOT_PORTS;
use crate::diagnose::finding::{Finding, Severity, device_file};
use crate::diagnose::{Context, Rule};
use crate::judge::Confidence;
use crate::observed::Observed;
use crate::snapshot::kernel::Tristate;
use crate::snapshot::pci::PciDevice;

pub(super) const RULE: Rule = Rule {
    code: NO_ACS_ON_ROOT_PORTS,
    title: "root ports above GPUs have no access control although an IOMMU is on",
    page: "\
The root ports above these GPUs show no Access Control Services capability. Either firmware hides it
(on AMD boards the entry is `ACS Enable`, which needs `Enable AER Cap`), or the port never had it.
With an IOMMU present the kernel would set the bits of the capability itself; it cannot add the
capability.

How it was seen: the list of extended capabilities in the port's configuration space, read to its
end as root. A list that could not be read does not lead to this finding.

What it does to groups: a port without the capability counts as not isolating. A device joins the
group of its root port, and of what lies behind the other functions of the same slot. Groups become
larger, and a GPU that shares a group with somebody else's device cannot be given to a guest, nor
can its group's type be changed without touching the other.

What it does to peer access: nothing. GPUs on different root ports meet the IOMMU with or without
this capability. Below a common switch the switch's own ports decide, which firmware entries of the
processor do not reach.

What helps, where groups are too large: the firmware entry, after a look at what else is in the
group. It needs a reboot, and changes the groups of every tenant.

What not to believe: that access control on the root ports is what breaks peer access, and that
hiding it is a cure. `pcie_acs_override` makes groups smaller on paper only (PW0106).

Sources: `drivers/pci/pci.c`, `pci_enable_acs`; `drivers/iommu/iommu.c`, `pci_device_group`; setup
menus of AMD boards. The merging of groups is from source, not measured on hardware.",
    check,
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let snapshot = context.snapshot;
    if snapshot.iommu_active() != Tristate::Yes || snapshot.is_guest() == Tristate::Yes {
        return Vec::new();
    }
    let without: Vec<&PciDevice> = root_ports_above(snapshot)
        .into_iter()
        .filter(|port| port.config.known().is_some_and(|config| config.acs == Observed::Absent))
        .collect();
    if without.is_empty() {
        return Vec::new();
    }
    let ports = support::counted(without.len(), "root port", "root ports");
    let mut finding = Finding::new(
        RULE.code,
        Severity::Info,
        Confidence::Certain,
        format!("{ports} above GPUs without access control: groups may be larger than need be"),
    )
    .about_all(without.iter().map(|port| port.address));
    for port in without.iter().take(8) {
        finding = finding.seen(
            format!("{} (extended capabilities)", device_file(port.address, "config")),
            "no access control (000d)",
        );
    }
    let maker = Maker::detect(&snapshot.firmware);
    let platform = platform(snapshot);
    let place = SETTINGS
        .iter()
        .find(|setting| {
            setting.detector == Detector::RootPortAcs && Some(setting.platform) == platform
        })
        .map_or_else(|| "no menu entry is known".to_owned(), |setting| setting.place(maker));
    vec![finding.remedy(format!(
        "where groups are too large, {place}; it changes the groups of \
         every tenant, needs a reboot, and is no cure for peer access"
    ))]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::testing::{Host, PORT, fires, silent};

    fn without() -> Host {
        Host::amd().config(PORT, |config| config.acs = Observed::Absent)
    }

    #[test]
    fn a_port_without_the_capability() {
        let finding = fires(&RULE, &without());
        assert_eq!(finding.subjects, [PORT]);
        assert!(finding.remedies[0].contains("no cure for peer access"));
        assert!(finding.remedies[0].contains("AMD CBS"));
        let intel = Host::intel().config(PORT, |config| config.acs = Observed::Absent);
        assert!(fires(&RULE, &intel).remedies[0].contains("ACS Control (per slot"));
    }

    #[test]
    fn a_port_with_it_unread_or_without_an_iommu() {
        silent(&RULE, &Host::amd());
        silent(&RULE, &Host::amd().config(PORT, |config| config.acs = Observed::default()));
        silent(
            &RULE,
            &without().edit(|snapshot| {
                snapshot.groups.clear();
                snapshot.iommu.units = Observed::Known(Vec::new());
            }),
        );
    }
}
