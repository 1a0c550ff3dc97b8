//! A two-socket Xeon with two L40S on root ports of two host bridges, kernel 6.12, VT-d on.
//!
//! | host | from, to | verdict |
//! |---|---|---|
//! | `intel-translated` | both ways | broken: raw addresses under translation |
//! | `intel-identity` | both ways | works |
//! | `intel-mixed` | identity → translated | works: the requester's own group decides |
//! | | translated → identity | broken |
//! | `intel-unlisted` | both ways | unknown: whether the driver offers it on a board of no list |

use peerway_core::address::PciAddress;

use crate::build::function::{Function, Port, XEON_ROOT_PORT};
use crate::build::model::{L40S, Model};
use crate::build::{HostBuilder, Iommu, NvidiaFlavour, cpu, kernels};
use crate::expect::{ExpectedHost, Verdict};

/// A board that came after every list.
const UNLISTED: Model = Model { name: "NVIDIA Graphics Device", device: 0x3fff, ..L40S };

pub(super) fn expected() -> Vec<ExpectedHost> {
    let (translated, gpus) = host("intel-translated", &L40S, ["DMA-FQ"; 2]);
    let (identity, _) = host("intel-identity", &L40S, ["identity"; 2]);
    let (unlisted, _) = host("intel-unlisted", &UNLISTED, ["identity"; 2]);
    let (mixed, _) = host("intel-mixed", &L40S, ["identity", "DMA-FQ"]);
    let (first, second) = gpus.split_at(1);
    vec![
        ExpectedHost::new("intel-translated", translated).all(&gpus, Verdict::Broken, "PW0201"),
        ExpectedHost::new("intel-identity", identity).all(&gpus, Verdict::Works, None),
        ExpectedHost::new("intel-unlisted", unlisted).all(&gpus, Verdict::Unknown, "PW0215"),
        ExpectedHost::new("intel-mixed", mixed).pairs(first, second, Verdict::Works, None).pairs(
            second,
            first,
            Verdict::Broken,
            "PW0201",
        ),
    ]
}

fn host(
    name: &str,
    model: &'static Model,
    domains: [&'static str; 2],
) -> (HostBuilder, Vec<PciAddress>) {
    let mut host = HostBuilder::new(name, kernels::DEBIAN_6_12, cpu::XEON_8480);
    host.iommu(Iommu::INTEL, "DMA-FQ")
        .command_line("root=/dev/nvme0n1p2 ro intel_iommu=on")
        .nvidia("570.195.03", NvidiaFlavour::Open)
        .firmware_tables();
    host.nodes(2);
    let sockets = [(0x15, 0), (0x97, 1)];
    let slot = |((bus, node), domain)| {
        let root = host.root_bus(0, bus, node);
        let port = host.port(root, Port::root(XEON_ROOT_PORT, 1, bus + 1));
        host.device(port, Function::of(model).driver("nvidia").domain(domain))
    };
    let gpus = sockets.into_iter().zip(domains).map(slot).collect();
    (host, gpus)
}
