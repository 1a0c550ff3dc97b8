//! PW0202: redirect on the ports between two devices below one switch.

use std::collections::BTreeSet;

use super::support;
use crate::code::ACS_REDIRECT;
use crate::diagnose::finding::{Finding, Severity, device_file};
use crate::diagnose::{Context, Rule};
use crate::judge::Verdict;
use crate::observed::Observed;
use crate::route::Redirect;

pub(super) const RULE: Rule = Rule {
    code: ACS_REDIRECT,
    title: "access control sends peer requests past the switch to the root complex",
    page: "\
Two devices below one PCIe switch can exchange data inside it. Access Control Services on the ports
between them forbid that when request redirect, completion redirect or egress control is set in the
ACS *control* word: the request then goes up to the root complex and meets the IOMMU, where the
requester's own domain decides, and comes back down. With a translating domain and raw addresses it
is lost; with an identity domain it arrives by the longer way, if the root complex forwards.

Only the ports **between the two devices and their common bridge** matter. Redirect on a port above
the common bridge, or on another switch, does nothing to this pair. `SrcValid` alone redirects
nothing. A port without the capability does not redirect.

With two levels of switches this program counts redirect at any level below the common bridge, as
the kernel's own verdict does; whether a lower port's redirect alone reaches past the upper switch
was not measured on hardware.

How it was seen: the access control words in the ports' configuration space, which need root to
read.

With an IOMMU present the kernel sets these bits at boot on every capable port, and they are what
keeps IOMMU groups apart. Clearing them removes the isolation between everything below those ports,
while the kernel's view of the groups stays as it was: only where one tenant owns all of it.

Sources: PCI Express Base Specification 6.12.3; `drivers/pci/pci.c`, `pci_std_enable_acs`;
`drivers/pci/p2pdma.c`, `pci_bridge_has_acs_redir`.",
    check,
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let Some(affected) = support::own(context, RULE.code) else { return Vec::new() };
    let mut ports = BTreeSet::new();
    for pair in &affected.pairs {
        if let Redirect::By(found) = pair.route.redirect() {
            ports.extend(found);
        }
    }
    if ports.is_empty() {
        return Vec::new();
    }
    let severity = if affected.any(Verdict::Broken) { Severity::Error } else { Severity::Info };
    let (count, verb) = match ports.len() {
        1 => ("1 switch port".to_owned(), "redirects"),
        many => (format!("{many} switch ports"), "redirect"),
    };
    let mut finding = Finding::new(
        RULE.code,
        severity,
        affected.confidence(),
        format!("{count} {verb} peer requests to the root complex"),
    )
    .about_all(&ports);
    for port in &ports {
        let acs = context.snapshot.device(*port).and_then(|device| device.config.known());
        if let Some(Observed::Known(acs)) = acs.map(|config| &config.acs) {
            finding = finding.seen(
                format!("{} (ACS control)", device_file(*port, "config")),
                format!("{:#06x}: {}", acs.control, acs.words()),
            );
        }
    }
    vec![affected.routes(finding).remedy(
        "if one tenant owns everything below these ports, clearing redirect there lets requests \
         turn in the switch (peerway roads); it removes the isolation between those devices",
    )]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::testing::{Host, fires, silent, value};
    use crate::snapshot::pci::Acs;

    fn with_control(control: u16) -> Host {
        Host::switch().config("0000:02:00.0", |config| {
            config.acs = Observed::Known(Acs { capability: 0x5f, control });
        })
    }

    #[test]
    fn redirect_between_the_two() {
        let finding = fires(&RULE, &with_control(0x1d));
        assert_eq!(finding.severity, Severity::Error);
        assert_eq!(finding.subjects, ["0000:02:00.0"]);
        assert_eq!(
            value(&finding, "ACS control"),
            "0x001d: SrcValid ReqRedir CmpltRedir UpstreamFwd"
        );
        assert_eq!(fires(&RULE, &with_control(0x1d).identity()).severity, Severity::Info);
    }

    #[test]
    fn source_validation_and_ports_above_the_switch_redirect_nothing() {
        silent(&RULE, &with_control(0x11));
        // The root port above the switch redirects on every host with an IOMMU.
        silent(&RULE, &Host::switch());
        silent(&RULE, &Host::amd());
    }
}
