//! A virtual machine with four L40S: no IOMMU of its own, no access control, extended
//! capabilities hidden, GPUs directly on root ports that QEMU made up.
//!
//! | host | from, to | verdict |
//! |---|---|---|
//! | `guest` | all | unknown: the host's IOMMU decides, and cannot be seen from here |

use crate::build::function::{Function, Port, PortModel};
use crate::build::model::L40S;
use crate::build::{HostBuilder, NvidiaFlavour, cpu, kernels};
use crate::expect::{ExpectedHost, Verdict};

/// `pcie-root-port` of QEMU.
const PORT: PortModel = PortModel { vendor: 0x1b36, device: 0x000c };

pub(super) fn expected() -> Vec<ExpectedHost> {
    let mut host = HostBuilder::new("guest", kernels::UBUNTU_6_8, cpu::EPYC_GUEST);
    host.nvidia("570.195.03", NvidiaFlavour::Open).bare_root_buses();
    host.dmi("sys_vendor", "QEMU").dmi("product_name", "Standard PC (Q35 + ICH9, 2009)");
    let root = host.root_bus(0, 0x00, -1);
    let mut gpus = Vec::new();
    for index in 0..4 {
        let slot = host.port(root, Port::root(PORT, 0x10 + index, 1 + index).without_acs());
        let gpu = Function::of(&L40S).driver("nvidia").hidden_capabilities();
        gpus.push(host.device(slot, gpu));
    }
    vec![ExpectedHost::new("guest", host).all(&gpus, Verdict::Unknown, "PW0208")]
}
