//! A Ryzen workstation whose ports have no access control: the kernel put both GPUs, their audio
//! functions and the ports into one group, which is translated.
//!
//! | host | from, to | verdict |
//! |---|---|---|
//! | `one-group` | both ways | broken: one domain for both holds no entry for either's memory |

use crate::build::function::{EPYC_ROOT_PORT, Function, Port, PortModel};
use crate::build::model::{A6000, NVIDIA_AUDIO};
use crate::build::{HostBuilder, Iommu, NvidiaFlavour, cpu, kernels};
use crate::expect::{ExpectedHost, Verdict};

/// Root port of the desktop chip.
const PORT: PortModel = PortModel { device: 0x14db, ..EPYC_ROOT_PORT };
const GROUP: u32 = 15;

pub(super) fn expected() -> Vec<ExpectedHost> {
    let mut host = HostBuilder::new("one-group", kernels::DEBIAN_6_12, cpu::RYZEN_7950X);
    host.iommu(Iommu::AMD, "DMA-FQ").nvidia("570.195.03", NvidiaFlavour::Open);
    host.host_bridge(0x1022, 0x14d8);
    let root = host.root_bus(0, 0x00, -1);
    let mut gpus = Vec::new();
    for (device, bus) in [(1, 0x01), (3, 0x02)] {
        let port = Port::root(PORT, device, bus).function(1).without_acs().group(GROUP);
        let slot = host.port(root, port);
        let gpu = Function::of(&A6000).driver("nvidia").group(GROUP).reset("flr");
        gpus.push(host.device(slot, gpu));
        let audio = Function::of(&NVIDIA_AUDIO).at(0, 1).driver("snd_hda_intel").group(GROUP);
        host.device(slot, audio);
    }
    vec![ExpectedHost::new("one-group", host).all(&gpus, Verdict::Broken, "PW0201")]
}
