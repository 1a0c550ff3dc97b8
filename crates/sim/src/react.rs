//! A simulated host that reacts to changes as the kernel does.
//!
//! A [`SimHost`] is a recorded tree with the little state that no file shows. Every change edits the
//! tree, so that the real reader sees its effect. Each rule names its evidence: measured on a real
//! kernel, read in a named kernel function, reported, or *assumed*.
//!
//! | rule | where | evidence |
//! |---|---|---|
//! | `type` of a group takes or refuses a word | [`group_type`] | measured on 5.10, 6.1, 6.12, 7.3; `iommu_group_store_type` |
//! | `DMA-FQ` without a flush queue reads `DMA` | `acts` | `drivers/iommu/dma-iommu.c`, `iommu_dma_init_domain` |
//! | unbind moves the links, and waits while somebody holds the device | `driver` | `nv_pci_remove_helper`; `vfio_unregister_group_dev` |
//! | `drivers_probe` says yes whatever came of it | `driver` | `drivers/base/bus.c`, `drivers_probe_store` |
//! | a GPU gets the lowest free node number | `driver` | `kernel-open/nvidia/nv-pci.c` |
//! | a device of `uio_pci_generic` gets the lowest free node number | `driver` | `drivers/uio/uio.c`, `uio_get_minor` |
//! | a driver that refuses identity gets no device, and the kernel says so | `driver` | `drivers/base/dd.c`, `call_driver_probe`; measured on 6.12 |
//! | boards that fail at the FSP boot command under identity | `driver` | reported for the reference host's boards |
//! | peer copies meet the requester's domain | `traffic` | measured on 6.1, 6.12, 7.3 |
//! | nodes of `/dev` stay when the driver goes | `acts` | assumed |
//! | a stopped service's processes are gone at once | `acts` | assumed |

mod acts;
mod driver;
mod files;
pub mod group_type;
mod script;
mod state;
mod traffic;

use std::sync::Arc;

use peerway_core::address::PciAddress;
use peerway_core::snapshot::kernel::{KernelVersion, Tristate};
use peerway_core::snapshot::{OriginKind, Snapshot};
use peerway_read::host::{Declared, Request, collect};
use peerway_read::root::Root;
use peerway_read::tree::{Node, Tree};
use peerway_roads::Op;
use peerway_roads::op::Found;
use rustix::io::Errno;
use thiserror::Error;

pub use script::{How, Script};
pub use state::State;
pub use traffic::Arrived;

/// What a change came to, where it did not simply happen.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum SimError {
    /// The kernel refused it.
    #[error("{0}")]
    Errno(Errno),
    /// The call does not come back while somebody holds the device.
    #[error("the call does not come back")]
    Hangs,
    /// The process that made the change is gone: a crash at this very place.
    #[error("the process ended here")]
    Stopped,
    /// The simulation has no rule for it.
    #[error("the simulated host cannot do that: {0}")]
    NoRule(String),
}

/// What holds for the whole boot.
#[expect(clippy::struct_excessive_bools, reason = "facts that are independent of each other")]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Facts {
    version: KernelVersion,
    snp: bool,
    mode_zero: bool,
    sme: bool,
    amd: bool,
    hardware_pass_through: bool,
}

/// A simulated host that reacts.
#[derive(Clone, Debug)]
pub struct SimHost {
    name: String,
    tree: Arc<Tree>,
    state: State,
    facts: Facts,
    script: Script,
    stopped: bool,
    /// Accelerators of other makers than the reader knows.
    declared: Vec<Declared>,
}

impl SimHost {
    /// A simulated host by its name, as [`crate::host`] has it.
    pub fn named(name: &str) -> Option<Result<Self, crate::build::BuildError>> {
        let tree = match crate::host(name)? {
            Ok(tree) => tree,
            Err(error) => return Some(Err(error)),
        };
        Some(Ok(Self::new(&format!("sim:{name}"), tree)))
    }

    /// A tree that stands for a host, called `name` as `--host` would call it.
    pub fn new(name: &str, tree: Tree) -> Self {
        let state = State { fails_under_identity: name == "sim:fsp", ..State::default() };
        Self::restored(name, tree, state)
    }

    /// A host as [`SimHost::tree`] and [`SimHost::state`] gave it.
    pub fn restored(name: &str, tree: Tree, state: State) -> Self {
        let mut host = Self {
            name: name.to_owned(),
            tree: Arc::new(tree),
            state,
            facts: Facts {
                version: KernelVersion { major: 6, minor: 0, patch: 0 },
                snp: false,
                mode_zero: false,
                sme: false,
                amd: false,
                hardware_pass_through: true,
            },
            script: Script::default(),
            stopped: false,
            declared: Vec::new(),
        };
        // A host without any process would read as one whose processes were not looked at.
        if host.names("/proc/1").is_err() {
            host.put("/proc/1/comm", "systemd");
            host.put("/proc/1/cgroup", "0::/init.scope");
            host.put_link("/proc/1/fd/0", "/dev/null");
        }
        host.link_drivers();
        host.name_user_nodes();
        host.facts = facts(&host.snapshot());
        host
    }

