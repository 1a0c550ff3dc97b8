//! PW0215: no driver is bound, or one whose way of addressing peers is not known.

use super::support;
use crate::code::ADDRESSING_UNKNOWN;
use crate::diagnose::finding::{Finding, Severity, device_file};
use crate::diagnose::{Context, Rule};

pub(super) const RULE: Rule = Rule {
    code: ADDRESSING_UNKNOWN,
    title: "how the requester's driver addresses peers is not known",
    page: "\
Under a translating domain everything hangs on the address that the requester's driver puts into its
page tables: the peer's raw bus address, which has no IOMMU entry, or an address that the kernel
mapped to the peer's memory. This program knows the answer for NVIDIA's driver by kernel release and
for `amdgpu` and `xe`. For this requester it does not: no driver is bound, the driver is another
one, or the two devices are of makers whose drivers have no way to each other.

How it was seen: the `driver` link of the requester, and for NVIDIA's driver the kernel's release
with the symbol `iommu_dma_ops`.

Why it matters: the same host with the same settings loses all data or none, by this alone.

What helps: bind the driver that will be used, and look again. For an accelerator that this program
does not know, declare how it addresses peers (`--accelerator FILE`, `raw` or `mapped`); the verdict
then says that it rests on the operator's word. A data-checked copy settles it in any case.

`nouveau` and drivers for display only offer no peer access at all; the verdict stays unknown
because nothing was tried, not because something is suspected.

What not to believe: that a missing driver is a broken road. It is an open question.

Sources: `kernel-open/nvidia/nv-dma.c`, `nv_dma_use_map_resource`;
`drivers/gpu/drm/amd/amdgpu/amdgpu_vram_mgr.c`, which maps through `dma_map_resource`.",
    check,
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let Some(affected) = support::own(context, RULE.code) else { return Vec::new() };
    let snapshot = context.snapshot;
    let requesters = affected.requesters();
    let mut finding = Finding::new(
        RULE.code,
        Severity::Info,
        affected.confidence(),
        format!(
            "{} on how a driver addresses peers, which is not known",
            affected.that("depends", "depend")
        ),
    )
    .about_all(&requesters);
    for address in &requesters {
        if let Some(device) = snapshot.device(*address) {
            finding = finding.observed(device_file(*address, "driver"), &device.driver);
        }
    }
    let two_makers = affected.pairs.iter().any(|pair| pair.reason.contains("another vendor"));
    vec![affected.reasons(support::with_release(finding, snapshot)).remedy(if two_makers {
        "copy through main memory"
    } else {
        "bind the driver that will be used, or declare how the device addresses peers"
    })]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::testing::{A, B, Host, fires, known, silent, value};
    use crate::observed::Observed;

    #[test]
    fn no_driver_or_an_unknown_one() {
        let finding = fires(&RULE, &Host::amd().gpus(|gpu| gpu.driver = Observed::Absent));
        assert_eq!(finding.subjects, [A, B]);
        assert_eq!(value(&finding, "driver"), "none");
        fires(&RULE, &Host::amd().gpus(|gpu| gpu.driver = known("nouveau")));
        // A kernel of which nothing is known.
        fires(
            &RULE,
            &Host::amd().kernel("next-test").edit(|snapshot| {
                snapshot.kernel.iommu_dma_ops = Observed::default();
            }),
        );
    }

    #[test]
    fn a_known_driver() {
        silent(&RULE, &Host::amd());
        silent(&RULE, &Host::amd().gpus(|gpu| gpu.driver = known("amdgpu")));
    }
}
