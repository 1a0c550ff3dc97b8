//! GPUs of other makers, whose drivers have the kernel map peer memory.
//!
//! | host | from, to | verdict |
//! |---|---|---|
//! | `amd-gpus` (EPYC, identity) | both ways | works |
//! | `amd-gpus-translated` (EPYC) | both ways | works: mapped by the kernel |
//! | `intel-gpus` (Xeon, translated) | both ways | works: mapped, and the host bridges forward |
//! | `mixed-makers` | NVIDIA → AMD and back | unknown: neither driver is known to reach the other's memory |

use super::on_root_ports;
use crate::build::function::{EPYC_ROOT_PORT, Function, XEON_ROOT_PORT};
use crate::build::model::{L40S, MAX_1100, MI210};
use crate::build::{HostBuilder, Iommu, NvidiaFlavour, cpu, kernels};
use crate::expect::{ExpectedHost, Verdict};

pub(super) fn expected() -> Vec<ExpectedHost> {
    vec![
        amd("amd-gpus", "identity", "root=/dev/md0 ro iommu=pt"),
        amd("amd-gpus-translated", "DMA-FQ", "root=/dev/md0 ro"),
        intel(),
        mixed(),
    ]
}

fn amd(name: &'static str, domain: &'static str, words: &str) -> ExpectedHost {
    let mut host = HostBuilder::new(name, kernels::DEBIAN_6_12, cpu::EPYC_9334);
    host.iommu(Iommu::AMD, domain).command_line(words);
    let gpu = Function::of(&MI210).driver("amdgpu");
    let gpus = on_root_ports(&mut host, EPYC_ROOT_PORT, &[0x20, 0xa0], &gpu);
    ExpectedHost::new(name, host).all(&gpus, Verdict::Works, None)
}

fn intel() -> ExpectedHost {
    let mut host = HostBuilder::new("intel-gpus", kernels::DEBIAN_6_12, cpu::XEON_8480);
    host.iommu(Iommu::INTEL, "DMA-FQ");
    let gpu = Function::of(&MAX_1100).driver("xe");
    let gpus = on_root_ports(&mut host, XEON_ROOT_PORT, &[0x15, 0x97], &gpu);
    ExpectedHost::new("intel-gpus", host).all(&gpus, Verdict::Works, None)
}

fn mixed() -> ExpectedHost {
    let mut host = HostBuilder::new("mixed-makers", kernels::DEBIAN_6_12, cpu::EPYC_9334);
    host.iommu(Iommu::AMD, "DMA-FQ").nvidia("570.195.03", NvidiaFlavour::Open);
    let nvidia = Function::of(&L40S).driver("nvidia");
    let amd = Function::of(&MI210).driver("amdgpu");
    let nvidia = on_root_ports(&mut host, EPYC_ROOT_PORT, &[0x20], &nvidia);
    let amd = on_root_ports(&mut host, EPYC_ROOT_PORT, &[0xa0], &amd);
    ExpectedHost::new("mixed-makers", host).between(&nvidia, &amd, Verdict::Unknown, None)
}
