//! PW0104: `iommu=soft` switches no IOMMU off.

use super::boot;
use super::support;
use crate::code::IOMMU_SOFT;
use crate::command_line::same_key;
use crate::diagnose::finding::{Finding, Severity};
use crate::diagnose::{Context, Rule};
use crate::judge::Confidence;

pub(super) const RULE: Rule = Rule {
    code: IOMMU_SOFT,
    title: "iommu=soft switches bounce buffers on and no IOMMU off",
    page: "\
The documentation of `iommu=soft` says that it uses software bounce buffers and can prevent the use
of a hardware IOMMU. In kernels 6.1 to 7.3, as read, it does the first only: bounce buffers
(SWIOTLB) are switched on, and AMD-Vi and VT-d are detected and driven all the same. Groups
translate as before.

How it was seen: the word on the command line; the units below `/sys/class/iommu` and the groups'
types show that the IOMMU works.

Why it matters: guides for desktop boards recommend it against peer-access trouble, and for old
boards with a broken IOMMU it once mattered. Whoever set it takes the IOMMU for off and looks for
the cause elsewhere. NVIDIA's driver, on the other hand, treats a device on bounce buffers as one
that needs no remapping.

What helps: look at the group's `type`, which says what happens to this device's addresses, and
remove the word at the next change of the command line.

What not to believe: the boot banner `Default domain type: …`, which prints with and without an
IOMMU.

Sources: `arch/x86/kernel/pci-dma.c`, `iommu_setup` and `pci_iommu_alloc`;
`Documentation/admin-guide/kernel-parameters.txt`. Read in source; the effect on the driver was not
measured on hardware.",
    check,
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let snapshot = context.snapshot;
    let soft: Vec<_> = boot::words(snapshot)
        .into_iter()
        .filter(|word| same_key(&word.key, "iommu") && word.value.as_deref() == Some("soft"))
        .take(1)
        .collect();
    if soft.is_empty() {
        return Vec::new();
    }
    let units = snapshot
        .iommu
        .units
        .as_ref()
        .map(|units| support::listed(units.iter().map(|unit| unit.name.as_str()), 4))
        .map(|names| if names.is_empty() { "none".to_owned() } else { names });
    let finding = Finding::new(
        RULE.code,
        Severity::Info,
        Confidence::Probable,
        "iommu=soft switches bounce buffers on; it switches no IOMMU off",
    )
    .about("host");
    vec![
        boot::with_words(finding, &soft)
            .observed("/sys/class/iommu", &units)
            .remedy("read the group's type instead, and remove the word at the next change"),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::testing::{Host, fires, silent, value};

    #[test]
    fn the_word() {
        let finding = fires(&RULE, &Host::amd().boot("iommu=soft,soft"));
        assert_eq!(value(&finding, "/sys/class/iommu"), "ivhd0");
    }

    #[test]
    fn other_words_of_the_list() {
        silent(&RULE, &Host::amd().boot("iommu=off swiotlb=soft"));
    }
}
