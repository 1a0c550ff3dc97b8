//! PW0302: `DmaRemapPeerMmio=1` does not mean that peer memory is mapped.

use super::registry::PARAMS;
use super::support;
use crate::code::REMAP_PARAMETER;
use crate::diagnose::finding::{Finding, Severity};
use crate::diagnose::{Context, Rule};
use crate::judge::addressing::kernel_maps;
use crate::observed::Observed;

pub(super) const RULE: Rule = Rule {
    code: REMAP_PARAMETER,
    title: "DmaRemapPeerMmio does not decide alone whether peer memory is mapped",
    page: "\
`DmaRemapPeerMmio: 1` is the default of NVIDIA's driver and reads like \"peer memory is mapped
through the IOMMU\". It only permits that. Before it maps, the driver asks whether the device has a
table of DMA operations with a mapping hook. Kernels 5.9 to 6.11 give a translated device one. From
6.12 on the kernel calls its IOMMU layer directly, the table is empty, and the driver takes that for
\"no remapping needed\": it hands the GPU the peer's raw bus address and reports success.

With `DmaRemapPeerMmio: 0` the driver never asks, on any kernel. On kernels 5.9 to 6.11 the
parameter is then the cause; on later ones it has to be 1 before a rebuilt driver can map.

How it was seen: `/proc/driver/nvidia/params` (there is no `/sys/module/nvidia/parameters`), the
kernel's release, and the symbol `iommu_dma_ops` in `/proc/kallsyms` where it could be read.

Why it matters: the parameter is the first thing that people check, and it shows the wished-for
value on hosts where nothing is mapped. The kernel's own mapping function still works there; only
the driver's question is out of date. Driver branches 535 to 595 are alike in this.

What helps: the open driver rebuilt so that it always asks the kernel (one function of `nv-dma.c`),
a peer map, or identity domains where nothing stands against them (`peerway roads`).

What not to believe: where it reads 1, that setting it again changes anything.

Sources: `kernel-open/nvidia/nv-dma.c`, `nv_dma_use_map_resource`, `nv_dma_map_peer`; commit
b5c58b2fdc42 (\"dma-mapping: direct calls for dma-iommu\", 6.12). Read in source and matched by one
public report of raw addresses on kernel 7.0; not measured on GPUs by this project.",
    check,
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let Some(affected) = support::own(context, RULE.code) else { return Vec::new() };
    let snapshot = context.snapshot;
    let value =
        snapshot.nvidia.params.as_ref().and_then(|params| match params.get("DmaRemapPeerMmio") {
            Some(value) => Observed::Known(value.clone()),
            None => Observed::Absent,
        });
    let title = match value.known().map(String::as_str) {
        Some("0") => "DmaRemapPeerMmio: 0 tells the driver never to map peer memory",
        Some(_) => "DmaRemapPeerMmio is on, yet the driver maps no peer memory on this kernel",
        None => "the driver maps no peer memory on this kernel, whatever DmaRemapPeerMmio says",
    };
    let mut finding = Finding::new(RULE.code, Severity::Warning, affected.confidence(), title)
        .about_all(affected.requesters())
        .observed(format!("{PARAMS} (DmaRemapPeerMmio)"), &value);
    finding = support::with_release(finding, snapshot);
    if let Observed::Known(listed) = snapshot.kernel.iommu_dma_ops {
        let text = if listed { "iommu_dma_ops is listed" } else { "iommu_dma_ops is not listed" };
        finding = finding.seen("/proc/kallsyms", text);
    }
    let remedy = match (value.known().map(String::as_str), kernel_maps(snapshot)) {
        (Some("0"), true) => {
            "the parameter is the cause here: take NVreg_DmaRemapPeerMmio=0 out (the default is \
             1), reload the driver with nobody on the GPUs, and prove the data (PW0204)"
        }
        (Some("0"), false) => {
            "set it back to 1 before a rebuilt driver can map; alone it changes nothing on this \
             kernel"
        }
        _ => "do not look for a cure in this parameter; see peerway roads",
    };
    vec![support::with_driver(finding, snapshot).remedy(remedy)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::testing::{Host, fires, silent, value};

    #[test]
    fn on_without_effect() {
        let finding = fires(&RULE, &Host::amd());
        assert_eq!(value(&finding, "DmaRemapPeerMmio"), "1");
        assert_eq!(value(&finding, "kallsyms"), "iommu_dma_ops is not listed");
    }

    #[test]
    fn switched_off_on_a_kernel_that_would_map() {
        let host =
            Host::amd().edit(|snapshot| snapshot.kernel.iommu_dma_ops = Observed::Known(true));
        silent(&RULE, &host);
        let off = host.parameter("DmaRemapPeerMmio", "0");
        let finding = fires(&RULE, &off);
        assert!(finding.title.contains("never"));
        assert!(finding.remedies[0].starts_with("the parameter is the cause here"));
    }

    #[test]
    fn switched_off_on_a_kernel_that_would_not_map() {
        let finding = fires(&RULE, &Host::amd().parameter("DmaRemapPeerMmio", "0"));
        assert!(finding.remedies[0].starts_with("set it back to 1"));
        assert!(fires(&RULE, &Host::amd()).remedies[0].starts_with("do not look for a cure"));
    }

    #[test]
    fn where_addresses_pass_it_does_not_matter() {
        silent(&RULE, &Host::amd().identity());
        silent(&RULE, &Host::amd().identity().parameter("DmaRemapPeerMmio", "0"));
    }
}
