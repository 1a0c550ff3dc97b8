//! PW0212: the requests turn in the switch and never meet the IOMMU.

use super::support;
use crate::code::TURNS_IN_SWITCH;
use crate::diagnose::finding::{Finding, Severity, device_file};
use crate::diagnose::{Context, Rule};
use crate::observed::Observed;
use crate::snapshot::kernel::Tristate;

pub(super) const RULE: Rule = Rule {
    code: TURNS_IN_SWITCH,
    title: "requests turn in a common switch and never reach the IOMMU",
    page: "\
Both devices hang below one PCIe switch, and no port between them and their common bridge redirects
peer requests. A request with the peer's raw bus address is routed by address inside the switch, at
the switch's own speed; the IOMMU, the root complex and the group's domain type have no part in it.

How it was seen: the two devices' places in the PCI tree, and the access control words of the ports
between them. Ports above the common bridge may redirect; that does nothing to this pair.

Why it is only `possible` under a translating domain: with translation on, the kernel may have
handed the requester an address of its own making that equals a bus address below the switch. The
kernel keeps the windows of the device's own host bridge out of that space, so a clash is not
expected, but nobody measured this arrangement on hardware. Where the driver has the kernel map peer
memory (PW0204), the requests carry mapped addresses and go up to the root complex after all.

Why it matters also as a warning: what turns in the switch is not checked by anything. Any device
below the switch can write to any other, whoever owns it. That is fine for one tenant and wrong for
two.

What helps: measure it with checked data (`peerway test`). Keep all devices below the switch in one
hand.

What not to believe: IOMMU groups as a proof of isolation here. They are computed once when a device
appears, and stay as they were if the bits are cleared later. A reset or resume of the port sets the
bits again, from 7.2 on every driver bind.

Sources: PCI Express Base Specification 6.12; `drivers/pci/p2pdma.c`, `calc_map_type_and_dist`.",
    check,
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let Some(affected) = support::own(context, RULE.code) else { return Vec::new() };
    let snapshot = context.snapshot;
    let mut finding = Finding::new(
        RULE.code,
        Severity::Info,
        affected.confidence(),
        format!("{} inside a switch: the IOMMU does not see it", affected.that("turns", "turn")),
    )
    .about_all(affected.requesters());
    if let Some(pair) = affected.pairs.first() {
        for port in pair.route.up.iter().chain(&pair.route.down) {
            let words = match &port.acs {
                Observed::Known(acs) => format!("{:#06x}: {}", acs.control, acs.words()),
                Observed::Absent => "no access control capability".to_owned(),
                Observed::Unreadable(why) => format!("unknown ({why})"),
            };
            finding = finding
                .seen(format!("{} (ACS control)", device_file(port.address, "config")), words);
        }
    }
    finding = support::with_domains(finding, snapshot, &affected.requesters());
    finding = affected.routes(finding).remedy("prove it with checked data (peerway test)");
    if snapshot.iommu_active() == Tristate::Yes {
        finding = finding.remedy(
            "an IOMMU is on and these ports do not redirect: the groups look separate and are not; \
             keep all of it one tenant's",
        );
    }
    vec![finding]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::testing::{BELOW_SWITCH, Host, fires, silent, value};
    use crate::judge::Confidence;
    use crate::snapshot::pci::Acs;

    #[test]
    fn below_a_switch_without_redirect() {
        let finding = fires(&RULE, &Host::switch());
        assert_eq!(finding.subjects, BELOW_SWITCH);
        assert_eq!(finding.confidence, Confidence::Possible);
        assert_eq!(
            value(&finding, "pair 0000:03:00.0"),
            "turns: common bridge 0000:01:00.0, inside the switch"
        );
        assert!(finding.remedies[1].contains("look separate and are not"));
        assert_eq!(value(&finding, "0000:02:00.0/config"), "0x0000: none set");
        assert_eq!(fires(&RULE, &Host::switch().identity()).confidence, Confidence::Probable);
    }

    #[test]
    fn with_redirect_or_without_a_switch() {
        silent(
            &RULE,
            &Host::switch().config("0000:02:01.0", |config| {
                config.acs = Observed::Known(Acs { capability: 0x5f, control: 4 });
            }),
        );
        silent(&RULE, &Host::amd());
    }
}
