//! PW0208: this system is a guest; its host decides.

use super::support;
use crate::code::HOST_NOT_VISIBLE;
use crate::diagnose::finding::{Finding, Severity};
use crate::diagnose::{Context, Rule};
use crate::judge::Confidence;

pub(super) const RULE: Rule = Rule {
    code: HOST_NOT_VISIBLE,
    title: "this system is a guest: the host's IOMMU and switches decide and cannot be seen",
    page: "\
The processor reports that it runs under a hypervisor. What decides about a peer request then lies
in the host: the IOMMU domain that the host's monitor fills, the access control bits of the real
switch ports, the real root complex. The PCI tree, the IOMMU (if one is shown at all) and the access
control words inside the guest are the guest's own, often emulated, and prove nothing about the road
that requests take.

How it was seen: the flag `hypervisor` of `/proc/cpuinfo`, which every common hypervisor sets.

Why it matters: a guest can look perfect and lose every byte, and it can look hopeless and work.
Both were reported. Peer access works in a guest where the monitor mapped the peers' memory regions
into the guest's IOMMU domain, and the guest's driver agrees to use it.

What helps: a data-checked copy in both directions inside the guest (`peerway test`) is the whole
truth about this guest. For the cause of a failure run this program on the host as well; with its
recording at hand (`peerway capture` there) the two can be read side by side.

What not to believe: the absence of an IOMMU inside the guest (`/sys/class/iommu` empty) as a sign
that addresses pass; a topology drawn inside the guest; settings of the guest's own command line
that speak of the IOMMU, since the host's IOMMU does not hear them.

Sources: `arch/x86/kernel/cpu/hypervisor.c`; `drivers/vfio/vfio_iommu_type1.c`.",
    check,
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let Some(affected) = support::own(context, RULE.code) else { return Vec::new() };
    let name = context.snapshot.firmware.dmi_value("product_name");
    let mut finding = Finding::new(
        RULE.code,
        Severity::Info,
        Confidence::Certain,
        format!("this system is a guest: {} decided by its host", affected.that("is", "are")),
    )
    .about("host")
    .seen("/proc/cpuinfo (flags)", "hypervisor");
    if let Some(name) = name.filter(|name| !name.is_empty()) {
        finding = finding.seen("/sys/class/dmi/id/product_name", support::cut(name));
    }
    vec![
        finding
            .remedy("measure inside this guest with checked data (peerway test)")
            .remedy("for the cause, look on the host as well"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::testing::{Host, fires, silent};
    use crate::observed::Observed;

    #[test]
    fn under_a_hypervisor() {
        let host = Host::amd().edit(|snapshot| {
            snapshot.cpu.flags = Observed::Known(vec!["hypervisor".to_owned()]);
            snapshot.firmware.dmi = vec![("product_name".to_owned(), "Virtual Machine".to_owned())];
        });
        let finding = fires(&RULE, &host);
        assert_eq!(finding.evidence.len(), 2);
        assert_eq!(finding.confidence, Confidence::Certain);
    }

    #[test]
    fn on_bare_metal() {
        silent(&RULE, &Host::amd());
    }
}
