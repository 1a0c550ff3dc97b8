//! An Arm server with two L40S behind an SMMUv3, kernel 6.12.
//!
//! | host | from, to | verdict |
//! |---|---|---|
//! | `arm-smmu` | both ways | broken: raw addresses under translation |
//! | `arm-smmu-identity` | both ways | unknown: whether this root complex forwards is not known |

use super::on_root_ports;
use crate::build::function::{ARM_ROOT_PORT, Function};
use crate::build::model::L40S;
use crate::build::{HostBuilder, Iommu, NvidiaFlavour, cpu, kernels};
use crate::expect::{ExpectedHost, Verdict};

pub(super) fn expected() -> Vec<ExpectedHost> {
    vec![
        host("arm-smmu", "DMA-FQ", Verdict::Broken, "PW0201"),
        host("arm-smmu-identity", "identity", Verdict::Unknown, "PW0203"),
    ]
}

fn host(
    name: &'static str,
    domain: &'static str,
    verdict: Verdict,
    code: &'static str,
) -> ExpectedHost {
    let mut host = HostBuilder::new(name, kernels::DEBIAN_6_12, cpu::ALTRA);
    host.iommu(Iommu::Smmu, domain).nvidia("570.195.03", NvidiaFlavour::Open);
    if domain == "identity" {
        host.command_line("root=/dev/nvme0n1p2 ro iommu.passthrough=1");
    }
    let gpu = Function::of(&L40S).driver("nvidia");
    let gpus = on_root_ports(&mut host, ARM_ROOT_PORT, &[0x20, 0x40], &gpu);
    ExpectedHost::new(name, host).all(&gpus, verdict, code)
}
