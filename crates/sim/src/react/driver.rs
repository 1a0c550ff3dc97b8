//! Binding and unbinding.

use peerway_core::address::PciAddress;
use peerway_read::tree::Node;
use rustix::io::Errno;

use super::group_type::rejects_all_dma;
use super::{SimError, SimHost, line};

/// The driver that hands devices to user space, and its nodes.
const USER_SPACE: &str = "uio_pci_generic";
const USER_NODES: &str = "/sys/class/uio";
const NVIDIA_GPUS: &str = "/proc/driver/nvidia/gpus";
const ERROR: u8 = 3;
const INFO: u8 = 6;

impl SimHost {
    pub(super) fn driver_of(&self, device: PciAddress) -> Option<String> {
        let link = self.root().link(&format!("/sys/bus/pci/devices/{device}/driver")).ok()?;
        link.rsplit('/').next().map(str::to_owned)
    }

    /// Processes that hold a node.
    fn held(&self, test: impl Fn(&str) -> bool) -> bool {
        let names = self.names("/proc").unwrap_or_default();
        names.iter().filter(|pid| pid.bytes().all(|byte| byte.is_ascii_digit())).any(|pid| {
            let open = self.names(&format!("/proc/{pid}/fd")).unwrap_or_default();
            open.iter().any(|number| {
                self.root().link(&format!("/proc/{pid}/fd/{number}")).is_ok_and(|to| test(&to))
            })
        })
    }

    /// Whether a VFIO container holds a group.
    pub(super) fn group_is_held(&self, group: u32) -> bool {
        let node = format!("/dev/vfio/{group}");
        self.held(|path| path == node)
    }

    fn minor_of(&self, device: PciAddress) -> Option<u32> {
        let text = self.text(&format!("{NVIDIA_GPUS}/{device}/information"))?;
        let line = text.lines().find_map(|line| line.strip_prefix("Device Minor:"))?;
        line.trim().parse().ok()
    }

    /// Whether the driver's removal has to wait: the usage count of an NVIDIA GPU, or a VFIO
    /// device that is open (`vfio_unregister_group_dev`).
    fn is_used(&self, device: PciAddress, driver: &str) -> bool {
        match driver {
            "nvidia" => {
                let node = self.minor_of(device).map(|minor| format!("/dev/nvidia{minor}"));
                self.state.persistent.contains(&device)
                    || node.is_some_and(|node| self.held(|path| path == node))
            }
            "vfio-pci" => self.group_of(device).is_some_and(|group| self.group_is_held(group)),
            _ => false,
        }
    }

    /// `/sys/bus/pci/drivers/DRIVER/unbind` (`drivers/base/bus.c`, `unbind_store`).
    pub(super) fn unbind(&mut self, device: PciAddress, driver: &str) -> Result<(), SimError> {
        // A second write waits for the device's lock.
        if self.is_stuck(device) {
            return Err(SimError::Hangs);
        }
        if self.driver_of(device).as_deref() != Some(driver) {
            return Err(SimError::Errno(Errno::NODEV));
        }
        if self.is_used(device, driver) {
            if driver == "nvidia" {
                let text = format!(
                    "NVRM: Attempting to remove device {device} with non-zero usage count!"
                );
                self.log(ERROR, &text, None);
            }
            self.state.stuck.insert(device, driver.to_owned());
            return Err(SimError::Hangs);
        }
        self.release(device, driver);
        Ok(())
    }

    /// Unbindings that waited go on where nobody holds the device any more.
    pub(super) fn finish_unbinding(&mut self) {
        let free: Vec<_> = self
            .state
            .stuck
            .iter()
            .filter(|(device, driver)| !self.is_used(**device, driver))
            .map(|(device, driver)| (*device, driver.clone()))
            .collect();
        for (device, driver) in free {
            self.state.stuck.remove(&device);
            if driver == "nvidia" {
                let text = format!("NVRM: Continuing with GPU removal for device {device}");
                self.log(INFO, &text, None);
            }
            self.release(device, &driver);
        }
    }

    fn release(&mut self, device: PciAddress, driver: &str) {
        let Some(path) = self.device_path(device) else { return };
        self.edit().remove(&format!("{path}/driver"));
        self.name_driver(&path, None);
        self.edit().remove(&format!("/sys/bus/pci/drivers/{driver}/{device}"));
        self.state.home.insert(device, driver.to_owned());
        if let Some(node) = self.user_node(device) {
            self.edit().remove(&format!("{USER_NODES}/{node}"));
        }
        // The map's module hears of the removal and drops every entry of either side.
        self.state.entries.retain(|entry| entry.requester != device && entry.target != device);
        self.show_entries();
        if driver == "nvidia" {
            let directory = format!("{NVIDIA_GPUS}/{device}");
            let kept = self.below(&directory).into_iter().filter_map(|(path, node)| {
                let name = path.strip_prefix(&directory)?.trim_start_matches('/').to_owned();
                match node {
                    Node::File(bytes) => Some((name, String::from_utf8_lossy(&bytes).into_owned())),
                    _ => None,
                }
            });
            let kept = kept.collect();
            self.state.information.insert(device, kept);
            self.edit().remove(&directory);
        }
    }

