//! Kernel 6.8, which gives translated devices a table of DMA operations, with each build of
//! NVIDIA's driver; two GPUs on root ports of an EPYC, groups translated.
//!
//! | host | from, to | verdict |
//! |---|---|---|
//! | `kernel-6.8-closed` | both ways | works: peer memory is mapped (unverified on hardware) |
//! | `kernel-6.8-open` | both ways | works, the same way |
//! | `kernel-6.8-no-remap` | both ways | broken: the driver is told not to map peer memory |
//! | `kernel-6.8-fork` | both ways | broken: the fork uses raw addresses on every kernel |
//! | `geforce-stock` | both ways | broken: the stock driver offers none on this board |

use super::on_root_ports;
use crate::build::function::{EPYC_ROOT_PORT, Function};
use crate::build::model::{A6000, Model, RTX_4090};
use crate::build::{HostBuilder, Iommu, NvidiaFlavour, cpu, kernels};
use crate::expect::{ExpectedHost, Verdict};

pub(super) fn expected() -> Vec<ExpectedHost> {
    use NvidiaFlavour::{Closed, Fork, Open};
    let mapped = (Verdict::Works, "PW0204");
    vec![
        host("kernel-6.8-closed", ("535.274.02", Closed), &A6000, None, mapped),
        host("kernel-6.8-open", ("570.195.03", Open), &A6000, None, mapped),
        host(
            "kernel-6.8-no-remap",
            ("570.195.03", Open),
            &A6000,
            Some(("DmaRemapPeerMmio", "0")),
            (Verdict::Broken, "PW0201"),
        ),
        host("kernel-6.8-fork", ("570.148.08", Fork), &RTX_4090, None, (Verdict::Broken, "PW0201")),
        host("geforce-stock", ("570.195.03", Open), &RTX_4090, None, (Verdict::Broken, "PW0209")),
    ]
}

fn host(
    name: &'static str,
    (version, flavour): (&'static str, NvidiaFlavour),
    model: &Model,
    param: Option<(&'static str, &str)>,
    (verdict, code): (Verdict, &'static str),
) -> ExpectedHost {
    let mut host = HostBuilder::new(name, kernels::UBUNTU_6_8, cpu::EPYC_9334);
    host.iommu(Iommu::AMD, "DMA-FQ").nvidia(version, flavour);
    if let Some((key, value)) = param {
        host.nvidia_param(key, value);
    }
    let gpu = Function::of(model).driver("nvidia");
    let gpus = on_root_ports(&mut host, EPYC_ROOT_PORT, &[0x20, 0xa0], &gpu);
    ExpectedHost::new(name, host).all(&gpus, verdict, code)
}
