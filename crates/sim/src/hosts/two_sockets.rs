//! Eight RTX PRO 6000 over two EPYC sockets, four behind one large switch a socket, the IOMMU
//! switched off on the command line, with SMT off: 128 threads are as many as go without x2APIC.
//! Access control was never touched by the kernel and is clear.
//!
//! | host | from, to | verdict |
//! |---|---|---|
//! | `switches-iommu-off` | same switch | works: the request turns there |
//! | | other socket | works: no IOMMU, and the root complex forwards |

use peerway_core::address::PciAddress;

use crate::build::function::{ACS_CLEAR, EPYC_ROOT_PORT, Function, PEX89, Port, PortModel};
use crate::build::model::RTX_PRO_6000;
use crate::build::{HostBuilder, NvidiaFlavour, cpu, kernels};
use crate::expect::{ExpectedHost, Verdict};

pub(super) fn expected() -> Vec<ExpectedHost> {
    let mut host = HostBuilder::new("switches-iommu-off", kernels::UBUNTU_6_8, cpu::EPYC_9575F);
    host.nodes(2)
        .command_line("root=/dev/md0 ro amd_iommu=off")
        .nvidia("580.95.05", NvidiaFlavour::Open);
    let near = socket(&mut host, 0x00, 0);
    let far = socket(&mut host, 0x80, 1);
    vec![
        ExpectedHost::new("switches-iommu-off", host)
            .all(&near, Verdict::Works, "PW0212")
            .all(&far, Verdict::Works, "PW0212")
            .between(&near, &far, Verdict::Works, "PW0105"),
    ]
}

fn socket(host: &mut HostBuilder, bus: u8, node: i32) -> Vec<PciAddress> {
    const ROOT: PortModel = EPYC_ROOT_PORT;
    let root = host.root_bus(0, bus, node);
    let port = host.port(root, Port::root(ROOT, 1, bus + 1).function(1).acs(ACS_CLEAR));
    let below: Vec<Port> = (0..4)
        .map(|index| Port::downstream(PEX89, index, bus + 3 + index).acs(ACS_CLEAR))
        .collect();
    let slots = host.switch(port, Port::upstream(PEX89, bus + 2), &below);
    let gpu = Function::of(&RTX_PRO_6000).driver("nvidia");
    slots.into_iter().map(|slot| host.device(slot, gpu.clone())).collect()
}
