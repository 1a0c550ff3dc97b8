//! This machine, changed by exactly the acts that a plan names.
//!
//! Files of the kernel are written by a child, one at a time and with a deadline ([`blocking`]): a
//! driver may keep a write for ever, and a process that waits in the kernel cannot be ended. What the
//! child still does after its parent is gone is seen by the next command and waited for.

pub mod blocking;
mod fence;
mod files;
mod gates;
mod guest;
mod limits;
mod peer_map;
mod persistence;
mod program;
mod refusal;
mod registers;
mod service;
#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::time::Duration;

use peerway_core::address::PciAddress;
use peerway_core::observed::Observed;
use peerway_core::snapshot::tenant::Holder;
use peerway_core::snapshot::{Gap, Snapshot};
use peerway_read::root::{Root, SMALL};
use peerway_roads::op::{ENVIRONMENT_FILE, Found, PEER_MAP_MODULE};
use peerway_roads::{Op, Plan, lasting};
use rustix::io::Errno;
use rustix::time::ClockId;

use crate::mutator::{Copied, Host, Mutator, WriteError, spell};
use blocking::{Blocking, Written};
use files::Files;
use limits::Limits;

/// What drivers of GPUs take to let a device go, many times over.
const UNBIND_PATIENCE: Duration = Duration::from_mins(1);
/// A GPU with its firmware takes tens of seconds to come up.
const PROBE_PATIENCE: Duration = Duration::from_mins(3);
/// The kernel waits a minute for a device after each method that it tries (`PCIE_RESET_READY_POLL_MS`).
const RESET_PATIENCE: Duration = Duration::from_mins(5);
/// Mode of files that anybody may read.
const READABLE: u32 = 0o644;
/// Everything else is a matter of moments, unless the device's lock is held.
const PATIENCE: Duration = Duration::from_secs(30);

/// What a live host needs others for: looking at it all, which stands behind walls of its own, and
/// copying between its devices.
pub trait Eyes: std::fmt::Debug {
    /// A fresh look at everything.
    fn snapshot(&self) -> Result<Snapshot, String>;
    /// Who holds devices now, and what could not be looked into; the devices are those of the last
    /// look.
    fn holders(&self) -> Result<(Observed<Vec<Holder>>, Vec<Gap>), String>;
    /// A root for single files.
    fn root(&self) -> Result<Root, String>;
    /// Keeps the files that it looks with for a transaction that is about to begin.
    fn keep_for(&self, id: &str) -> Result<(), String>;
    /// Looks with what was kept for a transaction from here on; where that cannot be had, each look
    /// says so.
    fn take_up(&self, id: &str);
    /// Whether the initramfs of the running kernel carries a driver's module.
    fn initramfs_has(&self, driver: &str) -> Result<bool, String>;
    /// Whether [`Eyes::copy`] has what it needs; if not, what is missing.
    fn can_copy(&self) -> Result<(), String>;
    /// Copies from one device into the memory of another, and says what came of it.
    fn copy(&self, from: PciAddress, to: PciAddress) -> Result<Copied, String>;
}

/// This machine.
#[derive(Debug)]
pub struct LiveHost {
    eyes: Box<dyn Eyes>,
    /// Where `/` is.
    place: PathBuf,
    files: Files,
    blocking: Blocking,
    limits: Limits,
    /// Roads that were not proved through crashes are taken all the same.
    unproved: bool,
}

impl LiveHost {
    /// The machine whose `/` is there, with the directory that keeps its journal, and the program
    /// that [`blocking::child`] runs in.
    pub fn new(
        eyes: Box<dyn Eyes>,
        root: &std::path::Path,
        state: PathBuf,
        program: PathBuf,
    ) -> Result<Self, WriteError> {
        let files = Files::open(root).map_err(|errno| WriteError::Refused {
            act: format!("opening {}", root.display()),
            errno,
        })?;
        Ok(Self {
            eyes,
            place: root.to_owned(),
            files,
            blocking: Blocking::new(state, program),
            limits: Limits::default(),
            unproved: false,
        })
    }

    fn unreadable(act: &Op, why: String) -> WriteError {
        WriteError::Unreadable { act: spell(act), why }
    }

