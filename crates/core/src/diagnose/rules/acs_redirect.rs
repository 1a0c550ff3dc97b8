//! PW0202: redirect on the ports between two devices below one switch.

use std::collections::BTreeSet;

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
is lost; with an identity domain it arrives by the longer way.

Only the ports **between the two devices and their common bridge** matter. Redirect on a port above
the common bridge, or on another switch, does nothing to this pair. `SrcValid` alone redirects
nothing. A port without the capability does not redirect.

With two levels of switches this program counts redirect at any level below the common bridge, as
the kernel's own verdict does; whether a lower port's redirect alone reaches past the upper switch
was not measured on hardware.

With an IOMMU present the kernel sets these bits at boot on every capable port, and they are what
keeps IOMMU groups apart. Clearing them removes the isolation between everything below those ports,
while the kernel's view of the groups stays as it was: only where one tenant owns all of it.

Sources: PCI Express Base Specification 6.12.3; `drivers/pci/pci.c`, `pci_std_enable_acs`;
`drivers/pci/p2pdma.c`, `pci_bridge_has_acs_redir`.",
    check,
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let mut ports = BTreeSet::new();
    let mut broken = false;
    for pair in context.pairs_with(RULE.code) {
        broken |= pair.verdict == Verdict::Broken;
        if let Redirect::By(found) = pair.route.redirect() {
            ports.extend(found);
        }
    }
    if ports.is_empty() {
        return Vec::new();
    }
    let severity = if broken { Severity::Error } else { Severity::Info };
    let mut finding = Finding::new(
        RULE.code,
        severity,
        context.confidence_of(RULE.code),
        format!("{} switch ports redirect peer requests to the root complex", ports.len()),
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
    vec![finding.remedy(
        "if one tenant owns everything below these ports, clearing redirect there lets requests \
         turn in the switch (peerway roads); it removes the isolation between those devices",
    )]
}
