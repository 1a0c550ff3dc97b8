//! PW0214: the route passes something that could not be read.

use super::support;
use crate::code::ROUTE_UNKNOWN;
use crate::diagnose::finding::{Finding, Severity};
use crate::diagnose::{Context, Rule};

pub(super) const RULE: Rule = Rule {
    code: ROUTE_UNKNOWN,
    title: "the route passes something that could not be read, and it decides",
    page: "\
A verdict needs an answer to every question on the route: the group and its type, the access control
words of the ports between two devices below one switch, the target's memory regions, the
processor's maker. One of these could not be read here, and both answers are possible and lead to
different verdicts. Where an unread part makes no difference, this program does not complain about
it.

How it was seen: the reasons are in the evidence, each with the place that could not be read.

Usual reasons: this program ran without root, and the kernel shows only the first 64 bytes of
configuration space to others, while access control lies above them; the recording at hand does not
hold the file; a port sleeps, and reading it would wake it (PW0703); the group's `type` file does
not exist (kernels before 5.11), or reads `unknown` because the group has no default domain.

Why it matters: an unknown is not a quiet \"yes\". A tool that takes an unreadable access control
word for an absent one declares hosts healthy that lose data.

What helps: run as root on the host itself, `--wake` for sleeping ports, or a fresh recording made
as root. What remains unknown then can only be measured (`peerway test`).

What not to believe: `lspci` output that says `<access denied>` or shows no ACS lines, when it was
not taken as root with `-vv`: absent lines are no absent capability.

Sources: `drivers/pci/pci-sysfs.c`, `pci_read_config`; `drivers/iommu/iommu.c`,
`iommu_group_show_type`.",
    check,
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let Some(affected) = support::own(context, RULE.code) else { return Vec::new() };
    let finding = Finding::new(
        RULE.code,
        Severity::Warning,
        affected.confidence(),
        format!("{} cannot be judged: part of the route could not be read", affected.counted()),
    )
    .about_all(affected.requesters());
    let finding = affected.reasons(finding);
    // A recording may have been made by somebody who could not read it, whoever looks at it now.
    let withheld = affected.pairs.iter().any(|pair| pair.reason.contains("CAP_SYS_ADMIN"));
    vec![if withheld {
        finding.remedy("record it again as root")
    } else if context.snapshot.origin.privileged {
        finding.remedy("measure it with checked data (peerway test); nothing more can be read here")
    } else {
        finding.remedy("run as root on the host itself: others see 64 bytes of configuration space")
    }]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::testing::{Host, fires, silent, value};
    use crate::observed::Observed;
    use crate::snapshot::iommu::DomainType;

    fn unreadable(host: Host) -> Host {
        host.config("0000:02:00.0", |config| {
            config.acs = Observed::Unreadable("permission denied".to_owned());
        })
    }

    #[test]
    fn an_unread_port_that_decides() {
        let host = unreadable(Host::switch()).edit(|snapshot| snapshot.origin.privileged = false);
        let finding = fires(&RULE, &host);
        assert_eq!(finding.severity, Severity::Warning);
        assert!(value(&finding, "pair").contains("0000:02:00.0"));
        assert!(finding.remedies[0].contains("root"));
        fires(&RULE, &Host::amd().domains(&DomainType::NoDefault));
    }

    #[test]
    fn an_unread_port_that_changes_nothing() {
        silent(&RULE, &unreadable(Host::switch()).identity());
        silent(&RULE, &Host::amd());
    }
}