    /// Writes a word to a file of the kernel, in a child.
    fn write(&self, act: &Op, path: &str, word: &str, limit: Duration) -> Result<(), WriteError> {
        let refused = |errno| WriteError::Refused { act: spell(act), errno };
        let file = self.files.of_kernel(path).map_err(refused)?;
        match self.blocking.write(file, word, &spell(act), limit) {
            Ok(Written::Done) => Ok(()),
            Ok(Written::Refused(errno)) => Err(refused(errno)),
            Ok(Written::Hangs) => Err(WriteError::Hangs { act: spell(act) }),
            Err(why) => Err(WriteError::NotOffered { act: spell(act), why }),
        }
    }

    /// The directory of the group that a device is in now: numbers change, members tell.
    fn group(&self, act: &Op, member: PciAddress) -> Result<u32, WriteError> {
        let root = Host::root(self)?;
        let link = root
            .link(&format!("/sys/bus/pci/devices/{member}/iommu_group"))
            .map_err(|error| Self::unreadable(act, error.to_string()))?;
        let number = link.rsplit('/').next().and_then(|name| name.parse().ok());
        number.ok_or_else(|| Self::unreadable(act, format!("{member} is in {link:?}")))
    }

    /// Only where the group still has the members that the plan saw: a group that another function
    /// joined is not the one that was asked about.
    fn write_type(&self, act: &Op, member: PciAddress, to: &str) -> Result<(), WriteError> {
        let group = self.group(act, member)?;
        let directory = format!("/sys/kernel/iommu_groups/{group}");
        let mut members = Host::root(self)?
            .list(&format!("{directory}/devices"))
            .map_err(|error| Self::unreadable(act, error.to_string()))?;
        members.sort();
        self.limits
            .group(member, &members)
            .map_err(|why| WriteError::NotOffered { act: spell(act), why })?;
        if to == "identity" {
            self.members_are_free(act, &members)?;
        }
        self.write(act, &format!("{directory}/type"), to, PATIENCE)
    }
}

impl LiveHost {
    /// What a file of ours holds.
    fn content(&self, act: &Op, path: &str) -> Result<Found, WriteError> {
        match self.files.whole(path) {
            Ok(bytes) => Ok(Found::Value(String::from_utf8_lossy(&bytes).into_owned())),
            Err(Errno::NOENT) => Ok(Found::Nothing),
            Err(errno) => Err(WriteError::Refused { act: spell(act), errno }),
        }
    }

    /// No member may have a driver but that of a port, whatever the kernel would allow: it takes
    /// the write beside an idle `vfio-pci`, whose guest would then get an untranslated device.
    fn members_are_free(&self, act: &Op, members: &[String]) -> Result<(), WriteError> {
        let root = Host::root(self)?;
        for name in members {
            match root.link(&format!("/sys/bus/pci/devices/{name}/driver")) {
                Err(error) if error.is_absent() => {}
                Ok(link) if link.rsplit('/').next() == Some("pcieport") => {}
                Ok(link) => {
                    let driver = link.rsplit('/').next().unwrap_or_default();
                    let why = format!("{name} is bound to {driver}");
                    return Err(WriteError::NotOffered { act: spell(act), why });
                }
                Err(error) => return Err(Self::unreadable(act, error.to_string())),
            }
        }
        Ok(())
    }

    /// Why what is to be set before the driver binds would come too late.
    fn in_initramfs(&self, plan: &Plan) -> Option<String> {
        let sets = |act: &Op| matches!(act, Op::Install { path, .. } if path == lasting::PLAN);
        if !plan.steps.iter().any(|step| sets(&step.act)) {
            return None;
        }
        let drivers = plan.steps.iter().filter_map(|step| match &step.act {
            Op::Unbind { driver, .. } => Some(driver.as_str()),
            _ => None,
        });
        let drivers: std::collections::BTreeSet<&str> = drivers.collect();
        drivers.into_iter().find_map(|driver| match self.eyes.initramfs_has(driver) {
            Ok(false) => None,
            Ok(true) => Some(format!(
                "the initramfs carries {driver}, which binds before anything can be set: take it \
                 out of the initramfs, or leave --last away"
            )),
            Err(why) => Some(format!("whether the initramfs carries {driver} is unknown: {why}")),
        })
    }

    /// Carries out what was not proved through crashes on a real kernel, because the operator asks
    /// for exactly that.
    pub fn accept_unproved(&mut self) {
        self.unproved = true;
    }
}

