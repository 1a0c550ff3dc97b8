//! An eight-H100 board in a two-socket Xeon: each GPU alone below a switch of its own, beside a
//! network adapter and the switch's management endpoint; four `NVSwitch` chips on further root ports.
//! NVLink cannot be seen without opening a GPU.
//!
//! | host | from, to | verdict |
//! |---|---|---|
//! | `hgx-h100` (`iommu=pt`) | all | works: even if NVLink were down, raw addresses pass |
//! | `hgx-h100-translated` | all | unknown: PCIe would be broken, and NVLink outranks it |

use peerway_core::address::PciAddress;

use super::on_root_ports;
use crate::build::function::{Function, PEX89, Port, XEON_ROOT_PORT};
use crate::build::model::{CONNECTX7, H100_SXM, NVSWITCH, SWITCH_MANAGEMENT};
use crate::build::{HostBuilder, Iommu, NvidiaFlavour, cpu, kernels};
use crate::expect::{ExpectedHost, Verdict};

/// Root buses of the GPUs' switches, four a socket.
const ROOTS: [(u8, i32); 8] =
    [(0x15, 0), (0x26, 0), (0x37, 0), (0x48, 0), (0x97, 1), (0xa7, 1), (0xb7, 1), (0xc7, 1)];

pub(super) fn expected() -> Vec<ExpectedHost> {
    let (pass, gpus) = host("hgx-h100", "identity", "intel_iommu=on iommu=pt");
    let (translated, _) = host("hgx-h100-translated", "DMA-FQ", "intel_iommu=on");
    vec![
        ExpectedHost::new("hgx-h100", pass).all(&gpus, Verdict::Works, None),
        ExpectedHost::new("hgx-h100-translated", translated).all(&gpus, Verdict::Unknown, "PW0218"),
    ]
}

fn host(name: &str, domain: &'static str, words: &str) -> (HostBuilder, Vec<PciAddress>) {
    let mut host = HostBuilder::new(name, kernels::DEBIAN_6_12, cpu::XEON_8480);
    host.nodes(2)
        .iommu(Iommu::INTEL, domain)
        .command_line(&format!("root=/dev/md0 ro {words}"))
        .nvidia("570.195.03", NvidiaFlavour::Open)
        .dmi("board_vendor", "Supermicro")
        .dmi("board_name", "X13DEG-OAD");
    let mut gpus = Vec::new();
    for (bus, node) in ROOTS {
        let root = host.root_bus(0, bus, node);
        let port = host.port(root, Port::root(XEON_ROOT_PORT, 1, bus + 1));
        let below: Vec<Port> =
            (0..3).map(|index| Port::downstream(PEX89, index, bus + 3 + index)).collect();
        let slots = host.switch(port, Port::upstream(PEX89, bus + 2), &below);
        let functions = [
            Function::of(&H100_SXM).driver("nvidia"),
            Function::of(&CONNECTX7).driver("mlx5_core"),
            Function::of(&SWITCH_MANAGEMENT).driver("mpt3sas"),
        ];
        let placed = slots.into_iter().zip(functions);
        let addresses: Vec<PciAddress> =
            placed.map(|(slot, function)| host.device(slot, function)).collect();
        gpus.extend(addresses.first());
    }
    let switches = Function::of(&NVSWITCH).driver("nvidia-nvswitch");
    on_root_ports(&mut host, XEON_ROOT_PORT, &[0x59, 0x6a, 0xd7, 0xe7], &switches);
    (host, gpus)
}
