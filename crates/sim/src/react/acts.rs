//! Every act of a plan: what is in place, and what the act does.

use peerway_core::address::PciAddress;
use peerway_read::tree::Node;
use peerway_roads::Op;
use peerway_roads::op::{ENVIRONMENT_FILE, Found};
use peerway_roads::service::{Manager, Service};
use rustix::io::Errno;

use super::group_type::{Answer, Asked, answer};
use super::state::Kept;
use super::{SimError, SimHost};

/// Mode of a device node that nobody changed: the driver's default (`NVreg_DeviceFileMode`).
const NODE_MODE: u32 = 0o666;
/// Extended capability number of ACS, and where its control word stands in it (PCIe 7.7.11).
const ACS_CAPABILITY: u32 = 0x0d;
const ACS_CONTROL: u64 = 6;
/// Level of informational records.
const INFO: u8 = 6;

impl SimHost {
    pub(super) fn found(&self, act: &Op) -> Result<Found, SimError> {
        let yes = |is: bool, word: &str| {
            if is { Found::Value(word.to_owned()) } else { Found::Nothing }
        };
        Ok(match act {
            Op::WriteEnvironment { .. } | Op::RemoveEnvironment => {
                match self.root().read(ENVIRONMENT_FILE, peerway_read::root::SMALL) {
                    Ok(bytes) => Found::Value(String::from_utf8_lossy(&bytes).into_owned()),
                    Err(_) => Found::Nothing,
                }
            }
            Op::Install { path, .. } | Op::Uninstall { path } => {
                match self.root().read(path, peerway_read::root::LARGE) {
                    Ok(bytes) => Found::Value(String::from_utf8_lossy(&bytes).into_owned()),
                    Err(_) => Found::Nothing,
                }
            }
            Op::Stop { service } | Op::Start { service } | Op::Restart { service } => {
                yes(!self.processes_of(service).is_empty(), "running")
            }
            Op::Fence { node, .. } | Op::Unfence { node } => {
                let mode = self.state.modes.get(node).copied().unwrap_or(NODE_MODE);
                Found::Value(mode.to_string())
            }
            Op::Persistence { device, .. } | Op::RestorePersistence { device } => {
                let on = self.state.persistent.contains(device);
                Found::Value(if on { "on" } else { "off" }.to_owned())
            }
            Op::SetOverride { device, .. } | Op::ClearOverride { device } => {
                let path = self.need_path(*device)?;
                match self.text(&format!("{path}/driver_override")).as_deref() {
                    None | Some("(null)" | "") => Found::Nothing,
                    Some(driver) => Found::Value(driver.to_owned()),
                }
            }
            Op::Unbind { device, .. } | Op::Probe { device, .. } | Op::Reset { device } => {
                self.need_path(*device)?;
                self.driver_of(*device).map_or(Found::Nothing, Found::Value)
            }
            Op::WriteGroupType { member, .. } => {
                let group = self.group_of(*member).ok_or(SimError::Errno(Errno::NOENT))?;
                self.type_of(group).map_or(Found::Nothing, Found::Value)
            }
            Op::WriteAcs { port, .. } => {
                let (_, control) = self.acs(*port)?;
                Found::Value(control.to_string())
            }
            Op::LoadModule { module } | Op::UnloadModule { module } => {
                yes(self.names(&format!("/sys/module/{module}")).is_ok(), "loaded")
            }
            Op::Map(entry) | Op::Unmap(entry) => yes(self.state.entries.contains(entry), "mapped"),
            Op::Wait { .. } | Op::Nothing => Found::Nothing,
        })
    }

