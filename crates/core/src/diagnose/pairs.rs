//! Which ordered pairs are judged.

use std::collections::BTreeMap;

use crate::judge::measured::correct;
use crate::judge::{Pair, judge};
use crate::snapshot::Snapshot;
use crate::snapshot::pci::PciDevice;
use crate::snapshot::tenant::{TenantId, TenantKind};

/// Which devices make pairs.
#[derive(Clone, Copy, Debug, Default)]
pub struct PairScope {
    /// Pairs across tenants too.
    pub across_tenants: bool,
    /// Network controllers as requesters.
    pub nics: bool,
    /// NVMe controllers as requesters.
    pub nvme: bool,
}

/// Judges every ordered pair of the scope, ordered by requester and target.
///
/// GPUs and declared accelerators pair within a tenant; network and NVMe controllers are
/// requesters of GPUs' memory. A controller of the host serves its containers too.
pub fn judge_all(snapshot: &Snapshot, scope: &PairScope) -> Vec<Pair> {
    let targets: Vec<(&PciDevice, Option<TenantId>)> = snapshot
        .accelerated()
        .into_iter()
        .map(|device| (device, snapshot.tenant_of(device)))
        .collect();
    let mut by_tenant: BTreeMap<&Option<TenantId>, Vec<&PciDevice>> = BTreeMap::new();
    for (device, tenant) in &targets {
        by_tenant.entry(tenant).or_default().push(device);
    }
    let mut pairs = Vec::new();
    for (from, tenant) in &targets {
        if scope.across_tenants {
            let all = targets.iter().map(|(device, _)| *device);
            push_pairs(snapshot, from, all, &mut pairs);
        } else if let Some(own) = by_tenant.get(tenant) {
            push_pairs(snapshot, from, own.iter().copied(), &mut pairs);
        }
    }
    for from in snapshot
        .devices
        .iter()
        .filter(|device| scope.nics && device.is_nic() || scope.nvme && device.is_nvme())
    {
        let tenant = snapshot.tenant_of(from);
        let reachable = targets
            .iter()
            .filter(|(_, owner)| {
                scope.across_tenants || serves(snapshot, tenant.as_ref(), owner.as_ref())
            })
            .map(|(device, _)| *device);
        push_pairs(snapshot, from, reachable, &mut pairs);
    }
    pairs.sort_by_key(|pair| (pair.from, pair.to));
    pairs
}

fn push_pairs<'a>(
    snapshot: &Snapshot,
    from: &PciDevice,
    targets: impl Iterator<Item = &'a PciDevice>,
    pairs: &mut Vec<Pair>,
) {
    for to in targets.filter(|to| to.address != from.address) {
        pairs.push(judge_one(snapshot, from, to));
    }
}

/// The verdict on one ordered pair: as measured where that still holds, else as predicted.
pub fn judge_one(snapshot: &Snapshot, from: &PciDevice, to: &PciDevice) -> Pair {
    let mut pair = judge(snapshot, from, to);
    if let Some(measured) = snapshot.measured.known() {
        correct(measured, &mut pair);
    }
    pair
}

/// Whether a controller of one tenant works for another: its own, or the host's for everything
/// that runs on the host's kernel.
fn serves(snapshot: &Snapshot, tenant: Option<&TenantId>, owner: Option<&TenantId>) -> bool {
    if tenant == owner {
        return true;
    }
    let on_host_kernel = owner
        .as_ref()
        .and_then(|owner| snapshot.tenant(owner))
        .is_some_and(|owner| owner.kind != TenantKind::Vm);
    tenant == Some(&TenantId::host()) && on_host_kernel
}
