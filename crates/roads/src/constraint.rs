//! What the operator wants and forbids, and what holds unless it is lifted.

use std::collections::BTreeSet;

use peerway_core::address::PciAddress;
use peerway_core::snapshot::kernel::Tristate;
use peerway_core::snapshot::tenant::TenantId;
use schemars::JsonSchema;
use serde::Serialize;
use thiserror::Error;

use crate::id::RoadId;
use crate::scene::Scene;
use crate::service::Service;

/// Wishes and limits. The default asks for nothing, forbids nothing, and lifts nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Constraints {
    /// Whose pairs are to work; default: the tenant with broken pairs.
    pub tenant: Option<TenantId>,
    /// Which devices; default: all of the tenant's.
    pub devices: BTreeSet<PciAddress>,
    /// The road that was asked for.
    pub asked: Option<RoadId>,
    /// Tenants to name as protected. All other tenants are protected anyhow; a goal that is
    /// named here closes every road that changes anything.
    pub protect: BTreeSet<TenantId>,
    /// No reboot, whoever runs here.
    pub no_reboot: bool,
    /// SNP stays, whoever uses it.
    pub keep_snp: bool,
    /// Roads that are not to be walked.
    pub exclude: BTreeSet<RoadId>,
    /// Defaults that the operator lifts.
    pub lifted: Lifted,
    /// What the operator accepts or vouches for.
    pub accepted: Accepted,
    /// How the goal's processes are stopped.
    pub stop: Stop,
}

/// Constraints that hold by default and can be lifted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lifted {
    /// A reboot is allowed although other tenants run.
    pub reboot: bool,
    /// SNP may go although a confidential tenant exists.
    pub snp: bool,
}

/// What the operator accepts or vouches for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accepted {
    /// A lost race while unbinding may cost a reboot of the host.
    pub unbind_hazard: bool,
    /// The module is signed with a key that this host trusts.
    pub module_signed: bool,
}

/// How the goal's processes are stopped before anything changes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Stop {
    /// The goal's own container, where it is one that can be stopped by name.
    #[default]
    Tenant,
    /// These, by name.
    Named(Vec<Service>),
    /// The operator does it; the plan begins without.
    Operator,
}

/// A constraint that names what is not there, or contradicts another.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum ConstraintError {
    /// No such tenant.
    #[error("there is no tenant {tenant} on this host; there are: {known}")]
    NoSuchTenant {
        /// What was named.
        tenant: TenantId,
        /// Those that there are.
        known: String,
    },
    /// No such device.
    #[error("there is no GPU or declared accelerator {0} on this host")]
    NoSuchDevice(PciAddress),
    /// A device that is not the named tenant's.
    #[error("{device} belongs to {owner} and not to {tenant}; name devices of one tenant")]
    NotTheTenants {
        /// The device.
        device: PciAddress,
        /// Whose it is.
        owner: String,
        /// Whose it was said to be.
        tenant: TenantId,
    },
    /// A service of another tenant was to be stopped.
    #[error("stopping {service} would stop {tenant}, which is not the goal: it is protected")]
    StopsAnother {
        /// What was named.
        service: Service,
        /// Whom it would hit.
        tenant: String,
    },
}

/// One constraint that holds, for the head of the result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct HeldConstraint {
    /// `goal`, `protect`, `no-reboot`, `keep-snp`, `exclude`.
    pub name: String,
    /// What it says here.
    pub value: String,
    /// Whether it was asked for or holds by default.
    pub origin: Origin,
    /// Why it holds, or what would lift it.
    pub reason: String,
}

/// Where a constraint comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// The operator asked for it.
    Asked,
    /// It holds unless lifted.
    Default,
}

/// Whether a reboot is forbidden, and why.
pub(crate) fn no_reboot(scene: &Scene<'_>) -> Option<(Origin, String)> {
    if scene.constraints().no_reboot {
        return Some((Origin::Asked, "no reboot was asked for".to_owned()));
    }
    if scene.constraints().lifted.reboot {
        return None;
    }
    let running: Vec<String> = scene
        .others()
        .filter(|tenant| tenant.running != Tristate::No && tenant.id != TenantId::host())
        .map(|tenant| match tenant.running {
            Tristate::Unknown => format!("{} (perhaps)", tenant.id),
            Tristate::Yes | Tristate::No => tenant.id.to_string(),
        })
        .collect();
    (!running.is_empty())
        .then(|| (Origin::Default, format!("a reboot would stop {}", running.join(", "))))
}

/// Whether SNP has to stay, and why.
pub(crate) fn keep_snp(scene: &Scene<'_>) -> Option<(Origin, String)> {
    if scene.constraints().keep_snp {
        return Some((Origin::Asked, "SNP is to be kept".to_owned()));
    }
    if scene.constraints().lifted.snp
        || scene.snapshot().memory_encryption.snp.state == Tristate::No
    {
        return None;
    }
    let confidential: Vec<String> = scene
        .snapshot()
        .tenants
        .iter()
        .filter(|tenant| tenant.confidential != Tristate::No)
        .map(|tenant| match tenant.confidential {
            Tristate::Unknown => format!("{} (perhaps)", tenant.id),
            Tristate::Yes | Tristate::No => tenant.id.to_string(),
        })
        .collect();
    (!confidential.is_empty()).then(|| {
        (Origin::Default, format!("{} needs it: its memory is encrypted", confidential.join(", ")))
    })
}

/// All constraints that hold, for the head of the result.
pub(crate) fn held(scene: &Scene<'_>) -> Vec<HeldConstraint> {
    let constraints = scene.constraints();
    let mut held = Vec::new();
    let mut push = |name: &str, value: String, origin, reason: String| {
        held.push(HeldConstraint { name: name.to_owned(), value, origin, reason });
    };
    if let Some(goal) = scene.goal() {
        let asked = constraints.tenant.is_some() || !constraints.devices.is_empty();
        let origin = if asked { Origin::Asked } else { Origin::Default };
        push("goal", goal.to_string(), origin, goal.reason.clone());
    }
    let protected: Vec<String> = scene.protected().iter().map(ToString::to_string).collect();
    if !protected.is_empty() {
        let origin = if constraints.protect.is_empty() { Origin::Default } else { Origin::Asked };
        let reason = "no step may touch what they hold or claim".to_owned();
        push("protect", protected.join(", "), origin, reason);
    }
    if let Some((origin, reason)) = no_reboot(scene) {
        push("no-reboot", "no reboot".to_owned(), origin, reason);
    }
    if let Some((origin, reason)) = keep_snp(scene) {
        push("keep-snp", "SNP stays on".to_owned(), origin, reason);
    }
    if !constraints.exclude.is_empty() {
        let roads: Vec<String> = constraints.exclude.iter().map(ToString::to_string).collect();
        push("exclude", roads.join(", "), Origin::Asked, "excluded by the operator".to_owned());
    }
    held
}
