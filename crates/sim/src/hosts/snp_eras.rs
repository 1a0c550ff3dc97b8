//! An EPYC whose firmware offers SEV-SNP, two RTX PRO 6000 on root ports, all groups translated,
//! SME inactive: one host for each kernel era.
//!
//! | hosts | SNP | from, to | verdict |
//! |---|---|---|---|
//! | `snp-6.8` | not hosted by this kernel | both ways | works: the stock driver has peer memory mapped |
//! | `snp-6.11` | on | both ways | works, the same way |
//! | `snp-6.12` to `snp-7.3` | on | both ways | broken: raw addresses under translation |
//! | `snp-off-by-pt` | off because of `iommu=pt` | both ways | works: identity |

use peerway_core::address::PciAddress;

use super::on_root_ports;
use crate::build::function::{EPYC_ROOT_PORT, Function};
use crate::build::kmsg::{INFO, WARNING};
use crate::build::model::RTX_PRO_6000;
use crate::build::{Encryption, HostBuilder, Iommu, NvidiaFlavour, cpu, kernels};
use crate::expect::{ExpectedHost, Verdict};

pub(super) fn expected() -> Vec<ExpectedHost> {
    let eras = [
        ("snp-6.12", kernels::DEBIAN_6_12),
        ("snp-6.14", kernels::PVE_6_14),
        ("snp-6.17", kernels::PVE_6_17),
        ("snp-6.19.0", kernels::STABLE_6_19_0),
        ("snp-6.19.10", kernels::STABLE_6_19_10),
        ("snp-7.0", kernels::PVE_7_0),
        ("snp-7.3", kernels::STABLE_7_3),
    ];
    let mut all = Vec::new();
    for (name, kernel, snp) in
        [("snp-6.8", kernels::UBUNTU_6_8, false), ("snp-6.11", kernels::PVE_6_11, true)]
    {
        let (builder, gpus) = host(name, kernel, "DMA-FQ", snp);
        all.push(ExpectedHost::new(name, builder).all(&gpus, Verdict::Works, "PW0204"));
    }
    for (name, kernel) in eras {
        let (builder, gpus) = host(name, kernel, "DMA-FQ", true);
        all.push(ExpectedHost::new(name, builder).all(&gpus, Verdict::Broken, "PW0201"));
    }
    let (mut builder, gpus) = host("snp-off-by-pt", kernels::PVE_6_14, "identity", false);
    builder
        .iommu(Iommu::AMD_SNP, "identity")
        .command_line("root=/dev/md0 ro iommu=pt kvm_amd.sev=1");
    builder
        .log()
        .at(0)
        .line(INFO, "SEV-SNP: RMP table physical range [0x0000005fb7400000 - 0x0000005ff77fffff]");
    builder.log().at(1_500_000).line(
        WARNING,
        "AMD-Vi: SNP: IOMMU disabled or configured in passthrough mode, SNP cannot be supported.",
    );
    all.push(ExpectedHost::new("snp-off-by-pt", builder).all(&gpus, Verdict::Works, None));
    all
}

/// Also for the hosts with identity groups.
pub(super) fn host(
    name: &str,
    kernel: &str,
    domain: &'static str,
    snp: bool,
) -> (HostBuilder, Vec<PciAddress>) {
    let mut host = HostBuilder::new(name, kernel, cpu::EPYC_9334);
    host.nodes(2)
        .iommu(Iommu::AMD_SNP, "DMA-FQ")
        .command_line("root=/dev/md0 ro kvm_amd.sev=1")
        .encryption(Encryption { sme: false, sev: true, snp })
        .nvidia("580.95.05", NvidiaFlavour::Open)
        .firmware_tables();
    let gpu = Function::of(&RTX_PRO_6000).driver("nvidia").domain(domain);
    let gpus = on_root_ports(&mut host, EPYC_ROOT_PORT, &[0x20, 0xa0], &gpu);
    (host, gpus)
}
