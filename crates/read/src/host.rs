//! From a root to a snapshot: every collector, in the order in which they need each other.

use std::collections::BTreeSet;

use peerway_core::address::{PciAddress, VendorDevice};
use peerway_core::observed::Observed;
use peerway_core::snapshot::pci::{Accelerator, Addressing, PciDevice};
use peerway_core::snapshot::{Gap, Origin, OriginKind, SNAPSHOT_SCHEMA, Snapshot};

use crate::collect;
use crate::collect::pci::Scope;
use crate::root::Root;

/// What to look at, and how the host is called.
#[derive(Clone, Debug, Default)]
pub struct Request {
    /// What `--host` named.
    pub host: String,
    /// Live, recorded or simulated.
    pub kind: OriginKind,
    /// Whether the reader is root of the initial user namespace.
    pub privileged: bool,
    /// Which devices are read deeply.
    pub scope: Scope,
    /// Declared accelerators, to be matched with the devices found.
    pub accelerators: Vec<Declared>,
    /// Holders from a scan elsewhere (a child, on a live host); `None`: read them below the root.
    pub holders: Option<peerway_holders::HolderList>,
}

/// A declaration of accelerators: one entry may match many devices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Declared {
    /// What to call them.
    pub name: String,
    /// Which functions issue requests.
    pub requester: Match,
    /// Where their memory is.
    pub memory: Memory,
    /// Resource index of the memory's BAR.
    pub bar: u8,
    /// How they address peers.
    pub addressing: Addressing,
    /// Whether the root complex is known to forward.
    pub root_complex_forwards: bool,
}

/// Which functions a declaration means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Match {
    /// All of a vendor and device number.
    Ids(VendorDevice),
    /// One.
    Address(PciAddress),
}

/// Where a declared accelerator's memory is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Memory {
    /// A function of the requester's own slot.
    Function(u8),
    /// Another address.
    Address(PciAddress),
}

/// Collects a snapshot.
pub fn collect(root: &Root, request: Request) -> Snapshot {
    let mut gaps = Vec::new();
    let log = collect::log::read(root);
    let kernel_log = collect::log::facts(&log);
    let mut kernel = collect::kernel::collect(root);
    let cpu = collect::cpu::collect(root);
    let mut scope = request.scope;
    let accelerators = accelerators(root, &request.accelerators, &mut scope, &mut gaps);
    let mut devices = collect::pci::collect(root, &scope, &mut gaps);
    bound_gpus(&mut devices, &mut gaps);
    name_vfio_devices(root, &mut devices);
    let deep: BTreeSet<PciAddress> = devices
        .iter()
        .filter(|device| device.is_gpu() || scope.also.contains(&device.address))
        .map(|device| device.address)
        .collect();
    let groups = collect::iommu::groups(root, &devices, &deep, &mut gaps);
    let iommu = collect::iommu::units(root, kernel.version());
    let lines = kernel_log.known().cloned().unwrap_or_default();
    let memory_encryption = collect::encryption::collect(root, &kernel, &cpu, &iommu, &lines);
    kernel.log_facts = kernel_log;
    let nvidia = collect::nvidia::collect(root, &mut gaps);
    let holders = match request.holders {
        Some(list) => collect::holders::from_list(root, &list, &devices, &nvidia, &mut gaps),
        None => collect::holders::collect(root, &devices, &nvidia, &mut gaps),
    };
    let (tenants, claims, more) =
        collect::tenants::collect(root, &devices, &groups, &holders, &nvidia);
    gaps.extend(more);
    gaps.sort();
    gaps.dedup();
    let mut snapshot = Snapshot {
        schema: SNAPSHOT_SCHEMA,
        origin: Origin {
            host: request.host,
            kind: request.kind,
            hostname: root.observe("/proc/sys/kernel/hostname"),
            boot_id: root.observe("/proc/sys/kernel/random/boot_id"),
            privileged: request.privileged,
        },
        kernel,
        cpu,
        memory_encryption,
        iommu,
        devices,
        groups,
        nvidia,
        nvlinks: Observed::Unreadable("not visible without opening a GPU".to_owned()),
        firmware: collect::firmware::collect(root),
        tenants,
        claims,
        holders,
        accelerators,
        faults: Observed::default(),
        measured: Observed::default(),
        peer_map: collect::peer_map::collect(root),
        gaps,
    };
    snapshot.faults = collect::faults::facts(&log, &snapshot);
    snapshot.measured = collect::measured::collect(root, snapshot.origin.boot_id.known());
    snapshot
}

/// GPUs of one host: a machine with sixteen, each cut into 48 virtual functions, has fewer. Pairs
/// grow with the square of them.
const MOST_GPUS: usize = 1024;

/// Takes no more functions for GPUs than that; of the others nobody then knows what they are.
fn bound_gpus(devices: &mut [PciDevice], gaps: &mut Vec<Gap>) {
    let mut left_out = 0_usize;
    for device in devices.iter_mut().filter(|device| device.is_gpu()).skip(MOST_GPUS) {
        device.class = Observed::Unreadable("left out: more GPUs than any host has".to_owned());
        left_out += 1;
    }
    if left_out > 0 {
        let why = format!("{left_out} GPUs above the first {MOST_GPUS} were left out");
        gaps.push(Gap { source: collect::pci::DEVICES.to_owned(), why });
    }
}

/// Which character device of VFIO stands for a device; asked only where VFIO keeps it.
fn name_vfio_devices(root: &Root, devices: &mut [PciDevice]) {
    for device in devices.iter_mut().filter(|device| device.is_vfio()) {
        device.vfio_device = collect::pci::vfio_device(root, device.address);
    }
}

/// Matches declarations with the functions that there are, and has them read deeply.
fn accelerators(
    root: &Root,
    declared: &[Declared],
    scope: &mut Scope,
    gaps: &mut Vec<Gap>,
) -> Vec<Accelerator> {
    if declared.is_empty() {
        return Vec::new();
    }
    let shallow = collect::pci::collect(root, &Scope::default(), &mut Vec::new());
    let mut found = Vec::new();
    for one in declared {
        let before = found.len();
        for device in shallow.iter().filter(|device| matches(one.requester, device)) {
            let memory = match one.memory {
                Memory::Function(function) => device.address.with_function(function),
                Memory::Address(address) => Some(address),
            };
            let Some(memory) = memory else { continue };
            scope.also.insert(device.address);
            scope.also.insert(memory);
            found.push(Accelerator {
                name: one.name.clone(),
                requester: device.address,
                memory,
                bar: one.bar,
                addressing: one.addressing,
                root_complex_forwards: one.root_complex_forwards,
            });
        }
        if found.len() == before {
            gaps.push(Gap {
                source: format!("accelerator {:?}", one.name),
                why: "no device of this host matches the declaration".to_owned(),
            });
        }
    }
    found.sort_by_key(|one| one.requester);
    found.dedup_by_key(|one| one.requester);
    if found.len() > MOST_GPUS {
        let why = format!("only the first {MOST_GPUS} of {} were taken", found.len());
        gaps.push(Gap { source: "declared accelerators".to_owned(), why });
        found.truncate(MOST_GPUS);
    }
    found
}

fn matches(wanted: Match, device: &PciDevice) -> bool {
    match wanted {
        Match::Ids(ids) => device.ids.known() == Some(&ids),
        Match::Address(address) => device.address == address,
    }
}
