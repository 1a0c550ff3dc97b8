//! An EPYC whose operator wrote `iommu=soft` and believes the IOMMU off: it is on and translates.
//!
//! | host | from, to | verdict |
//! |---|---|---|
//! | `iommu-soft` | both ways | broken: `soft` asks for bounce buffers and switches nothing off |

use super::on_root_ports;
use crate::build::function::{EPYC_ROOT_PORT, Function};
use crate::build::model::L40S;
use crate::build::{HostBuilder, Iommu, NvidiaFlavour, cpu, kernels};
use crate::expect::{ExpectedHost, Verdict};

pub(super) fn expected() -> Vec<ExpectedHost> {
    let mut host = HostBuilder::new("iommu-soft", kernels::DEBIAN_6_12, cpu::EPYC_9334);
    host.iommu(Iommu::AMD, "DMA-FQ")
        .command_line("root=/dev/md0 ro iommu=soft")
        .nvidia("570.195.03", NvidiaFlavour::Closed);
    let gpu = Function::of(&L40S).driver("nvidia");
    let gpus = on_root_ports(&mut host, EPYC_ROOT_PORT, &[0x20, 0xa0], &gpu);
    vec![ExpectedHost::new("iommu-soft", host).all(&gpus, Verdict::Broken, "PW0201")]
}
