//! A desktop booted with `iommu=pt`, one A6000 inside and one in a Thunderbolt enclosure. The
//! kernel does not trust what is outside, so the outer one translates all the same.
//!
//! | host | from, to | verdict |
//! |---|---|---|
//! | `thunderbolt` | outside → inside | broken: translated despite `iommu=pt` |
//! | | inside → outside | unknown: passes untranslated, and whether this root complex forwards is not known |

use crate::build::function::{Function, Port, PortModel, THUNDERBOLT, XEON_ROOT_PORT};
use crate::build::model::{A6000, Link};
use crate::build::{HostBuilder, Iommu, NvidiaFlavour, cpu, kernels};
use crate::expect::{ExpectedHost, Verdict};

/// Root port of the client chip.
const PORT: PortModel = PortModel { device: 0xa70d, ..XEON_ROOT_PORT };

pub(super) fn expected() -> Vec<ExpectedHost> {
    let mut host = HostBuilder::new("thunderbolt", kernels::DEBIAN_6_12, cpu::CORE_14900HX);
    host.iommu(Iommu::INTEL, "identity")
        .command_line("root=/dev/nvme0n1p2 ro quiet intel_iommu=on iommu=pt")
        .nvidia("570.195.03", NvidiaFlavour::Open)
        .host_bridge(0x8086, 0xa702);
    let root = host.root_bus(0, 0x00, -1);
    let slot = host.port(root, Port::root(PORT, 1, 0x01));
    let inside = host.device(slot, Function::of(&A6000).driver("nvidia"));
    let narrow = Link::GEN3_X4;
    let outer = Port::root(PORT, 7, 0x03).external().link(narrow);
    let outer = host.port(root, outer);
    let enclosure = Port::downstream(THUNDERBOLT, 1, 0x05).link(narrow);
    let upstream = Port::upstream(THUNDERBOLT, 0x04).link(narrow);
    let slots = host.switch(outer, upstream, &[enclosure]);
    let gpu = Function::of(&A6000).driver("nvidia").domain("DMA").link(narrow);
    let outside: Vec<_> = slots.iter().map(|slot| host.device(*slot, gpu.clone())).collect();
    vec![
        ExpectedHost::new("thunderbolt", host)
            .pairs(&outside, &[inside], Verdict::Broken, "PW0201")
            .pairs(&[inside], &outside, Verdict::Unknown, "PW0203"),
    ]
}
