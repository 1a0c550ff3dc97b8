//! Prints how long roads and plans take on a host of 1,000 GPUs, eight to a tenant, and how that
//! grows.
//!
//! Run it with `cargo run --release -p peerway-roads --example thousand`.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::sync::Arc;
use std::time::Instant;

use peerway_core::diagnose::pairs::{PairScope, judge_all};
use peerway_core::observed::Observed;
use peerway_core::snapshot::kernel::Tristate;
use peerway_core::snapshot::tenant::{Claim, Tenant, TenantId, TenantKind};
use peerway_core::snapshot::{OriginKind, Snapshot};
use peerway_read::host::{Request as Look, collect};
use peerway_read::root::Root;
use peerway_roads::{Constraints, Knowledge, Request, RoadId};
use peerway_sim::build::function::{EPYC_ROOT_PORT, Function, Port};
use peerway_sim::build::model::RTX_PRO_6000;
use peerway_sim::build::{BuildError, HostBuilder, Iommu, NvidiaFlavour, cpu, kernels};

/// GPUs of one tenant.
const PER_TENANT: usize = 8;

fn host(gpus: u32) -> Result<Snapshot, BuildError> {
    let mut host = HostBuilder::new("thousand", kernels::PVE_7_0, cpu::EPYC_9334);
    host.iommu(Iommu::AMD, "DMA-FQ")
        .nvidia("580.95.05", NvidiaFlavour::Open)
        .nvidia_param("RegistryDwords", "RMPcieP2PType=1")
        .first_aperture(0x100_0000_0000);
    for number in 0..gpus {
        let (domain, slot) = (number / 32, u8::try_from(number % 32).unwrap_or(0));
        let root = host.root_bus(domain, slot * 8, 0);
        let port = host.port(root, Port::root(EPYC_ROOT_PORT, 1, slot * 8 + 1).function(1));
        host.device(port, Function::of(&RTX_PRO_6000).driver("nvidia"));
    }
    let root = Root::recorded(Arc::new(host.tree()?));
    let kind = OriginKind::Simulated;
    let mut snapshot = collect(&root, Look { kind, privileged: true, ..Look::default() });
    let gpus: Vec<_> = snapshot.accelerated().iter().map(|device| device.address).collect();
    snapshot.claims.clear();
    snapshot.tenants.clear();
    for (number, own) in gpus.chunks(PER_TENANT).enumerate() {
        let id = TenantId::of(TenantKind::Lxc, &number.to_string());
        snapshot.tenants.push(Tenant {
            id: id.clone(),
            kind: TenantKind::Lxc,
            name: Observed::Absent,
            confidential: Tristate::No,
            running: Tristate::Yes,
        });
        snapshot.claims.extend(own.iter().map(|device| Claim {
            device: *device,
            tenant: id.clone(),
            source: format!("/etc/pve/lxc/{number}.conf"),
            active: Tristate::Yes,
        }));
    }
    snapshot.claims.sort();
    snapshot.holders = Observed::Known(Vec::new());
    snapshot.gaps.clear();
    Ok(snapshot)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut out = std::io::stdout().lock();
    for count in [8, 64, 250, 1_000] {
        let snapshot = host(count)?;
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
