//! Processes with an open device node, and the tenant of each.

pub mod nodes;

use peerway_core::address::PciAddress;
use peerway_core::observed::Observed;
use peerway_core::snapshot::Gap;
use peerway_core::snapshot::driver::NvidiaDriver;
use peerway_core::snapshot::kernel::Tristate;
use peerway_core::snapshot::pci::PciDevice;
use peerway_core::snapshot::tenant::{Claim, Holder, TenantId, TenantKind};
use peerway_holders::{Environment, HolderList, NodeKind};
use rustix::io::Errno;

use crate::error::{ReadError, Reason, observe};
use crate::parse::cgroup;
use crate::root::{Root, SMALL};
use nodes::NodeMap;

/// Devices of all holders together, each counted for each of them: eight for each of 10,000
/// processes is less.
const MOST_HELD: usize = 100_000;

/// User number where none could be read: the kernel's own "no user".
pub const NO_USER: u32 = u32::MAX;

/// What a look at the processes of a host gave.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Seen {
    /// Processes that hold a node.
    pub processes: Vec<Process>,
    /// Why processes may be missing.
    pub gaps: Vec<String>,
}

/// One process that holds device nodes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Process {
    /// Number on the host.
    pub pid: u32,
    /// `comm`.
    pub command: String,
    /// Field 22 of `stat`, clock ticks since boot.
    pub start: u64,
    /// Real user on the host.
    pub uid: Option<u32>,
    /// Text of `cgroup`.
    pub cgroup: String,
    /// What it holds.
    pub held: Vec<Held>,
    /// Switches of its environment that bear on peer access.
    pub switches: Observed<Vec<(String, String)>>,
}

/// One file that a process holds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Held {
    /// Path, as the holder sees it.
    pub path: String,
    /// Major and minor number, where known: they tell the GPU whatever the node is called.
    pub number: Option<(u32, u32)>,
    /// Device that `fdinfo` names (`vfio-device-syspath`, `drm-pdev`), or whose memory region it is.
    pub device: Option<String>,
    /// Whether it stands for one device, which then is held even if it cannot be told.
    pub stands_for_one: bool,
}

/// Holders of a host from its recorded processes.
pub fn collect(
    root: &Root,
    devices: &[PciDevice],
    nvidia: &NvidiaDriver,
    gaps: &mut Vec<Gap>,
) -> Observed<Vec<Holder>> {
    resolve(recorded(root), &NodeMap::new(root, devices, nvidia), gaps)
}

/// Holders of a host from the scan of its live processes.
pub fn from_list(
    root: &Root,
    list: &HolderList,
    devices: &[PciDevice],
    nvidia: &NvidiaDriver,
    gaps: &mut Vec<Gap>,
) -> Observed<Vec<Holder>> {
    resolve(seen_in(list), &NodeMap::new(root, devices, nvidia), gaps)
}

/// What the scan of live processes saw.
fn seen_in(list: &HolderList) -> Observed<Seen> {
    let gaps = list.gaps();
    if let (true, None, Some(why)) = (list.processes.is_empty(), &list.end, gaps.first()) {
        return Observed::Unreadable(why.clone());
    }
    let held = |held: &peerway_holders::Held| Held {
        path: held.path.clone(),
        number: held.device.map(|number| (number.major, number.minor)),
        device: [&held.region_of, &held.vfio_syspath, &held.drm_address]
            .into_iter()
            .find_map(Clone::clone),
        stands_for_one: matches!(
            held.kind,
            NodeKind::NvidiaGpu | NodeKind::Uio | NodeKind::Accel | NodeKind::PciMemory
        ),
    };
    let process = |process: &peerway_holders::Process| Process {
        pid: process.pid,
        command: process.comm.clone(),
        start: process.start_ticks,
        uid: process.uid,
        cgroup: process.cgroup.clone(),
        held: process.held.iter().map(held).collect(),
        switches: match &process.environment {
            Environment::NotRead => Observed::Absent,
            Environment::Read { variables, truncated: false } => Observed::Known(variables.clone()),
            Environment::Read { truncated: true, .. } => {
                Observed::Unreadable("longer than what is read of it".to_owned())
            }
            Environment::Unreadable { errno } => {
                Observed::Unreadable(Reason::Errno(Errno::from_raw_os_error(*errno)).to_string())
            }
        },
    };
    let holding = list.processes.iter().filter(|process| !process.held.is_empty());
    Observed::Known(Seen { processes: holding.map(process).collect(), gaps })
}

