//! One host under one set of constraints, with the questions that gates and plans ask of it.

use std::collections::{BTreeMap, BTreeSet};

use peerway_core::address::PciAddress;
use peerway_core::judge::{Pair, Verdict};
use peerway_core::snapshot::Snapshot;
use peerway_core::snapshot::iommu::{Group, IommuVendor};
use peerway_core::snapshot::kernel::Tristate;
use peerway_core::snapshot::pci::PciDevice;
use peerway_core::snapshot::tenant::{Holder, Tenant, TenantId, TenantKind};

use crate::assess::Request;
use crate::constraint::{ConstraintError, Constraints, Stop};
use crate::goal::{self, Goal};
use crate::knowledge::{Knowledge, Situation};
use crate::service::{Manager, Service};

/// A host, a goal and the limits.
#[derive(Debug)]
pub(crate) struct Scene<'a> {
    request: &'a Request<'a>,
    goal: Option<Goal>,
    devices: Vec<&'a PciDevice>,
    pairs: Vec<&'a Pair>,
    protected: BTreeSet<TenantId>,
    stops: Vec<Service>,
}

/// What a function of a group is to the goal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Member {
    /// A bridge: it issues no requests of its own.
    Bridge,
    /// A device of the goal.
    Goal,
    /// Another function of a goal device's slot that nobody else claims.
    Sibling,
    /// A declared memory function of a goal device.
    Memory,
    /// The tenant's own, but no goal device.
    Own,
    /// Somebody else's, or nobody knows whose.
    Foreign(String),
    /// Whose it is depends on something that could not be read.
    Unknown(String),
}

impl<'a> Scene<'a> {
    /// Checks the constraints against the host and finds the goal.
    pub(crate) fn new(request: &'a Request<'a>) -> Result<Self, ConstraintError> {
        let snapshot = request.snapshot;
        let goal = goal::find(snapshot, request.pairs, request.constraints)?;
        let named: BTreeSet<PciAddress> =
            goal.iter().flat_map(|goal| goal.devices.iter().copied()).collect();
        let devices = named.iter().filter_map(|address| snapshot.device(*address)).collect();
        let mut pairs: Vec<&Pair> = request
            .pairs
            .iter()
            .filter(|pair| named.contains(&pair.from) && named.contains(&pair.to))
            .collect();
        pairs.sort_by_key(|pair| (pair.from, pair.to));
        let own = goal.as_ref().and_then(|goal| goal.tenant.clone());
        for tenant in &request.constraints.protect {
            if snapshot.tenant(tenant).is_none() {
                let known: Vec<String> =
                    snapshot.tenants.iter().map(|tenant| tenant.id.to_string()).collect();
                let known = known.join(", ");
                return Err(ConstraintError::NoSuchTenant { tenant: tenant.clone(), known });
            }
        }
        let protected = snapshot
            .tenants
            .iter()
            .map(|tenant| tenant.id.clone())
            .filter(|tenant| {
                Some(tenant) != own.as_ref() || request.constraints.protect.contains(tenant)
            })
            .collect();
        let mut scene = Self { request, goal, devices, pairs, protected, stops: Vec::new() };
        scene.stops = scene.find_stops()?;
        Ok(scene)
    }