    /// The driver's line of `uevent`, the first one (`drivers/base/core.c`, `dev_uevent`).
    fn name_driver(&mut self, path: &str, driver: Option<&str>) {
        let uevent = format!("{path}/uevent");
        let Some(text) = self.text(&uevent) else { return };
        let rest = text.lines().filter(|line| !line.starts_with("DRIVER="));
        let own = driver.map(|name| format!("DRIVER={name}"));
        let lines: Vec<&str> = own.as_deref().into_iter().chain(rest).collect();
        self.put(&uevent, &lines.join("\n"));
    }

    /// Gives each function the link to its driver that a recording lacks: the reader takes the driver
    /// from `uevent` where it can, and a capture has what was read.
    pub(super) fn link_drivers(&mut self) {
        let names = self.names("/sys/bus/pci/devices").unwrap_or_default();
        for device in names.iter().filter_map(|name| name.parse::<PciAddress>().ok()) {
            let Some(path) = self.device_path(device) else { continue };
            if self.driver_of(device).is_some() {
                continue;
            }
            let text = self.text(&format!("{path}/uevent")).unwrap_or_default();
            let driver = text.lines().find_map(|line| line.strip_prefix("DRIVER="));
            if let Some(driver) = driver.map(str::to_owned) {
                let directory = format!("/sys/bus/pci/drivers/{driver}");
                let link = super::files::relative(&path, &directory);
                self.put_link(&format!("{path}/driver"), &link);
                let link = super::files::relative(&directory, &path);
                self.put_link(&format!("{directory}/{device}"), &link);
            }
        }
    }

    /// Somebody loads a driver and gives it a device, leaving no override behind.
    pub(super) fn give(&mut self, device: PciAddress, driver: &str) -> Result<(), SimError> {
        let path = self.need_path(device)?;
        self.put(&format!("/sys/bus/pci/drivers/{driver}/uevent"), "");
        if let Some(old) = self.driver_of(device) {
            self.unbind(device, &old)?;
        }
        self.put(&format!("{path}/driver_override"), driver);
        self.probe(device)?;
        self.put(&format!("{path}/driver_override"), "(null)");
        Ok(())
    }

    /// `/sys/bus/pci/drivers_probe`: whatever comes of it, the write succeeds.
    pub(super) fn probe(&mut self, device: PciAddress) -> Result<(), SimError> {
        let path = self.need_path(device)?;
        if self.is_stuck(device) {
            return Err(SimError::Hangs);
        }
        if self.driver_of(device).is_some() {
            return Ok(());
        }
        let wanted = self.text(&format!("{path}/driver_override"));
        let driver = match wanted.as_deref() {
            None | Some("(null)" | "") => self.state.home.get(&device).cloned(),
            Some(driver) => Some(driver.to_owned()),
        };
        let Some(driver) = driver else { return Ok(()) };
        if self.names(&format!("/sys/bus/pci/drivers/{driver}")).is_err() {
            return Ok(());
        }
        let group = self.group_of(device);
        let is_identity =
            group.and_then(|group| self.type_of(group)).as_deref() == Some("identity");
        if is_identity && self.state.refuses_identity.contains(&driver) {
            let text =
                format!("{driver} {device}: probe with driver {driver} failed with error -5");
            self.log(ERROR, &text, Some(device));
            return Ok(());
        }
        if driver != "vfio-pci" && group.is_some_and(|group| self.group_is_held(group)) {
            let text =
                format!("{driver} {device}: probe with driver {driver} failed with error -16");
            self.log(ERROR, &text, Some(device));
            return Ok(());
        }
        let link = super::files::relative(&path, &format!("/sys/bus/pci/drivers/{driver}"));
        self.put_link(&format!("{path}/driver"), &link);
        self.name_driver(&path, Some(&driver));
        let directory = format!("/sys/bus/pci/drivers/{driver}");
        let back = super::files::relative(&directory, &path);
        self.put_link(&format!("{directory}/{device}"), &back);
        match driver.as_str() {
            "nvidia" => self.nvidia_appears(device),
            USER_SPACE => self.user_node_appears(&path),
            _ => {}
        }
        Ok(())
    }