/// Tenants and devices of what was seen; what could not be looked into is a gap.
pub fn resolve(
    seen: Observed<Seen>,
    nodes: &NodeMap,
    gaps: &mut Vec<Gap>,
) -> Observed<Vec<Holder>> {
    const SOURCE: &str = "/proc/PID/fd";
    let seen = match seen {
        Observed::Known(seen) => seen,
        Observed::Absent => {
            let why = "no process was recorded".to_owned();
            gaps.push(Gap { source: SOURCE.to_owned(), why: why.clone() });
            return Observed::Unreadable(why);
        }
        Observed::Unreadable(why) => {
            gaps.push(Gap { source: SOURCE.to_owned(), why: why.clone() });
            return Observed::Unreadable(why);
        }
    };
    gaps.extend(seen.gaps.into_iter().map(|why| Gap { source: SOURCE.to_owned(), why }));
    for process in &seen.processes {
        if let Some(why) = process.switches.unreadable() {
            let source = format!("/proc/{}/environ", process.pid);
            gaps.push(Gap { source, why: why.to_owned() });
        }
    }
    let mut holders: Vec<Holder> = Vec::with_capacity(seen.processes.len());
    let mut held = 0;
    for process in seen.processes {
        let holder = holder(process, nodes);
        held += holder.devices.len();
        if held > MOST_HELD {
            let why = format!("only the first {MOST_HELD} held devices were kept");
            gaps.push(Gap { source: SOURCE.to_owned(), why });
            break;
        }
        holders.push(holder);
    }
    holders.sort_by_key(|holder| holder.pid);
    Observed::Known(holders)
}

fn holder(process: Process, nodes: &NodeMap) -> Holder {
    let tenant = tenant(&process);
    let (mut devices, mut untold) = (Vec::new(), Vec::new());
    for held in &process.held {
        let found = devices_of(held, nodes);
        if found.is_empty() && held.stands_for_one {
            untold.push(held.path.clone());
        }
        devices.extend(found);
    }
    devices.sort_unstable();
    devices.dedup();
    untold.sort_unstable();
    untold.dedup();
    let mut names: Vec<String> = process.held.into_iter().map(|held| held.path).collect();
    names.sort_unstable();
    names.dedup();
    let mut switches = process.switches.known().cloned().unwrap_or_default();
    switches.sort_unstable();
    Holder {
        pid: process.pid,
        command: process.command,
        start: process.start,
        uid: process.uid.unwrap_or(NO_USER),
        tenant,
        nodes: names,
        devices,
        untold,
        switches,
    }
}

/// The tenant by control group. An emulator that somebody started by hand is in no group of its
/// own, and is a guest all the same if it holds a device through VFIO.
fn tenant(process: &Process) -> TenantId {
    const EMULATORS: [&str; 4] = ["qemu", "kvm", "cloud-hyperviso", "crosvm"];
    if let Some((kind, id)) = cgroup::named(&process.cgroup) {
        return TenantId::of(kind, &id);
    }
    let emulator = EMULATORS.iter().any(|name| process.command.starts_with(name));
    if emulator && process.held.iter().any(|held| held.path.contains("/dev/vfio/")) {
        let name = format!("{}-{}", cgroup::plain(&process.command), process.pid);
        return TenantId::of(TenantKind::Vm, &name);
    }
    TenantId::host()
}

fn devices_of(held: &Held, nodes: &NodeMap) -> Vec<PciAddress> {
    let named = held.device.as_deref().and_then(|device| device.rsplit('/').next()?.parse().ok());
    if let Some(address) = named {
        return vec![address];
    }
    if let Some((major, minor)) = held.number {
        let devices = nodes.by_numbers(Some(major), Some(minor));
        if !devices.is_empty() {
            return devices;
        }
    }
    nodes.by_path(&held.path)
}

/// What the holders say: each device of each is its tenant's now.
pub fn claims(holders: &[Holder]) -> Vec<Claim> {
    holders
        .iter()
        .flat_map(|holder| {
            holder.devices.iter().map(|device| Claim {
                device: *device,
                tenant: holder.tenant.clone(),
                source: format!("process {} ({})", holder.pid, holder.command),
                active: Tristate::Yes,
            })
        })
        .collect()
}

/// The look at recorded processes, through `/proc/PID/{fd,fdinfo,comm,stat,status,cgroup,environ}`.
/// Absent if there is none; unreadable if no single one could be looked into.
pub fn recorded(root: &Root) -> Observed<Seen> {
    let names = match root.list("/proc") {
        Ok(names) => names,
        Err(error) => return error.observed(),
    };
    let mut seen = Seen::default();
    let mut looked = 0_u32;
    let mut refused: Vec<(u32, ReadError)> = Vec::new();
    for pid in names.iter().filter_map(|name| name.parse::<u32>().ok()) {
        match held_by(root, pid) {
            Ok(held) => {
                looked += 1;
                if !held.is_empty() {
                    seen.processes.push(process(root, pid, held));
                }
            }
            // It ended meanwhile.
            Err(error) if error.is_absent() => {}
            Err(error) => refused.push((pid, error)),
        }
    }
    match (looked, refused.first()) {
        (0, None) => Observed::Absent,
        (0, Some((_, error))) => Observed::Unreadable(error.reason.to_string()),
        (_, None) => Observed::Known(seen),
        (_, Some((pid, error))) => {
            seen.gaps.push(match refused.len() {
                1 => format!("process {pid} could not be looked into: {}", error.reason),
                count => format!(
                    "{count} processes could not be looked into, the first of them {pid}: {}",
                    error.reason
                ),
            });
            Observed::Known(seen)
        }
    }
}

