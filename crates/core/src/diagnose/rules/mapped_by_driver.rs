//! PW0204: the driver has the kernel map peer memory here.

use super::support;
use crate::code::MAPPED_BY_DRIVER;
use crate::diagnose::finding::{Finding, Severity};
use crate::diagnose::{Context, Rule};
use crate::observed::Observed;

pub(super) const RULE: Rule = Rule {
    code: MAPPED_BY_DRIVER,
    title: "the driver has the kernel map peer memory, so that translation serves peer access",
    page: "\
The requester's group translates, and its driver asks the kernel for an IOMMU entry for the peer's
memory before it hands the GPU an address. Requests then go up to the root complex, are translated
there to the peer's bus address and come down again: peer access and isolation at once.

NVIDIA's driver does this where the kernel gives a translated device a table of DMA operations. Such
kernels are 5.9 to 6.11. From 6.12 on the kernel calls its IOMMU layer directly, the table is gone,
and the same driver hands out raw bus addresses without a word (PW0201). The drivers `amdgpu` and
`xe` go through the kernel's own peer-to-peer code, which maps on every kernel built for it
(`CONFIG_PCI_P2PDMA`), and refuses pairs that it does not trust, as far as their source was read;
not measured.

How it was seen: the symbol `iommu_dma_ops` among the kernel's data symbols, which tells the two
apart even where a distribution moved the change to another release, or else the release itself. The
symbol was not tried on every distribution.

Why only `possible`: nobody has verified on hardware that NVIDIA's mapped path delivers every byte,
and the vendor does not support peer access under a translating IOMMU on bare metal. One report of
damaged copies on a 6.8 kernel has no explained cause. On AMD with SME active an entry for peer
memory carries the encryption bit and leads nowhere (PW0206). On an SNP host, how the ownership
checks treat requests to peer memory was not measured (gate rmp-mmio).

What helps: a data-checked copy in both directions (`peerway test`) before anything relies on it,
and again after every kernel update, since one update takes the mapping away.

What not to believe: `DmaRemapPeerMmio: 1` in the driver's parameters (PW0302).

Sources: `kernel-open/nvidia/nv-dma.c`, `nv_dma_use_map_resource` and `nv_dma_map_peer`;
`drivers/iommu/dma-iommu.c`, `iommu_dma_map_resource`. Read in source, not measured on hardware.",
    check,
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let Some(affected) = support::own(context, RULE.code) else { return Vec::new() };
    let snapshot = context.snapshot;
    let mut finding = Finding::new(
        RULE.code,
        Severity::Info,
        affected.confidence(),
        format!(
            "{} should work under translation: the driver has peer memory mapped",
            affected.counted()
        ),
    )
    .about_all(affected.requesters());
    finding = support::with_release(finding, snapshot);
    if let Observed::Known(table) = &snapshot.kernel.iommu_dma_ops {
        let text = if *table { "iommu_dma_ops is listed" } else { "iommu_dma_ops is not listed" };
        finding = finding.seen("/proc/kallsyms", text);
    }
    finding = support::with_driver(finding, snapshot);
    finding = support::with_domains(finding, snapshot, &affected.requesters());
    vec![affected.reasons(finding).remedy(
        "prove it with checked data before relying on it, and again after a kernel update \
         (peerway test)",
    )]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::testing::{Host, fires, silent, value};
    use crate::judge::Confidence;

    #[test]
    fn a_kernel_with_the_table() {
        let host = Host::amd().kernel("6.8.12-test").edit(|snapshot| {
            snapshot.kernel.iommu_dma_ops = Observed::Known(true);
        });
        let finding = fires(&RULE, &host);
        assert_eq!(finding.confidence, Confidence::Possible);
        assert_eq!(value(&finding, "kallsyms"), "iommu_dma_ops is listed");
    }

    #[test]
    fn a_kernel_without_it() {
        silent(&RULE, &Host::amd());
        silent(&RULE, &Host::amd().identity());
    }
}
