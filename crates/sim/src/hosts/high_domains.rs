//! PCI domains above `ffff`, as volume-management devices and some Arm and Hyper-V hosts number
//! them: one GPU on each, same bus and device numbers, told apart by the domain alone.
//!
//! | host | from, to | verdict |
//! |---|---|---|
//! | `high-domains` | first → second | works: identity |
//! | | second → first | broken: translated |

use crate::build::function::{Function, Port, XEON_ROOT_PORT};
use crate::build::model::L40S;
use crate::build::{HostBuilder, Iommu, NvidiaFlavour, cpu, kernels};
use crate::expect::{ExpectedHost, Verdict};

pub(super) fn expected() -> Vec<ExpectedHost> {
    let mut host = HostBuilder::new("high-domains", kernels::DEBIAN_6_12, cpu::XEON_8480);
    host.iommu(Iommu::INTEL, "DMA-FQ").nvidia("570.195.03", NvidiaFlavour::Open);
    let mut slot = |domain, word| {
        let root = host.root_bus(domain, 0xe0, 0);
        let port = host.port(root, Port::root(XEON_ROOT_PORT, 1, 0xe1));
        host.device(port, Function::of(&L40S).driver("nvidia").domain(word))
    };
    let first = [slot(0x1_0000, "identity")];
    let second = [slot(0x1_0001, "DMA-FQ")];
    vec![
        ExpectedHost::new("high-domains", host).pairs(&first, &second, Verdict::Works, None).pairs(
            &second,
            &first,
            Verdict::Broken,
            "PW0201",
        ),
    ]
}
