//! Host trees of any size, for benchmarks of readers.

use peerway_core::address::PciAddress;

use crate::build::function::{ACS_CLEAR, ACS_REDIRECT, EPYC_ROOT_PORT, Function, PEX89, Port};
use crate::build::model::{CONNECTX7, H100_SXM, NVME};
use crate::build::{Bus, HostBuilder, Iommu, NvidiaFlavour, cpu, kernels};

/// Functions of one slot: root port, upstream port, four downstream ports, four endpoints.
const SLOT: u32 = 10;
/// Slots below one root bus; each takes six bus numbers.
const SLOTS_PER_ROOT: u32 = 8;
/// Functions that a root bus brings along: host bridge and IOMMU.
const ROOT: u32 = 2;

/// A host with exactly this many PCI functions (at least 12), ten to an IOMMU group: one GPU, two
/// network adapters and an NVMe drive below each switch, eight switches to a root bus, each root
/// bus in a PCI domain of its own. Every other switch redirects.
pub fn host(devices: u32) -> HostBuilder {
    let mut host = HostBuilder::new("benchmark", kernels::PVE_6_14, cpu::EPYC_9334);
    host.iommu(Iommu::AMD, "DMA-FQ").nvidia("580.95.05", NvidiaFlavour::Open);
    let mut left = devices;
    let mut group = 0;
    let mut domain = 0;
    while left >= ROOT + SLOT {
        let root = host.root_bus(domain, 0, i32::from(domain % 2 == 1));
        left -= ROOT;
        for index in 0..SLOTS_PER_ROOT.min(left / SLOT) {
            slot(&mut host, root, index, group);
            left -= SLOT;
            group += 1;
        }
        // What is left after the last full slot hangs from the last root bus.
        if left < ROOT + SLOT {
            rest(&mut host, root, left, group);
            left = 0;
        }
        domain += 1;
    }
    host
}

fn slot(host: &mut HostBuilder, root: Bus, index: u32, group: u32) {
    // At most eight slots of six buses: numbers stay below 256.
    let index = u8::try_from(index).unwrap_or(0);
    let first = 1 + index * 6;
    let acs = if group.is_multiple_of(2) { ACS_REDIRECT } else { ACS_CLEAR };
    let port = Port::root(EPYC_ROOT_PORT, 1 + index, first).function(1).group(group);
    let port = host.port(root, port);
    let below: Vec<Port> = (0..4)
        .map(|port| Port::downstream(PEX89, port, first + 2 + port).acs(acs).group(group))
        .collect();
    let slots = host.switch(port, Port::upstream(PEX89, first + 1).group(group), &below);
    let functions = [
        Function::of(&H100_SXM).driver("nvidia"),
        Function::of(&CONNECTX7).driver("mlx5_core"),
        Function::of(&CONNECTX7).driver("mlx5_core"),
        Function::of(&NVME).driver("nvme"),
    ];
    for (bus, function) in slots.into_iter().zip(functions) {
        host.device(bus, function.group(group));
    }
}

fn rest(host: &mut HostBuilder, root: Bus, count: u32, group: u32) {
    for index in 0..count {
        let device = 0x10 + u8::try_from(index / 8).unwrap_or(0);
        let function = u8::try_from(index % 8).unwrap_or(0);
        let nic = Function::of(&CONNECTX7).at(device, function).driver("mlx5_core");
        let _: PciAddress = host.device(root, nic.group(group));
    }
}
