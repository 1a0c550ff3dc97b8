//! Which PCI functions a device node stands for.

use std::collections::BTreeMap;

use peerway_core::address::PciAddress;
use peerway_core::observed::Observed;
use peerway_core::snapshot::driver::{GpuInformation, NvidiaDriver};
use peerway_core::snapshot::pci::PciDevice;
use peerway_core::snapshot::query::vendor;

use crate::root::Root;

/// Major number of NVIDIA's nodes (`kernel-open/nvidia/nv.c`, `NV_MAJOR_DEVICE_NUMBER`).
const NVIDIA_MAJOR: u32 = 195;

/// Major number of DRM nodes (`include/drm/drm_file.h`, `DRM_MAJOR`).
const DRM_MAJOR: u32 = 226;

/// Major number of the nodes of other accelerators (`include/drm/drm_accel.h`, `ACCEL_MAJOR`).
const ACCEL_MAJOR: u32 = 261;

/// Nodes of one host by the functions behind them.
#[derive(Debug, Default)]
pub struct NodeMap {
    /// NVIDIA GPUs, whatever driver holds them now.
    nvidia: Vec<PciAddress>,
    /// GPUs of the loaded driver, ordered by address, as its own tools count them.
    bound: Vec<GpuInformation>,
    /// Members of each group, bridges left out.
    groups: BTreeMap<u32, Vec<PciAddress>>,
    /// `vfioN` of the newer interface.
    vfio: BTreeMap<String, PciAddress>,
    /// `cardN` and `renderDN`.
    dri: BTreeMap<String, PciAddress>,
    /// `uioN`.
    uio: Class,
    /// `accelN`.
    accel: Class,
}

/// Nodes of a class of devices.
#[derive(Debug, Default)]
struct Class {
    by_name: BTreeMap<String, PciAddress>,
    by_numbers: BTreeMap<(u32, u32), PciAddress>,
}

impl Class {
    /// `/sys/class/CLASS/NAME`: `device` leads to the function, `dev` holds the node's numbers.
    fn read(root: &Root, class: &str) -> Self {
        let mut all = Self::default();
        let names = root.list(&format!("/sys/class/{class}")).unwrap_or_default();
        for name in names {
            let Ok(directory) = root.directory(&format!("/sys/class/{class}/{name}")) else {
                continue;
            };
            let address = directory.link_name("device").known().and_then(|name| name.parse().ok());
            let Some(address) = address else { continue };
            let numbers = directory.observe("dev").known().and_then(|text| {
                let (major, minor) = text.split_once(':')?;
                Some((major.parse().ok()?, minor.parse().ok()?))
            });
            all.by_numbers.extend(numbers.map(|numbers| (numbers, address)));
            all.by_name.insert(name, address);
        }
        all
    }
}

impl NodeMap {
    /// From the parts of the snapshot, and the classes `drm`, `uio` and `accel` of `/sys/class`.
    pub fn new(root: &Root, devices: &[PciDevice], nvidia: &NvidiaDriver) -> Self {
        let mut groups: BTreeMap<u32, Vec<PciAddress>> = BTreeMap::new();
        for device in devices.iter().filter(|device| !device.is_bridge()) {
            if let Observed::Known(group) = device.group {
                groups.entry(group).or_default().push(device.address);
            }
        }
        let vfio_name = |device: &PciDevice| {
            device.vfio_device.known().map(|name| (name.clone(), device.address))
        };
        let bound = nvidia.gpus.known().cloned().unwrap_or_default();
        let nvidia = devices
            .iter()
            .filter(|device| device.is_gpu() && device.is_vendor(vendor::NVIDIA))
            .map(|device| device.address);
        Self {
            nvidia: nvidia.collect(),
            bound,
            groups,
            vfio: devices.iter().filter_map(vfio_name).collect(),
            dri: dri(root),
            uio: Class::read(root, "uio"),
            accel: Class::read(root, "accel"),
        }
    }