    /// What it is called, as `--host` would call it.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The same host with accelerators that somebody declares.
    #[must_use]
    pub fn with_accelerators(mut self, declared: Vec<Declared>) -> Self {
        self.declared = declared;
        self
    }

    /// Its tree as it is now.
    pub fn tree(&self) -> &Tree {
        &self.tree
    }

    /// What no file of it shows.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// The same, to be changed by a test or by time.
    pub fn state_mut(&mut self) -> &mut State {
        &mut self.state
    }

    /// Failures to come.
    pub fn script_mut(&mut self) -> &mut Script {
        &mut self.script
    }

    /// A root to read it through.
    pub fn root(&self) -> Root {
        Root::recorded(Arc::clone(&self.tree))
    }

    /// It as the reader sees it.
    pub fn snapshot(&self) -> Snapshot {
        let request = Request {
            host: self.name.clone(),
            kind: OriginKind::Simulated,
            privileged: true,
            accelerators: self.declared.clone(),
            ..Request::default()
        };
        collect(&self.root(), request)
    }

    /// What is in place where an act would change something.
    pub fn current(&self, act: &Op) -> Result<Found, SimError> {
        if self.stopped {
            return Err(SimError::Stopped);
        }
        self.found(act)
    }

    /// Makes a change.
    pub fn perform(&mut self, act: &Op) -> Result<(), SimError> {
        if self.stopped {
            return Err(SimError::Stopped);
        }
        match self.script.next(act) {
            None => self.act(act),
            Some(How::Refused(errno)) => Err(SimError::Errno(errno)),
            Some(How::DoneAndRefused(errno)) => {
                self.act(act)?;
                Err(SimError::Errno(errno))
            }
            Some(How::Hangs) => Err(SimError::Hangs),
            Some(How::Lies) => Ok(()),
            Some(How::StopsBefore) => {
                self.stopped = true;
                Err(SimError::Stopped)
            }
            Some(How::StopsAfter) => {
                // A call that is in the kernel is finished there, whoever made it.
                let done = self.act(act);
                self.stopped = true;
                done.and(Err(SimError::Stopped))
            }
        }
    }

    /// A new process takes over after a crash.
    pub fn restart(&mut self) {
        self.stopped = false;
    }

    /// Whether an earlier unbinding of a device is still under way in the kernel.
    pub fn is_stuck(&self, device: PciAddress) -> bool {
        self.state.stuck.contains_key(&device)
    }

    /// Lets time pass.
    pub fn pass(&mut self, seconds: u64) {
        self.state.now = self.state.now.saturating_add(seconds);
    }

    /// Seconds since boot.
    pub fn now(&self) -> u64 {
        self.state.now
    }

    /// Somebody gives a device to another driver.
    pub fn give_driver(&mut self, device: PciAddress, driver: &str) -> Result<(), SimError> {
        self.give(device, driver)
    }

    /// A process appears that holds nodes.
    pub fn start_process(&mut self, pid: u32, command: &str, cgroup: &str, nodes: &[&str]) {
        self.put(&format!("/proc/{pid}/comm"), command);
        self.put(
            &format!("/proc/{pid}/stat"),
            &format!(
                "{pid} ({command}) S 1 {pid} {pid} 0 -1 4194560 0 0 0 0 9 8 0 0 20 0 1 0 {} 0 0",
                self.state.now * 100 + u64::from(pid)
            ),
        );
        self.put(&format!("/proc/{pid}/status"), &format!("Name:\t{command}\nUid:\t0\t0\t0\t0"));
        self.put(&format!("/proc/{pid}/cgroup"), &format!("0::{cgroup}"));
        self.put(&format!("/proc/{pid}/maps"), "");
        for (number, node) in (3..).zip(nodes) {
            self.put_link(&format!("/proc/{pid}/fd/{number}"), node);
        }
    }

    /// A process ends; an unbinding that waited for it goes on.
    pub fn end_process(&mut self, pid: u32) {
        self.edit().remove(&format!("/proc/{pid}"));
        self.finish_unbinding();
    }
}

fn facts(snapshot: &Snapshot) -> Facts {
    let units = snapshot.iommu.units.known().map(Vec::as_slice).unwrap_or_default();
    let all = |test: &dyn Fn(&peerway_core::snapshot::iommu::IommuUnit) -> Option<bool>| {
        !units.is_empty() && units.iter().all(|unit| test(unit) == Some(true))
    };
    Facts {
        version: snapshot.kernel.version().unwrap_or(KernelVersion {
            major: 6,
            minor: 0,
            patch: 0,
        }),
        snp: snapshot.memory_encryption.snp.state == Tristate::Yes,
        mode_zero: all(&|unit| unit.snp_page_mode_zero().known().copied()),
        sme: snapshot.memory_encryption.sme.state == Tristate::Yes,
        amd: snapshot.iommu_vendor() == Some(peerway_core::snapshot::iommu::IommuVendor::Amd),
        hardware_pass_through: !units
            .iter()
            .any(|unit| unit.hardware_pass_through().known() == Some(&false)),
    }
}

/// A file's content with the newline that attributes end with.
fn line(text: &str) -> Node {
    Node::File(format!("{text}\n").into_bytes())
}
