//! PW0201: raw peer addresses under a translating domain.

use crate::code::RAW_UNDER_TRANSLATION;
use crate::diagnose::finding::{Finding, Severity, device_file, group_file};
use crate::diagnose::{Context, Rule};
use crate::snapshot::kernel::Tristate;

pub(super) const RULE: Rule = Rule {
    code: RAW_UNDER_TRANSLATION,
    title: "peer requests carry raw bus addresses into a translating IOMMU domain",
    page: "\
A GPU reaches a peer's memory by an address. Where its IOMMU group has a translating domain
(`type` reads `DMA` or `DMA-FQ`), the IOMMU looks every address of the GPU up in that domain's
page table. NVIDIA's driver on kernels from 6.12 on, and every peer-to-peer fork of it on any
kernel, hands the GPU the peer's raw bus address, for which no entry exists. The request is
refused; the kernel logs a page fault at an address inside the peer's memory region; the data is
lost. The GPU that wrote notices nothing, since memory writes on PCIe are posted, and one that
read gets zeros or ones.

The requester's own group decides, so each direction of a pair has its own verdict.

What lies about it: `nvidia-smi topo -p2p` says OK, `cudaDeviceCanAccessPeer` returns 1, NCCL
chooses the peer transport. None of them asks the IOMMU.

What helps: a road that gives the peer's address an entry (a peer map, a mapping driver), one that
takes the translation away for these groups only (identity; never on an SNP host), or living
without peer access (`NCCL_P2P_DISABLE=1` covers NCCL alone).

Sources: `drivers/iommu/dma-iommu.c` and commit b5c58b2fdc42 (\"dma-mapping: direct calls for
dma-iommu\", 6.12); `kernel-open/nvidia/nv-dma.c`, `nv_dma_use_map_resource`. The loss itself was
measured on real kernels with emulated devices, not on GPUs.",
    check,
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let requesters = context.requesters_with(RULE.code);
    if requesters.is_empty() {
        return Vec::new();
    }
    let snapshot = context.snapshot;
    let mut finding = Finding::new(
        RULE.code,
        Severity::Error,
        context.confidence_of(RULE.code),
        format!(
            "{} pairs cannot exchange data: raw peer addresses meet a translating IOMMU domain",
            context.pairs_with(RULE.code).count()
        ),
    )
    .about_all(&requesters);
    for address in &requesters {
        let Some(device) = snapshot.device(*address) else { continue };
        if let Some(group) = snapshot.group_of(device) {
            finding = finding.observed(group_file(group.id, "type"), &group.domain);
        }
        finding = finding.observed(device_file(*address, "driver"), &device.driver);
    }
    finding = finding.observed("/proc/sys/kernel/osrelease", &snapshot.kernel.release);
    if let Some(version) = snapshot.nvidia.version.known() {
        finding = finding.seen("/proc/driver/nvidia/version", &version.line);
    }
    let snp = snapshot.memory_encryption.snp.state;
    finding = finding.remedy(
        "until a road is open, run without peer access: NCCL_P2P_DISABLE=1, and the engine's own \
         switch for custom all-reduce",
    );
    if snp == Tristate::No {
        finding = finding.remedy("identity domains for exactly these groups (peerway roads)");
    }
    vec![finding.remedy("a peer map or a mapping driver keeps translation on (peerway roads)")]
}
