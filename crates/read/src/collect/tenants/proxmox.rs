//! Guests of Proxmox: `/etc/pve`, `/run/qemu-server`.

use std::collections::{BTreeMap, BTreeSet};

use peerway_core::address::PciAddress;
use peerway_core::observed::Observed;
use peerway_core::snapshot::kernel::Tristate;
use peerway_core::snapshot::tenant::{TenantId, TenantKind};

use super::{Facts, Found, Look, lxc};
use crate::parse::proxmox::{self, Alternative, DeviceSpec, Reservation, Target, Vm};
use crate::root::SMALL;

const RUN: &str = "/run/qemu-server";
const MAPPINGS: &str = "/etc/pve/mapping/pci.cfg";

/// Descriptions may be long.
const MOST: usize = 1 << 20;

pub(super) fn collect(look: &Look<'_>, found: &mut Found) {
    let pve = Pve::open(look, found);
    let mut configured = BTreeSet::new();
    for (id, path) in pve.configurations("qemu-server", found) {
        if let Some(text) = found.read(look.root.text(&path, MOST)) {
            pve.vm(&id, &path, &proxmox::vm(&text), found);
            configured.insert(id);
        }
    }
    for (id, path) in pve.configurations("lxc", found) {
        if let Some(text) = found.read(look.root.text(&path, MOST)) {
            lxc::claim(look, &id, &path, &proxmox::container(&text), found);
        }
    }
    pve.unconfigured(&configured, found);
}

struct Pve<'a> {
    look: &'a Look<'a>,
    node: Observed<String>,
    /// Directory that holds `qemu-server` and `lxc`, if there is one.
    top: Option<String>,
    mappings: BTreeMap<String, Vec<Alternative>>,
    /// By what is reserved; empty too where nobody could look.
    reservations: BTreeMap<DeviceSpec, Reservation>,
    /// Numbers in `/run/qemu-server/*.pid`; `None` where nobody could look.
    pids: Option<BTreeMap<String, Observed<u32>>>,
}

impl<'a> Pve<'a> {
    fn open(look: &'a Look<'a>, found: &mut Found) -> Self {
        let node = look.root.observe("/proc/sys/kernel/hostname");
        let mappings = found.read(look.root.text(MAPPINGS, MOST));
        let reservations = look.root.text(&format!("{RUN}/pci-id-reservations"), MOST);
        Self {
            top: top(look, &node, found),
            mappings: mappings.map(|text| proxmox::mappings(&text)).unwrap_or_default(),
            reservations: found
                .read(reservations)
                .map(|text| by_device(proxmox::reservations(&text)))
                .unwrap_or_default(),
            pids: pids(look, found),
            node,
            look,
        }
    }