    /// Functions behind a node, or behind the nodes of a directory; empty where none can be told.
    /// Nodes that all GPUs share (`/dev/nvidiactl`, `/dev/nvidia-uvm`, `/dev/vfio/vfio`) name none.
    pub fn by_path(&self, path: &str) -> Vec<PciAddress> {
        // A container's tree may be seen from outside: `…/rootfs/dev/nvidia0`.
        let Some((_, name)) = path.rsplit_once("/dev/") else { return Vec::new() };
        let name = name.trim_end_matches('/');
        if let Some(minor) = name.strip_prefix("nvidia") {
            return minor.parse().map_or_else(|_| Vec::new(), |minor| self.by_minor(minor));
        }
        if name == "dri" {
            return distinct(self.dri.values().copied());
        }
        if let Some(node) = name.strip_prefix("dri/by-path/pci-") {
            let address = PciAddress::parse_prefix(node.as_bytes());
            return address.into_iter().map(|(address, _)| address).collect();
        }
        if let Some(node) = name.strip_prefix("dri/") {
            return self.dri.get(node).copied().into_iter().collect();
        }
        if let Some(node) = name.strip_prefix("vfio/devices/") {
            return self.vfio.get(node).copied().into_iter().collect();
        }
        if name.starts_with("uio") {
            return self.uio.by_name.get(name).copied().into_iter().collect();
        }
        if let Some(node) = name.strip_prefix("accel/") {
            return self.accel.by_name.get(node).copied().into_iter().collect();
        }
        let group = name.strip_prefix("vfio/").unwrap_or_default();
        let group = group.strip_prefix("noiommu-").unwrap_or(group).parse();
        group.ok().and_then(|group: u32| self.groups.get(&group).cloned()).unwrap_or_default()
    }

    /// Functions behind character device numbers; `None` stands for all. Every NVIDIA GPU counts
    /// for a rule over all minors, since one that VFIO holds now may come back to the driver.
    pub fn by_numbers(&self, major: Option<u32>, minor: Option<u32>) -> Vec<PciAddress> {
        let dri = |minor: u32| {
            let names = [format!("card{minor}"), format!("renderD{minor}")];
            names.iter().filter_map(|name| self.dri.get(name).copied()).collect()
        };
        match (major, minor) {
            (None, None) => distinct(self.nvidia.iter().chain(self.dri.values()).copied()),
            (Some(NVIDIA_MAJOR), None) => self.nvidia.clone(),
            (Some(NVIDIA_MAJOR), Some(minor)) => self.by_minor(minor),
            (Some(DRM_MAJOR), None) => distinct(self.dri.values().copied()),
            (Some(DRM_MAJOR), Some(minor)) => dri(minor),
            (Some(ACCEL_MAJOR), None) => distinct(self.accel.by_name.values().copied()),
            (Some(major), Some(minor)) => {
                let found = [&self.uio, &self.accel]
                    .into_iter()
                    .find_map(|class| class.by_numbers.get(&(major, minor)).copied());
                found.into_iter().collect()
            }
            _ => Vec::new(),
        }
    }

    /// Functions that `NVIDIA_VISIBLE_DEVICES` names: `all`, indices, UUIDs.
    pub fn visible(&self, value: &str) -> Vec<PciAddress> {
        if value == "all" {
            return self.nvidia.clone();
        }
        let one = |word: &str| {
            let by_uuid =
                self.bound.iter().find(|gpu| gpu.uuid.known().is_some_and(|id| id == word));
            let by_index = || self.bound.get(word.parse::<usize>().ok()?);
            by_uuid.or_else(by_index).map(|gpu| gpu.address)
        };
        distinct(value.split(',').map(str::trim).filter_map(one))
    }

    fn by_minor(&self, minor: u32) -> Vec<PciAddress> {
        self.bound
            .iter()
            .filter(|gpu| gpu.minor.known() == Some(&minor))
            .map(|gpu| gpu.address)
            .collect()
    }

    /// Members of a group that are not bridges.
    pub fn group(&self, id: u32) -> &[PciAddress] {
        self.groups.get(&id).map_or(&[], Vec::as_slice)
    }
}

/// In order, each once.
fn distinct(addresses: impl Iterator<Item = PciAddress>) -> Vec<PciAddress> {
    let mut addresses: Vec<PciAddress> = addresses.collect();
    addresses.sort_unstable();
    addresses.dedup();
    addresses
}

/// `/sys/class/drm/*/device`; connectors (`card0-DP-1`) are left out.
fn dri(root: &Root) -> BTreeMap<String, PciAddress> {
    let names = root.list("/sys/class/drm").unwrap_or_default();
    names
        .into_iter()
        .filter(|name| {
            let digits = name.strip_prefix("card").or_else(|| name.strip_prefix("renderD"));
            digits.is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
        })
        .filter_map(|name| {
            let directory = root.directory(&format!("/sys/class/drm/{name}")).ok()?;
            let address = directory.link_name("device").known()?.parse().ok()?;
            Some((name, address))
        })
        .collect()
}
