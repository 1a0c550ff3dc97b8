//! Who is on this host, and who says that a device is theirs.
//!
//! Configurations claim devices whether or not anybody holds them now; processes that hold a
//! device claim it by holding it. A configuration that cannot be read is a gap, since it may claim
//! anything.

mod libvirt;
mod lxc;
mod proxmox;

use std::collections::{BTreeMap, BTreeSet};

use peerway_core::address::PciAddress;
use peerway_core::observed::Observed;
use peerway_core::snapshot::Gap;
use peerway_core::snapshot::driver::NvidiaDriver;
use peerway_core::snapshot::iommu::Group;
use peerway_core::snapshot::kernel::Tristate;
use peerway_core::snapshot::pci::PciDevice;
use peerway_core::snapshot::query::class_pair;
use peerway_core::snapshot::tenant::{Claim, Holder, Tenant, TenantId, TenantKind};

use crate::collect::holders::claims;
use crate::collect::holders::nodes::NodeMap;
use crate::error::ReadError;
use crate::parse::cgroup::plain;
use crate::root::Root;

/// Tenants and claims, ordered, and what could not be read.
pub fn collect(
    root: &Root,
    devices: &[PciDevice],
    groups: &[Group],
    holders: &Observed<Vec<Holder>>,
    nvidia: &NvidiaDriver,
) -> (Vec<Tenant>, Vec<Claim>, Vec<Gap>) {
    let nodes = NodeMap::new(root, devices, nvidia);
    let holders = holders.known().map_or(&[][..], Vec::as_slice);
    let look = Look { root, devices, groups, held: Held::by(holders), nodes };
    let mut found = Found::default();
    proxmox::collect(&look, &mut found);
    lxc::collect(&look, &mut found);
    libvirt::collect(&look, &mut found);
    for holder in holders {
        found.holder(holder);
    }
    for claim in claims(holders) {
        found.add(claim);
    }
    if found.is_full() {
        found.gap("configurations of tenants", format!("only {MOST_CLAIMS} claims were kept"));
    }
    found.claims.sort();
    found.claims.dedup();
    if look.host_has_something(&found.claims) {
        found.tenant(&TenantId::host(), TenantKind::Host, Facts::running(Tristate::Yes));
    }
    (found.tenants.into_values().collect(), found.claims, found.gaps)
}

/// Claims on one host: ten times what 10,000 functions have, and a bound for configurations that
/// claim everything many times over.
const MOST_CLAIMS: usize = 100_000;

/// What is looked at.
struct Look<'a> {
    root: &'a Root,
    /// Ordered by address.
    devices: &'a [PciDevice],
    /// Ordered by number.
    groups: &'a [Group],
    held: Held<'a>,
    nodes: NodeMap,
}

/// Who is seen to hold what.
struct Held<'a> {
    tenants: BTreeSet<&'a TenantId>,
    devices: BTreeMap<PciAddress, BTreeSet<&'a TenantId>>,
}

impl<'a> Held<'a> {
    fn by(holders: &'a [Holder]) -> Self {
        let mut devices: BTreeMap<PciAddress, BTreeSet<&TenantId>> = BTreeMap::new();
        for holder in holders {
            for device in &holder.devices {
                devices.entry(*device).or_default().insert(&holder.tenant);
            }
        }
        Self { tenants: holders.iter().map(|holder| &holder.tenant).collect(), devices }
    }

    /// Everybody who holds a device.
    fn holders(&self, device: PciAddress) -> impl Iterator<Item = &'a TenantId> {
        self.devices.get(&device).into_iter().flatten().copied()
    }
}

/// What was found so far.
#[derive(Default)]
struct Found {
    tenants: BTreeMap<TenantId, Tenant>,
    claims: Vec<Claim>,
    gaps: Vec<Gap>,
}

/// What is known of a tenant beside its name in this program.
struct Facts {
    name: Observed<String>,
    confidential: Tristate,
    running: Tristate,
}

impl Facts {
    /// Nothing else known, and no encrypted memory.
    fn running(running: Tristate) -> Self {
        Self { name: Observed::Absent, confidential: Tristate::No, running }
    }
}

