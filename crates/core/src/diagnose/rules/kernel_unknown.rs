//! PW0107: nothing of the kernel's own is known about this release.

use super::support;
use crate::code::KERNEL_UNKNOWN;
use crate::diagnose::finding::{Finding, Severity};
use crate::diagnose::{Context, Rule};
use crate::judge::Confidence;
use crate::observed::Observed;
use crate::snapshot::kernel::KernelVersion;

pub(super) const RULE: Rule = Rule {
    code: KERNEL_UNKNOWN,
    title: "this kernel release is none of those that the rules were checked against",
    page: "\
Much depends on the kernel's version: whether a translated device has a table of DMA operations
(which decides about NVIDIA's addresses), what a write of `identity` does on an SNP host, whether
entries for peer memory carry the encryption bit, which error numbers a refused write gives. The
rules of this program come from the source of kernels 5.11 to 7.3. This kernel's release could not
be read, does not begin with a version number, or lies outside that range.

How it was seen: `/proc/sys/kernel/osrelease`.

Why it matters: outside the range the rules say what the nearest known kernel does. Distributions
also move changes between releases; where a direct probe exists (the symbol `iommu_dma_ops`, not
tried on every distribution; EFR2 bit 13) it is used before the version.

What helps: nothing needs to be done. Verdicts that rest on the version have a lower standing here
than elsewhere; a data-checked test (`peerway test`) has the same standing on every kernel. Changes
to the host refuse what they cannot predict.

What not to believe: that a newer kernel must be better for peer access. From 6.12 on the way that
NVIDIA's driver had under translation is gone, and kernels 6.13 to 6.19 accept a setting that breaks
devices on SNP hosts.

Sources: the kernel source trees named above; releases between those that were read are taken to
behave as their neighbours do.",
    check,
};

/// The oldest and newest kernels whose source the rules come from.
const OLDEST: (u32, u32) = (5, 11);
const NEWEST: (u32, u32) = (7, 3);

fn check(context: &Context<'_>) -> Vec<Finding> {
    let snapshot = context.snapshot;
    if !support::has_accelerators(snapshot) {
        return Vec::new();
    }
    let title = match (&snapshot.kernel.release, snapshot.kernel.version()) {
        (Observed::Known(_), Some(version)) => match outside(version) {
            Some(how) => format!("kernel {version} is {how} than those that the rules come from"),
            None => return Vec::new(),
        },
        (Observed::Known(_), None) => {
            "the kernel's release names no version; rules by version do not apply".to_owned()
        }
        (Observed::Absent | Observed::Unreadable(_), _) => {
            "the kernel's release could not be read; rules by version do not apply".to_owned()
        }
    };
    let severity =
        if snapshot.kernel.version().is_some() { Severity::Info } else { Severity::Warning };
    let finding = Finding::new(RULE.code, severity, Confidence::Certain, title).about("host");
    vec![
        support::with_release(finding, snapshot)
            .remedy("trust a data-checked test over every prediction here (peerway test)"),
    ]
}

fn outside(version: KernelVersion) -> Option<&'static str> {
    let number = (version.major, version.minor);
    if number < OLDEST {
        Some("older")
    } else if number > NEWEST {
        Some("newer")
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::testing::{Host, fires, silent};

    #[test]
    fn outside_the_range_or_unreadable() {
        assert!(fires(&RULE, &Host::amd().kernel("7.4.0-rc1")).title.contains("newer"));
        assert!(fires(&RULE, &Host::amd().kernel("4.18.0-553.el8")).title.contains("older"));
        assert_eq!(fires(&RULE, &Host::amd().kernel("next")).severity, Severity::Warning);
        let unread = Host::amd().edit(|snapshot| snapshot.kernel.release = Observed::default());
        fires(&RULE, &unread);
    }

    #[test]
    fn within_it() {
        silent(&RULE, &Host::amd().kernel("5.11.0"));
        silent(&RULE, &Host::amd().kernel("7.3.4+deb14-amd64"));
        silent(&RULE, &Host::amd().kernel("next").edit(|snapshot| snapshot.devices.clear()));
    }
}