    /// `reset` of a function (`drivers/pci/pci-sysfs.c`, `reset_store`): there where the kernel knows a
    /// method.
    pub(super) fn reset(&mut self, device: PciAddress) -> Result<(), SimError> {
        let path = self.need_path(device)?;
        if self.is_stuck(device) {
            return Err(SimError::Hangs);
        }
        let methods = self.text(&format!("{path}/reset_method")).unwrap_or_default();
        if methods.trim().is_empty() {
            return Err(SimError::Errno(Errno::NOENT));
        }
        self.state.latched.remove(&device);
        Ok(())
    }

    /// The nodes of devices that user space has already: a recording holds them only where somebody had
    /// one open.
    pub(super) fn name_user_nodes(&mut self) {
        let names = self.names(&format!("/sys/bus/pci/drivers/{USER_SPACE}")).unwrap_or_default();
        let devices: Vec<PciAddress> = self
            .names("/sys/bus/pci/devices")
            .unwrap_or_default()
            .iter()
            .chain(&names)
            .filter_map(|name| name.parse().ok())
            .filter(|device| self.driver_of(*device).as_deref() == Some(USER_SPACE))
            .collect();
        for device in devices {
            if self.user_node(device).is_none()
                && let Some(path) = self.device_path(device)
            {
                self.user_node_appears(&path);
            }
        }
    }

    /// Name of a device's node below [`USER_NODES`].
    fn user_node(&self, device: PciAddress) -> Option<String> {
        self.names(USER_NODES).unwrap_or_default().into_iter().find(|name| {
            let link = self.root().link(&format!("{USER_NODES}/{name}/device"));
            link.is_ok_and(|link| link.rsplit('/').next() == Some(device.to_string().as_str()))
        })
    }

    fn user_node_appears(&mut self, path: &str) {
        let names = self.names(USER_NODES).unwrap_or_default();
        let free = (0..u32::MAX).map(|number| format!("uio{number}"));
        let Some(name) = free.into_iter().find(|name| !names.contains(name)) else { return };
        let directory = format!("{USER_NODES}/{name}");
        let link = super::files::relative(&directory, path);
        self.put_link(&format!("{directory}/device"), &link);
    }

    fn nvidia_appears(&mut self, device: PciAddress) {
        let names = self.names(NVIDIA_GPUS).unwrap_or_default();
        let taken: Vec<u32> = names
            .iter()
            .filter_map(|name| name.parse().ok())
            .filter_map(|one| self.minor_of(one))
            .collect();
        let minor = (0..u32::MAX).find(|number| !taken.contains(number)).unwrap_or(0);
        let kept = self.state.information.remove(&device).unwrap_or_default();
        for (name, text) in kept {
            let lines = text.lines().map(|old| match old.split_once(':') {
                Some(("Device Minor", _)) => format!("Device Minor: \t {minor}"),
                _ => old.to_owned(),
            });
            let text = lines.collect::<Vec<_>>().join("\n");
            let node = line(&text);
            self.put_node(&format!("{NVIDIA_GPUS}/{device}/{name}"), node);
        }
        self.board_comes_up(device, minor);
    }

    fn board_comes_up(&mut self, device: PciAddress, minor: u32) {
        let Some(current) = self.group_of(device).and_then(|group| self.type_of(group)) else {
            return;
        };
        let facts = self.facts;
        let rejected = rejects_all_dma(&current, facts.version, facts.snp, facts.mode_zero);
        if rejected {
            let text = format!(
                "iommu ivhd0: AMD-Vi: Event logged [ILLEGAL_DEV_TABLE_ENTRY device={device} pasid=0x00000 \
                 address=0x3f8b2c0000 flags=0x0020]"
            );
            self.log(ERROR, &text, None);
        }
        let latched = self.state.latched.contains(&device);
        if latched {
            let text = "NVRM: unexpected WPR2 already up, cannot proceed with booting GSP";
            self.log(ERROR, text, None);
        }
        let fails = rejected
            || latched
            || self.state.fails_under_identity && current == "identity"
            || self.state.fails_when_rebound;
        if fails {
            if self.state.fails_until_reset {
                self.state.latched.insert(device);
            }
            for text in [
                format!(
                    "NVRM: GPU{minor} kfspSendBootCommands_GH100: FSP boot cmds failed. RM cannot boot."
                ),
                format!("NVRM: GPU {device}: RmInitAdapter failed! (0x62:0x65:2027)"),
                format!("NVRM: GPU {device}: rm_init_adapter failed, device minor number {minor}"),
            ] {
                self.log(ERROR, &text, None);
            }
        }
    }
}
