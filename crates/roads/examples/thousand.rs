//! Prints how long roads and plans take on a host of 1,000 GPUs, eight to a tenant, and how that
//! grows.
//!
//! Run it with `cargo run --release -p peerway-roads --example thousand`.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Instant;

use peerway_core::address::PciAddress;
use peerway_core::diagnose::pairs::{PairScope, judge_all};
use peerway_core::observed::Observed;
use peerway_core::snapshot::driver::GpuInformation;
use peerway_core::snapshot::iommu::Group;
use peerway_core::snapshot::kernel::Tristate;
use peerway_core::snapshot::pci::{PciDevice, RootBus};
use peerway_core::snapshot::tenant::{Claim, Tenant, TenantId, TenantKind};
use peerway_core::snapshot::{OriginKind, Snapshot};
use peerway_read::host::{Request as Look, collect};
use peerway_read::root::Root;
use peerway_roads::{Constraints, Knowledge, Request, RoadId};
use peerway_sim::build::function::{EPYC_ROOT_PORT, Function, Port};
use peerway_sim::build::model::RTX_PRO_6000;
use peerway_sim::build::{BuildError, HostBuilder, Iommu, NvidiaFlavour, cpu, kernels};

/// One tenant's GPUs, on root ports of their own.
fn eight() -> Result<Snapshot, BuildError> {
    let mut host = HostBuilder::new("thousand", kernels::PVE_7_0, cpu::EPYC_9334);
    host.iommu(Iommu::AMD, "DMA-FQ")
        .nvidia("580.95.05", NvidiaFlavour::Open)
        .nvidia_param("RegistryDwords", "RMPcieP2PType=1")
        .first_aperture(0x100_0000_0000);
    for slot in 0..8_u8 {
        let root = host.root_bus(0, slot * 0x20, 0);
        let port = host.port(root, Port::root(EPYC_ROOT_PORT, 1, slot * 0x20 + 1).function(1));
        host.device(port, Function::of(&RTX_PRO_6000).driver("nvidia"));
    }
    let root = Root::recorded(Arc::new(host.tree()?));
    let kind = OriginKind::Simulated;
    let mut snapshot = collect(&root, Look { kind, privileged: true, ..Look::default() });
    snapshot.holders = Observed::Known(Vec::new());
    snapshot.gaps.clear();
    Ok(snapshot)
}

/// The same GPUs in many PCI domains, each domain a tenant's.
fn host(eight: &Snapshot, tenants: u32) -> Snapshot {
    let mut all = eight.clone();
    all.devices.clear();
    all.groups.clear();
    all.tenants.clear();
    all.claims.clear();
    let mut gpus = Vec::new();
    for domain in 0..tenants {
        let moved = |at: PciAddress| {
            PciAddress::new(domain, at.bus(), at.device(), at.function()).unwrap_or(at)
        };
        let first = u32::try_from(all.groups.len()).unwrap_or(u32::MAX);
        all.groups.extend(eight.groups.iter().map(|group| Group {
            id: first + group.id,
            devices: group.devices.iter().copied().map(moved).collect(),
            ..group.clone()
        }));
        all.devices.extend(eight.devices.iter().map(|device| PciDevice {
            address: moved(device.address),
            ancestors: device.ancestors.iter().copied().map(moved).collect(),
            root: RootBus { domain, ..device.root },
            group: device.group.clone().map(|group| first + group),
            ..device.clone()
        }));
        let number = u32::try_from(gpus.len()).unwrap_or(u32::MAX);
        let own = eight.nvidia.gpus.known().into_iter().flatten();
        gpus.extend(own.zip(number..).map(|(gpu, minor)| GpuInformation {
            address: moved(gpu.address),
            minor: Observed::Known(minor),
            ..gpu.clone()
        }));
        let id = TenantId::of(TenantKind::Lxc, &domain.to_string());
        all.tenants.push(Tenant {
            id: id.clone(),
            kind: TenantKind::Lxc,
            name: Observed::Absent,
            confidential: Tristate::No,
            running: Tristate::Yes,
        });
        all.claims.extend(eight.accelerated().into_iter().map(|device| Claim {
            device: moved(device.address),
            tenant: id.clone(),
            source: format!("/etc/pve/lxc/{domain}.conf"),
            active: Tristate::Yes,
        }));
    }
    all.nvidia.gpus = Observed::Known(gpus);
    all
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut out = std::io::stdout().lock();
    let eight = eight()?;
    for tenants in [1, 8, 31, 125] {
        let snapshot = host(&eight, tenants);
        let count = snapshot.accelerated().len();
        let began = Instant::now();
        let pairs = judge_all(&snapshot, &PairScope::default());
        let judged = began.elapsed();
        let (constraints, knowledge) = (Constraints::default(), Knowledge::builtin());
        let (gains, in_force) = (BTreeMap::new(), BTreeMap::new());
        let request = Request {
            snapshot: &snapshot,
            pairs: &pairs,
            constraints: &constraints,
            knowledge: &knowledge,
            gains: &gains,
            in_force: &in_force,
            faults: &[],
        };
        let began = Instant::now();
        let roads = peerway_roads::roads(&request)?;
        let ranked = began.elapsed();
        let began = Instant::now();
        let plan = peerway_roads::plan(&request, RoadId::PeerMap);
        let planned = began.elapsed();
        let steps =
            plan.map_or_else(|error| error.to_string(), |plan| plan.steps.len().to_string());
        writeln!(
            out,
            "{count:5} GPUs  {:6} pairs  judged {judged:9.2?}  roads {ranked:9.2?}  plan \
             {planned:9.2?}  ({} open, steps: {steps})",
            pairs.len(),
            roads.roads.iter().filter(|road| road.reasons().is_empty()).count(),
        )?;
    }
    Ok(())
}