impl Found {
    fn tenant(&mut self, id: &TenantId, kind: TenantKind, facts: Facts) {
        let Facts { name, confidential, running } = facts;
        let tenant = Tenant {
            id: id.clone(),
            kind,
            name: name.map(|name| plain(&name)),
            confidential,
            running,
        };
        // The first source knows best: the manager's own configuration comes before generated ones.
        self.tenants.entry(id.clone()).or_insert(tenant);
    }

    fn has(&self, id: &TenantId) -> bool {
        self.tenants.contains_key(id)
    }

    /// A tenant of which only a process is seen.
    fn holder(&mut self, holder: &Holder) {
        if holder.devices.is_empty() || holder.tenant == TenantId::host() {
            return;
        }
        let kind = kind_of(&holder.tenant);
        // A VM's memory may be encrypted; its configuration, which would say so, was not found.
        let confidential = if kind == TenantKind::Vm { Tristate::Unknown } else { Tristate::No };
        let name = Observed::Unreadable("its configuration was not found".to_owned());
        self.tenant(&holder.tenant, kind, Facts { name, confidential, running: Tristate::Yes });
    }

    fn claim(&mut self, device: PciAddress, tenant: &TenantId, source: &str, active: Tristate) {
        if !self.is_full() {
            let source = plain(cut(source));
            self.add(Claim { device, tenant: tenant.clone(), source, active });
        }
    }

    fn add(&mut self, claim: Claim) {
        if !self.is_full() {
            self.claims.push(claim);
        }
    }

    fn is_full(&self) -> bool {
        self.claims.len() >= MOST_CLAIMS
    }

    fn gap(&mut self, source: &str, why: impl Into<String>) {
        self.gaps.push(Gap { source: source.to_owned(), why: why.into() });
    }

    /// The value; absent is no gap, everything else is.
    fn read<T>(&mut self, result: Result<T, ReadError>) -> Option<T> {
        match result {
            Ok(value) => Some(value),
            Err(error) if error.is_absent() => None,
            Err(error) => {
                self.gap(&error.path, error.reason.to_string());
                None
            }
        }
    }
}

/// The front of a line that is longer than anything that names a device.
fn cut(text: &str) -> &str {
    const LONGEST: usize = 512;
    text.char_indices().nth(LONGEST).and_then(|(at, _)| text.get(..at)).unwrap_or(text)
}

fn kind_of(id: &TenantId) -> TenantKind {
    let word = id.0.split(':').next().unwrap_or_default();
    let kinds =
        [TenantKind::Lxc, TenantKind::Vm, TenantKind::Container, TenantKind::Pod, TenantKind::Job];
    kinds.into_iter().find(|kind| kind.to_string() == word).unwrap_or(TenantKind::Host)
}

