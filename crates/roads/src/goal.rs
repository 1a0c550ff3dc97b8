//! Which pairs are to work: one tenant's devices.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use peerway_core::address::PciAddress;
use peerway_core::judge::{Pair, Verdict};
use peerway_core::snapshot::Snapshot;
use peerway_core::snapshot::pci::PciDevice;
use peerway_core::snapshot::tenant::TenantId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::constraint::{ConstraintError, Constraints};

/// The devices whose pairs are to work, and whose they are.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Goal {
    /// The tenant; absent where the devices are of several, or of a guest that was not seen.
    pub tenant: Option<TenantId>,
    /// Requesters, ordered.
    pub devices: Vec<PciAddress>,
    /// Why this is the goal.
    pub reason: String,
}

impl fmt::Display for Goal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let devices: Vec<String> = self.devices.iter().map(ToString::to_string).collect();
        match &self.tenant {
            Some(tenant) => write!(out, "{tenant}: {}", devices.join(" ")),
            None => write!(out, "{}", devices.join(" ")),
        }
    }
}

/// What is known of a tenant's pairs.
#[derive(Default)]
struct Tally<'a> {
    devices: BTreeSet<PciAddress>,
    broken: u64,
    unknown: u64,
    pairs: u64,
    tenant: Option<&'a TenantId>,
    /// Whether any of its devices is driven by this host.
    here: bool,
}

/// Finds the goal; absent where there are no two devices of one tenant.
pub(crate) fn find(
    snapshot: &Snapshot,
    pairs: &[Pair],
    constraints: &Constraints,
) -> Result<Option<Goal>, ConstraintError> {
    let accelerated = snapshot.accelerated();
    let owners: BTreeMap<PciAddress, Option<TenantId>> =
        accelerated.iter().map(|device| (device.address, snapshot.tenant_of(device))).collect();
    if let Some(tenant) = &constraints.tenant
        && snapshot.tenant(tenant).is_none()
        && !owners.values().any(|owner| owner.as_ref() == Some(tenant))
    {
        let known: Vec<String> =
            snapshot.tenants.iter().map(|tenant| tenant.id.to_string()).collect();
        return Err(ConstraintError::NoSuchTenant {
            tenant: tenant.clone(),
            known: known.join(", "),
        });
    }
    if !constraints.devices.is_empty() {
        return named(constraints, &owners).map(Some);
    }
    if let Some(tenant) = &constraints.tenant {
        let devices: Vec<PciAddress> = accelerated
            .iter()
            .filter(|device| {
                owners.get(&device.address).is_some_and(|one| one.as_ref() == Some(tenant))
            })
            .map(|device| device.address)
            .collect();
        let reason = "the tenant that was asked for".to_owned();
        return Ok((!devices.is_empty()).then(|| Goal {
            tenant: Some(tenant.clone()),
            devices,
            reason,
        }));
    }
    Ok(by_need(&accelerated, &owners, pairs))
}

fn named(
    constraints: &Constraints,
    owners: &BTreeMap<PciAddress, Option<TenantId>>,
) -> Result<Goal, ConstraintError> {
    let mut tenants = BTreeSet::new();
    for device in &constraints.devices {
        let owner = owners.get(device).ok_or(ConstraintError::NoSuchDevice(*device))?;
        if let Some(tenant) = &constraints.tenant
            && owner.as_ref() != Some(tenant)
        {
            return Err(ConstraintError::NotTheTenants {
                device: *device,
                owner: owner.as_ref().map_or("nobody seen".to_owned(), ToString::to_string),
                tenant: tenant.clone(),
            });
        }
        tenants.insert(owner.clone());
    }
    let only = if tenants.len() == 1 { tenants.into_iter().next().flatten() } else { None };
    Ok(Goal {
        tenant: only,
        devices: constraints.devices.iter().copied().collect(),
        reason: "the devices that were asked for".to_owned(),
    })
}

/// The tenant with the most broken pairs; without any, the most unknown; without any, the most
/// pairs. What is decided in a guest is nobody's to change here, so that others go before it. Equals
/// go by name, so that the order of devices does not matter.
fn by_need(
    accelerated: &[&PciDevice],
    owners: &BTreeMap<PciAddress, Option<TenantId>>,
    pairs: &[Pair],
) -> Option<Goal> {
    let mut tallies: BTreeMap<&Option<TenantId>, Tally<'_>> = BTreeMap::new();
    for device in accelerated {
        let owner = owners.get(&device.address)?;
        let tally = tallies.entry(owner).or_default();
        tally.tenant = owner.as_ref();
        tally.devices.insert(device.address);
        tally.here |= !device.is_vfio();
    }
    for pair in pairs {
        let (Some(from), Some(to)) = (owners.get(&pair.from), owners.get(&pair.to)) else {
            continue;
        };
        if from != to {
            continue;
        }
        if let Some(tally) = tallies.get_mut(from) {
            tally.pairs += 1;
            match pair.verdict {
                Verdict::Broken => tally.broken += 1,
                Verdict::Unknown => tally.unknown += 1,
                Verdict::Works | Verdict::Impaired => {}
            }
        }
    }
    let tally = tallies.into_values().filter(|tally| tally.pairs > 0).min_by_key(|tally| {
        // A tenant that was seen goes before devices of a guest that was not.
        (
            std::cmp::Reverse((
                tally.broken,
                tally.tenant.is_some(),
                tally.here,
                tally.unknown,
                tally.pairs,
            )),
            tally.tenant,
        )
    })?;
    let reason = match (tally.broken, tally.unknown) {
        (0, 0) => "the tenant with the most pairs; none of them is broken".to_owned(),
        (0, unknown) => format!("the tenant with the most undecided pairs ({unknown})"),
        (broken, _) => format!("the tenant with the most broken pairs ({broken})"),
    };
    Some(Goal {
        tenant: tally.tenant.cloned(),
        devices: tally.devices.into_iter().collect(),
        reason,
    })
}