    pub(super) fn act(&mut self, act: &Op) -> Result<(), SimError> {
        match act {
            Op::WriteEnvironment { content, .. } => {
                self.put_node(ENVIRONMENT_FILE, Node::File(content.clone().into_bytes()));
            }
            Op::RemoveEnvironment => {
                self.edit().remove(ENVIRONMENT_FILE);
            }
            Op::Install { path, content, .. } => {
                self.put_node(path, Node::File(content.clone().into_bytes()));
            }
            Op::Uninstall { path } => {
                self.edit().remove(path);
            }
            Op::Stop { service } => self.stop(service),
            Op::Start { service } => self.start(service),
            Op::Fence { node, mode } => {
                self.state.modes.insert(node.clone(), *mode);
                self.state.modes.retain(|_, mode| *mode != NODE_MODE);
            }
            Op::Persistence { device, on: true } => {
                self.state.persistent.insert(*device);
            }
            Op::Persistence { device, on: false } => {
                self.state.persistent.remove(device);
                self.finish_unbinding();
            }
            Op::SetOverride { device, driver } => {
                let path = self.need_path(*device)?;
                self.put(&format!("{path}/driver_override"), driver);
            }
            Op::ClearOverride { device } => {
                let path = self.need_path(*device)?;
                self.put(&format!("{path}/driver_override"), "(null)");
            }
            Op::Unbind { device, driver } => self.unbind(*device, driver)?,
            Op::Probe { device, .. } => self.probe(*device)?,
            Op::Reset { device } => self.reset(*device)?,
            Op::WriteGroupType { member, to, .. } => self.write_type(*member, to)?,
            Op::WriteAcs { port, mask, bits } => {
                let (offset, control) = self.acs(*port)?;
                self.write_config(*port, offset, control & !mask | bits & mask)?;
            }
            Op::LoadModule { module } => {
                if self.state.no_module {
                    return Err(SimError::Errno(Errno::NOENT));
                }
                self.put(&format!("/sys/module/{module}/initstate"), "live");
                self.show_entries();
            }
            Op::UnloadModule { module } => {
                // Each entry pins the module.
                if !self.state.entries.is_empty() {
                    return Err(SimError::Errno(Errno::BUSY));
                }
                self.edit().remove(&format!("/sys/module/{module}"));
                self.show_entries();
            }
            Op::Map(entry) => self.map(entry)?,
            Op::Unmap(entry) => {
                if !self.state.entries.remove(entry) {
                    return Err(SimError::Errno(Errno::NOENT));
                }
                self.show_entries();
            }
            Op::Restart { .. } | Op::Unfence { .. } | Op::RestorePersistence { .. } => {
                return Err(SimError::NoRule(format!(
                    "{} without what the journal has",
                    act.word()
                )));
            }
            Op::Wait { .. } | Op::Nothing => {}
        }
        Ok(())
    }

    pub(super) fn need_path(&self, device: PciAddress) -> Result<String, SimError> {
        self.device_path(device).ok_or(SimError::Errno(Errno::NODEV))
    }

    fn write_type(&mut self, member: PciAddress, word: &str) -> Result<(), SimError> {
        let group = self.group_of(member).ok_or(SimError::Errno(Errno::NOENT))?;
        let members = self.members(group);
        let current = self.type_of(group).ok_or(SimError::Errno(Errno::NOENT))?;
        let drivers: Vec<String> = members.iter().filter_map(|one| self.driver_of(*one)).collect();
        let external = |one: &PciAddress| {
            let path = self.device_path(*one)?;
            self.text(&format!("{path}/removable"))
        };
        let untrusted = members.iter().any(|one| external(one).as_deref() == Some("removable"));
        let resetting = self.state.resets_in_progress > 0;
        self.state.resets_in_progress = self.state.resets_in_progress.saturating_sub(1);
        let asked = Asked {
            version: self.facts.version,
            current: &current,
            word,
            devices: members.len(),
            drivers: &drivers,
            held: self.group_is_held(group),
            snp: self.facts.snp,
            mode_zero: self.facts.mode_zero,
            untrusted,
            pass_through: self.facts.hardware_pass_through,
            resetting,
        };
        match answer(&asked) {
            Answer::Taken(word) => {
                let word = match word {
                    "DMA-FQ" if self.state.no_flush_queue => "DMA",
                    other => other,
                };
                self.put(&format!("/sys/kernel/iommu_groups/{group}/type"), word);
                Ok(())
            }
            Answer::Refused(errno, text) => {
                if let Some(text) = text {
                    self.log(INFO, text, None);
                }
                Err(SimError::Errno(errno))
            }
        }
    }

