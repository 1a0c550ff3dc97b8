//! EPYC with two L40S on root ports, groups translated, SME active or not. What matters is
//! whether an entry for peer memory carries the encryption bit; drivers that have peer memory
//! mapped show it, stock NVIDIA up to 6.11 and amdgpu on any kernel.
//!
//! | host | from, to | verdict |
//! |---|---|---|
//! | `sme-6.8` | both ways | broken: mapped, and the entry carries the bit |
//! | `sme-off-6.8` | both ways | works: the same without SME |
//! | `sme-amdgpu-6.14` | both ways | broken: before the fix |
//! | `sme-amdgpu-7.0` | both ways | works: with the fix |

use super::on_root_ports;
use crate::build::function::{EPYC_ROOT_PORT, Function};
use crate::build::model::{L40S, MI210, Model};
use crate::build::{Encryption, HostBuilder, Iommu, NvidiaFlavour, cpu, kernels};
use crate::expect::{ExpectedHost, Verdict};

pub(super) fn expected() -> Vec<ExpectedHost> {
    let broken = (Verdict::Broken, Some("PW0206"));
    vec![
        host("sme-6.8", kernels::UBUNTU_6_8, true, &L40S, broken),
        host("sme-off-6.8", kernels::UBUNTU_6_8, false, &L40S, (Verdict::Works, Some("PW0204"))),
        host("sme-amdgpu-6.14", kernels::PVE_6_14, true, &MI210, broken),
        host("sme-amdgpu-7.0", kernels::PVE_7_0, true, &MI210, (Verdict::Works, None)),
    ]
}

fn host(
    name: &'static str,
    kernel: &str,
    sme: bool,
    model: &Model,
    (verdict, code): (Verdict, Option<&'static str>),
) -> ExpectedHost {
    let mut host = HostBuilder::new(name, kernel, cpu::EPYC_9334);
    let words = if sme { " mem_encrypt=on" } else { "" };
    host.iommu(Iommu::AMD, "DMA-FQ")
        .command_line(&format!("root=/dev/md0 ro{words}"))
        .encryption(Encryption { sme, sev: true, snp: false });
    let driver = if model.vendor == 0x10de { "nvidia" } else { "amdgpu" };
    if driver == "nvidia" {
        host.nvidia("570.195.03", NvidiaFlavour::Open);
    }
    let gpu = Function::of(model).driver(driver);
    let gpus = on_root_ports(&mut host, EPYC_ROOT_PORT, &[0x20, 0xa0], &gpu);
    ExpectedHost::new(name, host).all(&gpus, verdict, code)
}