impl Look<'_> {
    fn device(&self, address: PciAddress) -> Option<&PciDevice> {
        let at = self.devices.binary_search_by_key(&address, |device| device.address).ok()?;
        self.devices.get(at)
    }

    fn is_held_by(&self, tenant: &TenantId, device: PciAddress) -> bool {
        self.held.devices.get(&device).is_some_and(|tenants| tenants.contains(tenant))
    }

    fn is_seen(&self, tenant: &TenantId) -> bool {
        self.held.tenants.contains(tenant)
    }

    /// Functions that a VM takes along: all of a group that are no bridges, since VFIO gives out
    /// groups.
    fn with_group(&self, address: PciAddress) -> Vec<PciAddress> {
        let group = self.device(address).and_then(|device| {
            let id = device.group.known()?;
            let at = self.groups.binary_search_by_key(id, |group| group.id).ok()?;
            self.groups.get(at)
        });
        let is_bridge =
            |address: &PciAddress| self.device(*address).is_some_and(PciDevice::is_bridge);
        let mut all: Vec<PciAddress> = group.map(|group| group.devices.clone()).unwrap_or_default();
        all.retain(|one| *one != address && !is_bridge(one));
        all
    }

    /// Whether a VM that names a device holds it now.
    fn vm_holds(
        &self,
        tenant: &TenantId,
        running: Tristate,
        device: PciAddress,
        keeps_driver: bool,
    ) -> Tristate {
        if self.is_held_by(tenant, device) {
            return Tristate::Yes;
        }
        // VFIO has one opener at a time.
        let another = self
            .held
            .holders(device)
            .any(|holder| holder != tenant && kind_of(holder) == TenantKind::Vm);
        if running == Tristate::No || another {
            return Tristate::No;
        }
        let Some(there) = self.device(device) else { return Tristate::Unknown };
        match &there.driver {
            Observed::Known(_) if there.is_vfio() => running,
            Observed::Known(_) | Observed::Absent if !keeps_driver => Tristate::No,
            _ => Tristate::Unknown,
        }
    }

    /// Whether a container that is given a device holds it now. Nobody seen is no proof, and what
    /// VFIO keeps has no node that a container could hold.
    fn container_holds(
        &self,
        tenant: &TenantId,
        running: Tristate,
        device: PciAddress,
    ) -> Tristate {
        if self.is_held_by(tenant, device) {
            Tristate::Yes
        } else if running == Tristate::No || self.device(device).is_some_and(PciDevice::is_vfio) {
            Tristate::No
        } else {
            Tristate::Unknown
        }
    }

    /// Whether a container runs: a process of it is seen, or its control group has processes.
    fn container_runs(&self, tenant: &TenantId, id: &str) -> Tristate {
        const TOP: &str = "/sys/fs/cgroup";
        if self.is_seen(tenant) {
            return Tristate::Yes;
        }
        for group in [format!("lxc/{id}"), format!("lxc.payload.{id}"), format!("lxc.payload/{id}")]
        {
            let events = self.root.observe(&format!("{TOP}/{group}/cgroup.events"));
            match events {
                Observed::Known(text) if text.contains("populated 0") => return Tristate::No,
                Observed::Known(_) => return Tristate::Yes,
                Observed::Unreadable(_) => return Tristate::Unknown,
                Observed::Absent => {}
            }
        }
        // Only where the tree is there at all does a missing group mean a stopped container.
        match self.root.observe(&format!("{TOP}/cgroup.controllers")) {
            Observed::Known(_) => Tristate::No,
            Observed::Absent | Observed::Unreadable(_) => Tristate::Unknown,
        }
    }

    /// Whether a process is the emulator that a pid file takes it for. The number of one that
    /// ended may be another's by now.
    fn emulator_runs(&self, pid: u32) -> Tristate {
        match self.root.observe(&format!("/proc/{pid}/comm")) {
            Observed::Known(name) if name.contains("kvm") || name.contains("qemu") => Tristate::Yes,
            // Names of threads can be set to anything, so that a control group outranks them.
            Observed::Known(_) => {
                let group = self.root.observe(&format!("/proc/{pid}/cgroup"));
                let is_vm = group.map(|text| {
                    crate::parse::cgroup::named(&text)
                        .is_some_and(|(kind, _)| kind == TenantKind::Vm)
                });
                match is_vm {
                    Observed::Known(true) => Tristate::Yes,
                    Observed::Known(false) | Observed::Absent => Tristate::No,
                    Observed::Unreadable(_) => Tristate::Unknown,
                }
            }
            // A recording without process 1 does not show who runs.
            Observed::Absent => match self.root.observe("/proc/1/comm") {
                Observed::Known(_) => Tristate::No,
                Observed::Absent | Observed::Unreadable(_) => Tristate::Unknown,
            },
            Observed::Unreadable(_) => Tristate::Unknown,
        }
    }

    /// Whether anything is the host's own: a process of its own holds a device, or a device that
    /// nobody claims is with an ordinary driver or none. Bridges and system parts are left out.
    fn host_has_something(&self, claims: &[Claim]) -> bool {
        let host = TenantId::host();
        if claims.iter().any(|claim| claim.tenant == host) {
            return true;
        }
        let claimed: BTreeSet<PciAddress> = claims.iter().map(|claim| claim.device).collect();
        self.devices.iter().any(|device| {
            let base = device.class.known().map(|class| class_pair(*class) >> 8);
            !device.is_vfio()
                && !matches!(base, Some(0x06 | 0x08))
                && !claimed.contains(&device.address)
        })
    }
}

#[cfg(test)]
mod tests;