    pub(crate) fn snapshot(&self) -> &'a Snapshot {
        self.request.snapshot
    }

    pub(crate) fn constraints(&self) -> &'a Constraints {
        self.request.constraints
    }

    pub(crate) fn knowledge(&self) -> &'a Knowledge {
        self.request.knowledge
    }

    pub(crate) fn request(&self) -> &'a Request<'a> {
        self.request
    }

    pub(crate) fn goal(&self) -> Option<&Goal> {
        self.goal.as_ref()
    }

    /// Requesters of the goal, ordered by address.
    pub(crate) fn devices(&self) -> &[&'a PciDevice] {
        &self.devices
    }

    /// Ordered pairs within the goal.
    pub(crate) fn pairs(&self) -> &[&'a Pair] {
        &self.pairs
    }

    /// Pairs that are not already carried: what a road could cure.
    pub(crate) fn open_pairs(&self) -> impl Iterator<Item = &'a Pair> {
        self.pairs
            .iter()
            .copied()
            .filter(|pair| matches!(pair.verdict, Verdict::Broken | Verdict::Unknown))
    }

    /// The goal's tenant.
    pub(crate) fn tenant(&self) -> Option<&TenantId> {
        self.goal.as_ref()?.tenant.as_ref()
    }

    /// Tenants that no step may touch.
    pub(crate) fn protected(&self) -> &BTreeSet<TenantId> {
        &self.protected
    }

    /// Tenants other than the goal's.
    pub(crate) fn others(&self) -> impl Iterator<Item = &'a Tenant> {
        let own = self.tenant().cloned();
        self.snapshot().tenants.iter().filter(move |tenant| Some(&tenant.id) != own.as_ref())
    }

    /// What is stopped by name before anything changes.
    pub(crate) fn stops(&self) -> &[Service] {
        &self.stops
    }

    pub(crate) fn is_amd(&self) -> bool {
        self.snapshot().iommu_vendor() == Some(IommuVendor::Amd)
    }

    /// Whether the goal's tenant is a virtual machine.
    pub(crate) fn goal_is_guest(&self) -> bool {
        let vm = self
            .tenant()
            .and_then(|tenant| self.snapshot().tenant(tenant))
            .is_some_and(|tenant| tenant.kind == TenantKind::Vm);
        vm || (!self.devices.is_empty() && self.devices.iter().all(|device| device.is_vfio()))
    }

    /// Groups of the goal's devices, by number, with the goal's requesters in each.
    pub(crate) fn groups(&self) -> BTreeMap<u32, (&'a Group, Vec<&'a PciDevice>)> {
        let mut groups = BTreeMap::new();
        for device in &self.devices {
            if let Some(group) = self.snapshot().group_of(device) {
                groups.entry(group.id).or_insert((group, Vec::new())).1.push(*device);
            }
        }
        groups
    }

    /// What a member of a group is to the goal.
    pub(crate) fn member(&self, address: PciAddress) -> Member {
        let Some(device) = self.snapshot().device(address) else {
            return Member::Foreign(format!("{address} is not listed"));
        };
        if device.is_bridge() {
            return Member::Bridge;
        }
        let other = self
            .snapshot()
            .claims_on(address)
            .map(|claim| &claim.tenant)
            .find(|tenant| Some(*tenant) != self.tenant());
        if let Some(other) = other {
            return Member::Foreign(format!("{address} is claimed by {other}"));
        }
        if device.is_vfio() {
            return Member::Foreign(format!("{address} is bound to {}", device.driver));
        }
        if let Some(why) = device.driver.unreadable() {
            return Member::Unknown(format!("driver of {address} = unknown ({why})"));
        }
        if self.devices.iter().any(|one| one.address == address) {
            return Member::Goal;
        }
        let declared = self.snapshot().accelerators.iter().any(|one| {
            one.memory == address && self.devices.iter().any(|goal| goal.address == one.requester)
        });
        if declared {
            return Member::Memory;
        }
        if self.devices.iter().any(|one| one.address.same_device(address)) {
            return Member::Sibling;
        }
        match self.snapshot().tenant_of(device) {
            Some(owner) if Some(&owner) == self.tenant() => Member::Own,
            Some(owner) => Member::Foreign(format!("{address} belongs to {owner}")),
            None => Member::Foreign(format!("nobody knows whose {address} is")),
        }
    }

    /// Goal devices whose driver could not be read: they may be bound to any.
    pub(crate) fn undriven(&self) -> Vec<String> {
        self.devices
            .iter()
            .filter(|device| device.driver.unreadable().is_some())
            .map(|device| format!("driver of {} = {}", device.address, device.driver))
            .collect()
    }

    /// What facts ask about this host.
    pub(crate) fn situation(&self) -> Situation<'a> {
        let snapshot = self.snapshot();
        let boards: Option<Vec<_>> =
            self.devices.iter().map(|device| device.ids.known().copied()).collect();
        Situation {
            kernel: snapshot.kernel.release.known().map(String::as_str),
            driver: snapshot.nvidia.version.known().map(|version| version.version.as_str()),
            boards,
            snp: snapshot.memory_encryption.snp.state,
        }
    }

    /// Whether the kernel lies in the range of a fact; unknown where there is no such fact.
    pub(crate) fn fact(&self, id: &str) -> Tristate {
        self.knowledge().fact(id).map_or(Tristate::Unknown, |fact| fact.applies(&self.situation()))
    }

    /// Kernel release as read, for texts.
    pub(crate) fn kernel_text(&self) -> String {
        format!("/proc/sys/kernel/osrelease = {}", self.snapshot().kernel.release)
    }

    /// Processes that hold a device of the goal.
    pub(crate) fn holders(&self) -> impl Iterator<Item = &'a Holder> {
        let goal: BTreeSet<PciAddress> = self.devices.iter().map(|one| one.address).collect();
        self.snapshot()
            .holders
            .known()
            .into_iter()
            .flatten()
            .filter(move |holder| holder.devices.iter().any(|device| goal.contains(device)))
    }

    fn find_stops(&self) -> Result<Vec<Service>, ConstraintError> {
        match &self.constraints().stop {
            Stop::Operator => Ok(Vec::new()),
            Stop::Tenant => Ok(self.own_container().into_iter().collect()),
            Stop::Named(services) => {
                for service in services {
                    if service.is_shared() {
                        return Err(ConstraintError::StopsAnother {
                            service: service.clone(),
                            tenant: "every tenant that it runs".to_owned(),
                        });
                    }
                    if let Some(tenant) = service.tenant()
                        && !self.is_own(service, &tenant)
                    {
                        return Err(ConstraintError::StopsAnother {
                            service: service.clone(),
                            tenant: tenant.to_string(),
                        });
                    }
                }
                Ok(services.clone())
            }
        }
    }

    /// Whether a named container or machine is the goal's. Runtimes of application containers go
    /// by names that the control group does not show; there only another tenant's number is known.
    fn is_own(&self, service: &Service, tenant: &TenantId) -> bool {
        let kind = self.tenant().and_then(|id| self.snapshot().tenant(id)).map(|one| one.kind);
        match (service.manager, kind) {
            (Manager::Docker | Manager::Podman, Some(TenantKind::Container)) => {
                let others = || self.others().map(|other| other.id.0.as_str());
                // Short numbers are the beginning of long ones.
                service.name.len() < 4 || !others().any(|other| other.starts_with(&tenant.0))
            }
            _ => self.tenant() == Some(tenant),
        }
    }

    /// The goal's container by its manager's name: Proxmox where its file says so, else LXC. The
    /// runtime of an application container does not show, so that one has to be named.
    fn own_container(&self) -> Option<Service> {
        let id = self.tenant()?;
        let tenant = self.snapshot().tenant(id)?;
        if tenant.kind != TenantKind::Lxc || tenant.running == Tristate::No {
            return None;
        }
        // One in which nobody has a device open has nothing to be stopped for.
        let holders = self.snapshot().holders.known();
        if holders.is_some_and(|all| all.iter().all(|holder| holder.tenant != *id)) {
            return None;
        }
        let name = id.0.strip_prefix("lxc:")?;
        let proxmox = self
            .snapshot()
            .claims
            .iter()
            .any(|claim| claim.tenant == *id && claim.source.starts_with("/etc/pve/"));
        let manager = if proxmox { Manager::Pct } else { Manager::Lxc };
        // The same check as for what the operator types.
        format!("{}:{name}", manager.word()).parse().ok()
    }
}