impl Mutator for LiveHost {
    fn current(&self, act: &Op) -> Result<Found, WriteError> {
        let root = Host::root(self)?;
        let text = |path: &str| {
            root.text(path, SMALL).map_err(|error| Self::unreadable(act, error.to_string()))
        };
        let yes = |is: bool, word: &str| {
            if is { Found::Value(word.to_owned()) } else { Found::Nothing }
        };
        Ok(match act {
            Op::WriteEnvironment { .. } | Op::RemoveEnvironment => {
                self.content(act, ENVIRONMENT_FILE)?
            }
            Op::Install { path, .. } | Op::Uninstall { path } => self.content(act, path)?,
            Op::Fence { node, .. } | Op::Unfence { node } => match fence::mode(&self.files, node) {
                Ok(mode) => Found::Value(mode.to_string()),
                Err(Errno::NOENT) => Found::Nothing,
                Err(errno) => return Err(WriteError::Refused { act: spell(act), errno }),
            },
            Op::SetOverride { device, .. } | Op::ClearOverride { device } => {
                match text(&format!("/sys/bus/pci/devices/{device}/driver_override"))?.as_str() {
                    "(null)" | "" => Found::Nothing,
                    driver => Found::Value(driver.to_owned()),
                }
            }
            Op::Unbind { device, .. } | Op::Probe { device, .. } | Op::Reset { device } => {
                let directory = format!("/sys/bus/pci/devices/{device}");
                // A device that is gone is not one without a driver.
                text(&format!("{directory}/vendor"))?;
                match root.link(&format!("{directory}/driver")) {
                    Ok(link) => {
                        Found::Value(link.rsplit('/').next().unwrap_or_default().to_owned())
                    }
                    Err(error) if error.is_absent() => Found::Nothing,
                    Err(error) => return Err(Self::unreadable(act, error.to_string())),
                }
            }
            Op::WriteGroupType { member, .. } => {
                let group = self.group(act, *member)?;
                Found::Value(text(&format!("/sys/kernel/iommu_groups/{group}/type"))?)
            }
            Op::WriteAcs { port, .. } => {
                let (_, control) = registers::acs(&self.files, *port)
                    .map_err(|errno| WriteError::Refused { act: spell(act), errno })?;
                Found::Value(control.to_string())
            }
            // One that does not speak as this program does is not loaded for it.
            Op::LoadModule { module } if module == PEER_MAP_MODULE => {
                yes(peer_map::loaded(&root).map_err(|why| Self::unreadable(act, why))?, "loaded")
            }
            Op::Map(_) | Op::Unmap(_) => {
                peer_map::current(&root, act).map_err(|why| Self::unreadable(act, why))?
            }
            Op::LoadModule { module } | Op::UnloadModule { module } => {
                let there = match root.list(&format!("/sys/module/{module}")) {
                    Ok(_) => true,
                    Err(error) if error.is_absent() => false,
                    // Nobody could tell, which is not "unloaded".
                    Err(error) => return Err(Self::unreadable(act, error.to_string())),
                };
                yes(there, "loaded")
            }
            Op::Stop { service } | Op::Start { service } | Op::Restart { service } => {
                self.service(act, service)?
            }
            Op::Persistence { device, .. } | Op::RestorePersistence { device } => {
                self.persistence(act, *device)?
            }
            Op::Wait { .. } | Op::Nothing => Found::Nothing,
        })
    }

