//! PW0217: NVLink carries the pair.

use super::support;
use crate::code::NVLINK;
use crate::diagnose::finding::{Finding, Severity};
use crate::diagnose::{Context, Rule};

pub(super) const RULE: Rule = Rule {
    code: NVLINK,
    title: "NVLink carries the pair; PCIe and the IOMMU have no part in it",
    page: "\
The two GPUs have NVLink connections that are up, directly or through NVSwitches. Peer access then
uses NVLink: requests carry addresses of the NVLink fabric, and neither the PCIe switches, nor
access control, nor the IOMMU sees them. NVLink outranks the PCIe path in the driver's choice, in
CUDA and in NCCL.

How it was seen: a listing of NVLink connections that came with the material (`nvidia-smi nvlink`, a
topology matrix, or a measurement). It does not show in sysfs; on a live host nobody knows of it
without opening a GPU (PW0218).

Why it matters: nothing that this program says about IOMMU domains or redirect bits concerns these
pairs. A translating domain is no fault for them, and changing it brings nothing.

What it does not cover: transfers that leave NVLink, such as those of network controllers into GPU
memory, which are PCIe requests of the controller and are judged as such. A GPU whose links failed
falls back to PCIe where the driver allows it, and on systems with NVSwitches it does not fall back.

What helps: nothing is needed. Bandwidth far below that of the links means that some of them are
down, or that a program copies through main memory.

What not to believe: a single link error counter as a sign of broken peer access; links retrain and
replay.

Sources: NVIDIA open kernel modules, `p2p_caps.c`, `p2pGetCapsStatus` (order of the questions).",
    check,
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let Some(affected) = support::own(context, RULE.code) else { return Vec::new() };
    let mut finding = Finding::new(
        RULE.code,
        Severity::Info,
        affected.confidence(),
        format!(
            "{} over NVLink: PCIe and the IOMMU have no part in it",
            affected.that("goes", "go")
        ),
    )
    .about_all(affected.requesters());
    let links = context.snapshot.nvlinks.known().map(Vec::as_slice).unwrap_or_default();
    for link in links.iter().filter(|link| link.links > 0).take(8) {
        finding = finding
            .seen(format!("NVLink {} to {}", link.a, link.b), format!("{} links up", link.links));
    }
    vec![finding]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::testing::{A, B, Host, at, fires, silent, value};
    use crate::observed::Observed;
    use crate::snapshot::link::NvLink;

    fn linked(links: u32) -> Host {
        Host::amd().board(0x2330).edit(|snapshot| {
            snapshot.nvlinks = Observed::Known(vec![NvLink { a: at(A), b: at(B), links }]);
        })
    }

    #[test]
    fn links_that_are_up() {
        let finding = fires(&RULE, &linked(18));
        assert_eq!(value(&finding, "NVLink 0000:01:00.0"), "18 links up");
    }

    #[test]
    fn links_that_are_down() {
        silent(&RULE, &linked(0));
        silent(&RULE, &Host::amd());
    }
}
