//! PW0704: what imported files come to.

use crate::code::IMPORTED;
use crate::diagnose::finding::Finding;
use crate::diagnose::{Context, Rule};

pub(super) const RULE: Rule = Rule {
    code: IMPORTED,
    title: "what imported files come to",
    page: "\
`peerway diagnose --import` reads files that were attached to a report, and no host. This finding
carries an assessment that no other finding explains: what kind of evidence the files are, in one
sentence, and the devices that they name.

How it was seen: files are recognised by their content. Kernel logs, `lspci`, NCCL logs, outputs of
peer tests and bandwidth tables, `nvidia-smi topo -p2p`, listings of IOMMU groups, command lines,
guests' configurations and lists of memory regions are read. Others are named as not understood.

What it is worth: files show what somebody chose to show. A test that returned wrong data is proof;
a table of speeds, a capability answer or a listing is not. What would settle an open question is
said: mostly the kernel log of the boot in which it happened, or a capture of the host.

What not to believe: silence. A file that does not mention the IOMMU says nothing about it.

Sources: this program's own rules for telling kinds of evidence apart.",
    check,
};

/// Only imports make this finding; a host is diagnosed by the other rules.
fn check(_: &Context<'_>) -> Vec<Finding> {
    Vec::new()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::testing::{Host, silent};

    #[test]
    fn no_host_has_it() {
        silent(&RULE, &Host::amd());
    }
}