/// Nodes that matter: GPUs and other accelerators, VFIO and the newer interface to the IOMMU, and
/// devices that a driver hands to user space.
fn matters(target: &str) -> bool {
    const NODES: [&str; 7] = [
        "/dev/nvidia",
        "/dev/vfio/",
        "/dev/dri/",
        "/dev/kfd",
        "/dev/iommu",
        "/dev/uio",
        "/dev/accel/",
    ];
    target == VFIO_DEVICE || NODES.iter().any(|node| target.contains(node))
}

/// Whether a recorded path is a node that stands for one device.
fn names_one(path: &str) -> bool {
    const NODES: [&str; 3] = ["/dev/nvidia", "/dev/uio", "/dev/accel/accel"];
    NODES.iter().any(|node| {
        let number = path.rsplit_once(node).map(|(_, number)| number).unwrap_or_default();
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    })
}

const VFIO_DEVICE: &str = "anon_inode:[vfio-device]";

fn held_by(root: &Root, pid: u32) -> Result<Vec<Held>, ReadError> {
    let directory = format!("/proc/{pid}/fd");
    let mut held = Vec::new();
    for name in root.list(&directory)? {
        let target = match root.link(&format!("{directory}/{name}")) {
            Ok(target) => target,
            Err(error) if error.is_absent() => continue,
            Err(error) => return Err(error),
        };
        let path = target.strip_suffix(" (deleted)").unwrap_or(&target);
        if matters(path) {
            let device = device_of_descriptor(root, pid, &name, path);
            let stands_for_one = names_one(path);
            held.push(Held { path: path.to_owned(), number: None, device, stands_for_one });
        }
    }
    Ok(held)
}

/// `vfio-device-syspath` (6.19 and later) or `drm-pdev` of `fdinfo`.
fn device_of_descriptor(root: &Root, pid: u32, name: &str, path: &str) -> Option<String> {
    if path != VFIO_DEVICE && !path.contains("/dev/dri/") {
        return None;
    }
    let text = root.text(&format!("/proc/{pid}/fdinfo/{name}"), SMALL).ok()?;
    text.lines()
        .filter_map(|line| line.split_once(':'))
        .find(|(key, _)| matches!(*key, "vfio-device-syspath" | "drm-pdev"))
        .map(|(_, value)| value.trim().to_owned())
}

fn process(root: &Root, pid: u32, held: Vec<Held>) -> Process {
    let file = |name: &str| root.observe(&format!("/proc/{pid}/{name}"));
    let known = |name: &str| file(name).known().cloned().unwrap_or_default();
    let environment = observe(root.read(&format!("/proc/{pid}/environ"), 4 << 20));
    Process {
        pid,
        command: known("comm"),
        start: start_of(&known("stat")).unwrap_or(0),
        uid: uid_of(&known("status")),
        cgroup: known("cgroup"),
        held,
        switches: environment.map(|bytes| switches(&bytes)),
    }
}

/// Field 22 of `stat`; the name before it stands in parentheses and may hold anything.
fn start_of(stat: &str) -> Option<u64> {
    let (_, rest) = stat.rsplit_once(')')?;
    // The third field follows the name.
    rest.split_ascii_whitespace().nth(22 - 3)?.parse().ok()
}

fn uid_of(status: &str) -> Option<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_ascii_whitespace().next()?.parse().ok()
}

/// Switches of one process.
const MOST_SWITCHES: usize = 1024;

/// The switches in an environment; nothing else of it is kept.
fn switches(environment: &[u8]) -> Vec<(String, String)> {
    // A recording in text form has lines where the kernel has zero bytes.
    let separator = if environment.contains(&0) { 0 } else { b'\n' };
    environment
        .split(|byte| *byte == separator)
        .filter_map(|variable| std::str::from_utf8(variable).ok()?.split_once('='))
        .filter(|(name, _)| is_switch(name))
        .take(MOST_SWITCHES)
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// Variables that bear on peer access, as the scanner of live processes keeps them.
fn is_switch(name: &str) -> bool {
    const NAMES: [&str; 6] = [
        "CUDA_DEVICE_ORDER",
        "CUDA_VISIBLE_DEVICES",
        "GGML_CUDA_P2P",
        "NVIDIA_VISIBLE_DEVICES",
        "VLLM_DISABLE_CUSTOM_ALL_REDUCE",
        "VLLM_SKIP_P2P_CHECK",
    ];
    name.starts_with("NCCL_") || name.starts_with("SGLANG_") || NAMES.contains(&name)
}

#[cfg(test)]
pub(crate) mod fixture;
#[cfg(test)]
mod tests;
