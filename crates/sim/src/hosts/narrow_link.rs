//! Three L40S with identity groups on an EPYC; the link of the third trained with four lanes.
//!
//! | host | from, to | verdict |
//! |---|---|---|
//! | `narrow-link` | between the first two | works |
//! | | to and from the third | impaired: a quarter of its lanes |

use super::on_root_ports;
use crate::build::function::{EPYC_ROOT_PORT, Function};
use crate::build::model::{L40S, Link};
use crate::build::{HostBuilder, Iommu, NvidiaFlavour, cpu, kernels};
use crate::expect::{ExpectedHost, Verdict};

pub(super) fn expected() -> Vec<ExpectedHost> {
    let mut host = HostBuilder::new("narrow-link", kernels::DEBIAN_6_12, cpu::EPYC_9334);
    host.iommu(Iommu::AMD, "identity")
        .command_line("root=/dev/md0 ro iommu=pt")
        .nvidia("570.195.03", NvidiaFlavour::Open);
    let gpu = Function::of(&L40S).driver("nvidia");
    let wide = on_root_ports(&mut host, EPYC_ROOT_PORT, &[0x20, 0x40], &gpu);
    let gpu = gpu.link(Link::GEN4_X4);
    let narrow = on_root_ports(&mut host, EPYC_ROOT_PORT, &[0xa0], &gpu);
    vec![ExpectedHost::new("narrow-link", host).all(&wide, Verdict::Works, None).between(
        &wide,
        &narrow,
        Verdict::Impaired,
        "PW0220",
    )]
}
