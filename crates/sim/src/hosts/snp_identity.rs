//! SNP hosts on which somebody set both GPUs' groups to identity.
//!
//! | host | from, to | verdict |
//! |---|---|---|
//! | `snp-identity-6.14` | both ways | broken: the kernel took the write, the IOMMU rejects all DMA |
//! | `snp-identity-7.3` | both ways | works: kernel and IOMMU allow untranslated entries under SNP |

use peerway_core::address::PciAddress;

use super::snp_eras;
use crate::build::kmsg::ERROR;
use crate::build::{HostBuilder, Iommu, kernels};
use crate::expect::{ExpectedHost, Verdict};

pub(super) fn expected() -> Vec<ExpectedHost> {
    let (mut refused, gpus) =
        snp_eras::host("snp-identity-6.14", kernels::PVE_6_14, "identity", true);
    for gpu in &gpus {
        illegal_entry(&mut refused, *gpu);
    }
    let (mut allowed, _) =
        snp_eras::host("snp-identity-7.3", kernels::STABLE_7_3, "identity", true);
    allowed.iommu(Iommu::AMD_SNP_MODE_ZERO, "DMA-FQ");
    vec![
        ExpectedHost::new("snp-identity-6.14", refused).all(&gpus, Verdict::Broken, "PW0205"),
        ExpectedHost::new("snp-identity-7.3", allowed).all(&gpus, Verdict::Works, None),
    ]
}

/// The event that every DMA of such a device gives, and what the driver then says.
fn illegal_entry(host: &mut HostBuilder, gpu: PciAddress) {
    let unit = if gpu.bus() < 0x80 { "ivhd0" } else { "ivhd1" };
    let log = host.log().at(412_000_000);
    log.line(
        ERROR,
        format!(
            "iommu {unit}: AMD-Vi: Event logged [ILLEGAL_DEV_TABLE_ENTRY device={gpu} \
             pasid=0x00000 address=0x1052ac000 flags=0x0000]"
        ),
    );
    let words = ["6000000000000003", "0000000000000001", "2000000108b3e013", "0000000000000000"];
    for (index, word) in words.iter().enumerate() {
        log.line(ERROR, format!("AMD-Vi: DTE[{index}]: {word}"));
    }
    log.line(ERROR, format!("NVRM: GPU {gpu}: RmInitAdapter failed! (0x62:0x65:1938)"));
    log.line(ERROR, format!("NVRM: GPU {gpu}: rm_init_adapter failed, device minor number 0"));
}