    /// Identity and path of each guest's configuration.
    fn configurations(&self, kind: &str, found: &mut Found) -> Vec<(String, String)> {
        let Some(top) = &self.top else { return Vec::new() };
        let directory = format!("{top}/{kind}");
        let names = found.read(self.look.root.list(&directory)).unwrap_or_default();
        names
            .into_iter()
            .filter_map(|name| {
                let id = name.strip_suffix(".conf")?.to_owned();
                let number = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_digit());
                number.then(|| (id, format!("{directory}/{name}")))
            })
            .collect()
    }

    fn running(&self, id: &str) -> Tristate {
        let tenant = TenantId::of(TenantKind::Vm, id);
        if self.look.is_seen(&tenant) {
            return Tristate::Yes;
        }
        match self.pids.as_ref().map(|pids| pids.get(id)) {
            None | Some(Some(Observed::Unreadable(_))) => Tristate::Unknown,
            Some(None | Some(Observed::Absent)) => Tristate::No,
            Some(Some(Observed::Known(pid))) => self.look.emulator_runs(*pid),
        }
    }

    fn vm(&self, id: &str, path: &str, vm: &Vm, found: &mut Found) {
        let tenant = TenantId::of(TenantKind::Vm, id);
        let running = self.running(id);
        let facts = Facts {
            name: vm.name.clone().map_or(Observed::Absent, Observed::Known),
            confidential: if vm.confidential { Tristate::Yes } else { Tristate::No },
            running,
        };
        found.tenant(&tenant, TenantKind::Vm, facts);
        for line in &vm.unclear {
            found.gap(path, format!("cannot tell which device {line:?} means"));
        }
        for passthrough in &vm.passthrough {
            let source = format!("{path}: {}", passthrough.text);
            let (devices, chosen) = self.resolve(&passthrough.target, path, found);
            for device in devices {
                if found.is_full() {
                    return;
                }
                let active = if chosen {
                    self.look.vm_holds(&tenant, running, device, passthrough.keeps_driver)
                } else {
                    self.alternative_held(id, &tenant, running, device)
                };
                found.claim(device, &tenant, &source, active);
                for other in self.look.with_group(device) {
                    let active = self.look.vm_holds(&tenant, running, other, false);
                    let source = format!("{source} (group of {device})");
                    found.claim(other, &tenant, &source, active);
                }
            }
        }
    }

    /// Functions meant, and whether they are certain: of a mapping's alternatives one is chosen at
    /// the start.
    fn resolve(&self, target: &Target, path: &str, found: &mut Found) -> (Vec<PciAddress>, bool) {
        match target {
            Target::Devices(specs) => (self.expand(specs), true),
            Target::Mapping(id) => {
                let here = |one: &&Alternative| match (&one.node, &self.node) {
                    (Some(node), Observed::Known(this)) => node == this,
                    _ => true,
                };
                let alternatives: Vec<&Alternative> =
                    self.mappings.get(id).into_iter().flatten().filter(here).collect();
                if alternatives.is_empty() {
                    found.gap(
                        path,
                        format!("mapping {id:?} names no device of this host in {MAPPINGS}"),
                    );
                }
                let specs: Vec<DeviceSpec> =
                    alternatives.iter().flat_map(|one| one.devices.iter().copied()).collect();
                (self.expand(&specs), alternatives.len() == 1)
            }
        }
    }

    fn expand(&self, specs: &[DeviceSpec]) -> Vec<PciAddress> {
        let mut all = BTreeSet::new();
        for spec in specs {
            // Functions of one device stand together.
            let first = spec.address.with_function(0).unwrap_or(spec.address);
            let from = self.look.devices.partition_point(|device| device.address < first);
            let there = self.look.devices.iter().skip(from).map(|device| device.address);
            let before = all.len();
            all.extend(
                there
                    .take_while(|address| address.same_device(first))
                    .filter(|address| spec.covers(*address)),
            );
            if all.len() == before {
                // Not here now: the claim stands all the same.
                all.insert(spec.address);
            }
        }
        all.into_iter().collect()
    }

    /// Whether a VM took this one of several alternatives.
    fn alternative_held(
        &self,
        id: &str,
        tenant: &TenantId,
        running: Tristate,
        device: PciAddress,
    ) -> Tristate {
        let holds = self.look.vm_holds(tenant, running, device, false);
        if holds != Tristate::Yes || self.look.is_held_by(tenant, device) {
            return holds;
        }
        let exactly = DeviceSpec { address: device, all_functions: false };
        let slot = device.with_function(0).unwrap_or(device);
        let slot = DeviceSpec { address: slot, all_functions: true };
        match self.reservations.get(&exactly).or_else(|| self.reservations.get(&slot)) {
            Some(one) if one.vm == id && one.pid.is_some() => Tristate::Yes,
            Some(one) if one.vm != id && self.running(&one.vm) == Tristate::Yes => Tristate::No,
            _ => Tristate::Unknown,
        }
    }

    /// VMs that run, but whose configuration was not read: what their command line takes.
    fn unconfigured(&self, configured: &BTreeSet<String>, found: &mut Found) {
        let pids = self.pids.iter().flatten();
        for (id, pid) in pids.filter(|(id, _)| !configured.contains(*id)) {
            let Observed::Known(pid) = pid else { continue };
            let running = self.running(id);
            if running == Tristate::No {
                continue;
            }
            let tenant = TenantId::of(TenantKind::Vm, id);
            let path = format!("/proc/{pid}/cmdline");
            let text = found.read(self.look.root.read(&path, MOST));
            let text = text.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
            let confidential = match &text {
                Some(text) if proxmox::is_confidential(text.split('\0')) => Tristate::Yes,
                Some(_) => Tristate::No,
                None => Tristate::Unknown,
            };
            let name = Observed::Unreadable("its configuration was not read".to_owned());
            found.tenant(&tenant, TenantKind::Vm, Facts { name, confidential, running });
            let specs =
                text.map(|text| proxmox::qemu_devices(text.split('\0'))).unwrap_or_default();
            for device in self.expand(&specs) {
                let active = self.look.vm_holds(&tenant, running, device, false);
                found.claim(device, &tenant, &format!("{path}: -device vfio-pci"), active);
            }
        }
    }
}

/// The first reservation of each device.
fn by_device(reservations: Vec<Reservation>) -> BTreeMap<DeviceSpec, Reservation> {
    let mut all = BTreeMap::new();
    for one in reservations {
        all.entry(one.device).or_insert(one);
    }
    all
}

/// `/etc/pve` itself, or this node's part of it where the links to it are missing.
fn top(look: &Look<'_>, node: &Observed<String>, found: &mut Found) -> Option<String> {
    const TOP: &str = "/etc/pve";
    found.read(look.root.list(TOP))?;
    let mut places = vec![TOP.to_owned()];
    places.extend(node.known().map(|node| format!("{TOP}/nodes/{node}")));
    for place in places {
        for kind in ["qemu-server", "lxc"] {
            match look.root.list(&format!("{place}/{kind}")) {
                Ok(_) => return Some(place),
                Err(error) if error.is_absent() => {}
                // There, and not readable: the gap is noted where the guests are listed.
                Err(_) => return Some(place),
            }
        }
    }
    found.gap(TOP, "no guest configurations below it: is the cluster file system mounted?");
    None
}

fn pids(look: &Look<'_>, found: &mut Found) -> Option<BTreeMap<String, Observed<u32>>> {
    let names = found.read(look.root.list(RUN))?;
    let pid = |name: &str| {
        let text = look.root.text(&format!("{RUN}/{name}"), SMALL);
        crate::error::observe(text).and_then(|text| {
            text.trim().parse().map_or_else(
                |_| Observed::Unreadable(format!("{text:?} is no process number")),
                Observed::Known,
            )
        })
    };
    Some(
        names
            .iter()
            .filter_map(|name| Some((name.strip_suffix(".pid")?.to_owned(), pid(name))))
            .collect(),
    )
}