    /// Processes whose control group belongs to a service.
    fn processes_of(&self, service: &Service) -> Vec<String> {
        let name = &service.name;
        let part = match service.manager {
            Manager::Pct | Manager::Lxc => format!("/lxc/{name}/"),
            Manager::Qm => format!("/{name}.scope"),
            Manager::Docker | Manager::Podman => format!("docker-{name}"),
            Manager::Virsh => format!("-{name}.scope"),
            Manager::Unit if name.contains('.') => format!("/{name}"),
            Manager::Unit => format!("/{name}.service"),
        };
        let names = self.names("/proc").unwrap_or_default();
        names
            .into_iter()
            .filter(|pid| pid.bytes().all(|byte| byte.is_ascii_digit()))
            .filter(|pid| {
                let group = self.text(&format!("/proc/{pid}/cgroup"));
                group.is_some_and(|group| format!("{group}/").contains(&part))
            })
            .collect()
    }

    fn stop(&mut self, service: &Service) {
        let processes = self.processes_of(service);
        let mut kept = Vec::new();
        for pid in &processes {
            kept.extend(self.below(&format!("/proc/{pid}")).into_iter().map(|(path, node)| {
                match node {
                    Node::Link(target) => Kept { path, link: Some(target), text: String::new() },
                    Node::File(bytes) => {
                        let text = String::from_utf8_lossy(&bytes).into_owned();
                        Kept { path, link: None, text }
                    }
                    _ => Kept { path, link: None, text: String::new() },
                }
            }));
            self.edit().remove(&format!("/proc/{pid}"));
        }
        if !kept.is_empty() {
            self.state.services.insert(service.to_string(), kept);
        }
        self.finish_unbinding();
    }

    fn start(&mut self, service: &Service) {
        for one in self.state.services.remove(&service.to_string()).unwrap_or_default() {
            match one.link {
                Some(target) => self.put_link(&one.path, &target),
                None => self.put_node(&one.path, Node::File(one.text.into_bytes())),
            }
        }
    }

    /// Where a port's ACS control word stands in its configuration space, and the word.
    fn acs(&self, port: PciAddress) -> Result<(u64, u16), SimError> {
        let path = format!("{}/config", self.need_path(port)?);
        let missing = SimError::Errno(Errno::NXIO);
        let id = self.tree.find(0, &path, true).map_err(|_| missing.clone())?;
        let word = |offset: u64| -> Option<u32> {
            let bytes = self.tree.read_at(id, offset, 4).ok()?;
            Some(u32::from_le_bytes(bytes.try_into().ok()?))
        };
        let mut at = 0x100;
        // A list that goes round ends here: no more capabilities fit into 4096 bytes.
        for _ in 0..1024 {
            let header = word(at).ok_or(missing.clone())?;
            if header & 0xffff == ACS_CAPABILITY {
                let offset = at + ACS_CONTROL;
                let bytes = self.tree.read_at(id, offset, 2).map_err(|_| missing.clone())?;
                let control = bytes.try_into().map_err(|_| missing)?;
                return Ok((offset, u16::from_le_bytes(control)));
            }
            at = u64::from(header >> 20);
            if at < 0x100 {
                break;
            }
        }
        Err(missing)
    }

    fn write_config(&mut self, port: PciAddress, offset: u64, word: u16) -> Result<(), SimError> {
        let path = format!("{}/config", self.need_path(port)?);
        let missing = SimError::Errno(Errno::NXIO);
        let id = self.tree.find(0, &path, true).map_err(|_| missing.clone())?;
        let mut node = self.tree.node(id).cloned().ok_or(missing.clone())?;
        let place = |bytes: &mut Vec<u8>, start: u64| {
            let from = usize::try_from(offset.checked_sub(start)?).ok()?;
            bytes.get_mut(from..from + 2)?.copy_from_slice(&word.to_le_bytes());
            Some(())
        };
        let done = match &mut node {
            Node::File(bytes) => place(bytes, 0),
            Node::Sparse { parts, .. } => {
                parts.iter_mut().find_map(|(start, bytes)| place(bytes, *start))
            }
            _ => None,
        };
        done.ok_or(missing)?;
        self.put_node(&path, node);
        Ok(())
    }
}