    fn perform(&mut self, act: &Op) -> Result<(), WriteError> {
        self.limits.allows(act).map_err(|why| WriteError::NotOffered { act: spell(act), why })?;
        let refused = |errno| WriteError::Refused { act: spell(act), errno };
        let file =
            |device: &PciAddress, name: &str| format!("/sys/bus/pci/devices/{device}/{name}");
        match act {
            Op::WriteEnvironment { content, .. } => {
                self.files.replace(ENVIRONMENT_FILE, READABLE, content.as_bytes()).map_err(refused)
            }
            Op::RemoveEnvironment => self.files.remove(ENVIRONMENT_FILE).map_err(refused),
            Op::Install { path, mode, content } => {
                self.files.replace(path, *mode, content.as_bytes()).map_err(refused)
            }
            Op::Uninstall { path } => self.files.remove(path).map_err(refused),
            Op::Fence { node, mode } => fence::set(&self.files, node, *mode)
                .map_err(|why| WriteError::NotOffered { act: spell(act), why }),
            Op::SetOverride { device, driver } => {
                self.write(act, &file(device, "driver_override"), driver, PATIENCE)
            }
            Op::ClearOverride { device } => {
                self.write(act, &file(device, "driver_override"), "\n", PATIENCE)
            }
            Op::Unbind { device, driver } => {
                let path = format!("/sys/bus/pci/drivers/{driver}/unbind");
                self.write(act, &path, &device.to_string(), UNBIND_PATIENCE)
            }
            Op::Probe { device, .. } => {
                let path = "/sys/bus/pci/drivers_probe";
                self.write(act, path, &device.to_string(), PROBE_PATIENCE)
            }
            Op::Reset { device } => {
                // With a driver the kernel would ask it to take part.
                if self.current(act)? != Found::Nothing {
                    let why = "a driver is bound".to_owned();
                    return Err(WriteError::NotOffered { act: spell(act), why });
                }
                self.write(act, &file(device, "reset"), "1", RESET_PATIENCE)
            }
            Op::WriteGroupType { member, to, .. } => self.write_type(act, *member, to),
            Op::WriteAcs { port, mask, bits } => {
                registers::write_acs(&self.files, *port, *mask, *bits).map_err(refused)
            }
            Op::Map(_) | Op::Unmap(_) => self.change_map(act),
            Op::LoadModule { .. } | Op::UnloadModule { .. } => self.switch_module(act),
            Op::Stop { service } | Op::Start { service } => self.switch_service(act, service),
            Op::Persistence { device, on } => self.switch_persistence(act, *device, *on),
            Op::Wait { .. } | Op::Nothing => Ok(()),
            other => {
                let why = "it is not done on a running host yet".to_owned();
                Err(WriteError::NotOffered { act: spell(other), why })
            }
        }
    }

    fn is_stuck(&self, device: PciAddress) -> bool {
        self.blocking.under_way().is_some_and(|what| what.contains(&device.to_string()))
    }

    fn under_way(&self) -> Option<String> {
        self.blocking.under_way()
    }
}

impl Host for LiveHost {
    fn root(&self) -> Result<Root, WriteError> {
        self.eyes.root().map_err(|why| WriteError::Unreadable { act: "opening /".to_owned(), why })
    }

    fn snapshot(&self) -> Result<Snapshot, WriteError> {
        let act = "looking at the host".to_owned();
        self.eyes.snapshot().map_err(|why| WriteError::Unreadable { act, why })
    }

    fn holders(&self) -> Result<(Observed<Vec<Holder>>, Vec<Gap>), WriteError> {
        let act = "looking for holders".to_owned();
        self.eyes.holders().map_err(|why| WriteError::Unreadable { act, why })
    }

    fn uptime(&self) -> u64 {
        u64::try_from(rustix::time::clock_gettime(ClockId::Boottime).tv_sec).unwrap_or(0)
    }

    fn wall(&self) -> String {
        jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
    }

    fn pause(&mut self, seconds: u64) {
        std::thread::sleep(Duration::from_secs(seconds));
    }

    fn keep_for(&mut self, id: &str) -> Result<(), WriteError> {
        let act = format!("keeping what {id} needs");
        self.eyes.keep_for(id).map_err(|why| WriteError::Unreadable { act, why })
    }

    fn take_up(&mut self, id: &str, plan: &Plan) {
        self.limits = Limits::of(plan);
        self.eyes.take_up(id);
    }

    fn refuses(&self, plan: &Plan) -> Option<String> {
        self.refusal(plan)
    }

    fn inspect(&self, plan: &Plan) -> Result<Vec<String>, WriteError> {
        self.pages_of_map(plan)
    }

    fn copies(&mut self, pairs: &[(PciAddress, PciAddress)]) -> Result<Vec<Copied>, WriteError> {
        let copy = |(from, to): &(PciAddress, PciAddress)| {
            let act = format!("a copy from {from} to {to}");
            self.eyes.copy(*from, *to).map_err(|why| WriteError::Unreadable { act, why })
        };
        // The first one that is lost says enough; each further one would put more data at risk.
        let mut all = Vec::new();
        for pair in pairs {
            let copied = copy(pair)?;
            let intact = copied.intact;
            all.push(copied);
            if !intact {
                break;
            }
        }
        Ok(all)
    }
}
