//! PW0106: `pcie_acs_override` pretends isolation.

use super::boot;
use super::support;
use crate::code::ACS_OVERRIDE;
use crate::command_line::Effect;
use crate::diagnose::finding::{Finding, Severity};
use crate::diagnose::{Context, Rule};
use crate::judge::Confidence;

pub(super) const RULE: Rule = Rule {
    code: ACS_OVERRIDE,
    title: "pcie_acs_override makes IOMMU groups look isolated that are not",
    page: "\
`pcie_acs_override=downstream,multifunction,id:…` comes from a patch that is in no upstream kernel;
every Proxmox kernel and some others carry it. It tells the kernel to treat ports that have no
access control capability as if they isolated, so that devices behind them get groups of their own.

What it does not do: it changes no register. Requests between such devices are routed as before:
below a switch without access control they turn in the switch, whatever groups say. It opens no way
for peer access and closes none.

How it was seen: the word on the command line. A kernel with the patch logs at boot that overrides
are enabled and may allow peer-to-peer DMA that no IOMMU protects; a kernel without the patch
ignores the word without a line.

Why it matters: the border of a group is what everything else rests on: which devices may go to a
guest, and which groups this program may change without touching somebody else. With the override
that border is a wish. Two guests with devices below one such port can write into each other's
devices.

What helps: look at the access control words of the real ports (`peerway path A B`), and give
devices behind ports without the capability to one tenant only. Removing the word merges groups at
the next boot, which can take devices away from guests that have them now.

What not to believe: that it turns access control off and so helps peer access. It pretends that
access control is on.

Sources: Proxmox kernel patch 0004 (\"pci: Enable overrides for missing ACS capabilities\");
`drivers/iommu/iommu.c`, `pci_device_group`.",
    check,
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let snapshot = context.snapshot;
    let words = boot::with_effect(snapshot, &[Effect::PretendsIsolation]);
    let logged = support::log_lines(snapshot, &["PCIe ACS overrides enabled"]);
    if words.is_empty() && logged.is_empty() {
        return Vec::new();
    }
    let (confidence, title) = if logged.is_empty() {
        (
            Confidence::Probable,
            "pcie_acs_override pretends isolation, if this kernel carries the patch",
        )
    } else {
        (Confidence::Certain, "pcie_acs_override is in force: group borders prove no isolation")
    };
    let finding = Finding::new(RULE.code, Severity::Warning, confidence, title).about("host");
    let finding = support::with_log(boot::with_words(finding, &words), &logged);
    vec![
        support::with_release(finding, snapshot)
            .remedy("read the access control words of the ports themselves (peerway path A B)")
            .remedy("give devices behind ports without access control to one tenant only"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::testing::{Host, fires, silent};

    #[test]
    fn the_word_and_the_line() {
        let host = Host::amd().boot("pcie_acs_override=downstream,multifunction");
        assert_eq!(fires(&RULE, &host).confidence, Confidence::Probable);
        let logged = host.logged(
            "Warning: PCIe ACS overrides enabled; This may allow non-IOMMU protected peer-to-peer DMA",
        );
        assert_eq!(fires(&RULE, &logged).confidence, Confidence::Certain);
    }

    #[test]
    fn words_that_clear_redirect_for_real() {
        silent(&RULE, &Host::amd().boot("pci=disable_acs_redir=0000:02:00.0"));
    }
}
