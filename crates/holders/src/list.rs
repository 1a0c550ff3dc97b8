//! The list of holders, and the lines in which it travels.

use serde::{Deserialize, Serialize};

use crate::pattern::NodeKind;

/// Version of the list and of its lines; raised when a field changes its meaning.
pub const VERSION: u32 = 1;

/// The numbers of a character device: the minor number of `/dev/nvidiaN` is the GPU, whatever the
/// node is called inside a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DeviceNumber {
    /// The driver.
    pub major: u32,
    /// The device.
    pub minor: u32,
}

/// One file that a process holds, by descriptors, by mappings, or both.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Held {
    /// The path as the holder sees it, without the mark of a removed file.
    pub path: String,
    /// What kind of node.
    pub kind: NodeKind,
    /// Descriptors on it, ascending.
    pub descriptors: Vec<u32>,
    /// Mappings of it; they hold the device even where every descriptor is closed.
    pub mappings: u32,
    /// Its numbers, where it is a character device and the kernel was asked.
    pub device: Option<DeviceNumber>,
    /// Whether the name is gone (a container's bind mount, a node made anew).
    pub deleted: bool,
    /// `vfio-device-syspath` of `fdinfo`: the device below `/sys` (Linux 6.19 and later).
    pub vfio_syspath: Option<String>,
    /// `drm-pdev` of `fdinfo`: the PCI address, as the DRM driver writes it.
    pub drm_address: Option<String>,
    /// The PCI function whose memory region it is, whatever the file is called.
    pub region_of: Option<String>,
}

/// The variables of a holder's environment that bear on peer access, and no others.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "state")]
pub enum Environment {
    /// The process holds no GPU, so it was not looked at.
    #[default]
    NotRead,
    /// It was looked at.
    Read {
        /// Name and value, in the order in which they stand.
        variables: Vec<(String, String)>,
        /// Whether it was longer than what is read of it, so that a variable may be missing.
        truncated: bool,
    },
    /// It could not be looked at.
    Unreadable {
        /// What the kernel answered.
        errno: i32,
    },
}

/// A process, and what it holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Process {
    /// Its number, as the scanned `/proc` has it.
    pub pid: u32,
    /// Its name (`comm`, at most 15 bytes).
    pub comm: String,
    /// When it started, in clock ticks since boot (field 22 of `stat`). Tells it from a later
    /// process with the same number.
    pub start_ticks: u64,
    /// Its real user.
    pub uid: Option<u32>,
    /// Its control groups, the text of `/proc/PID/cgroup`.
    pub cgroup: String,
    /// What it holds.
    pub held: Vec<Held>,
    /// Its switches.
    pub environment: Environment,
}

/// A process that may hold anything: its descriptors or its mappings could not be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unreadable {
    /// Its number.
    pub pid: u32,
    /// Its name; empty if that could not be read either.
    pub comm: String,
    /// When it started, as in [`Process::start_ticks`]; 0 if that could not be read.
    pub start_ticks: u64,
    /// Why its descriptors could not be read: an error number.
    pub descriptors: Option<i32>,
    /// Why its mappings could not be read: an error number.
    pub mappings: Option<i32>,
}

/// What is known when a scan is over.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScanEnd {
    /// Processes that were looked at, kernel threads not counted.
    pub processes: u32,
    /// Kernel threads; they hold no descriptors and were left out.
    pub kernel_threads: u32,
    /// Processes that ended while they were looked at.
    pub vanished: u32,
    /// Whether the scanned `/proc` shows all processes of the host (`true`) or those of a
    /// container (`false`); `None` if that cannot be told.
    pub host_wide: Option<bool>,
    /// Why processes may be missing from the list; one phrase each.
    pub gaps: Vec<String>,
}

/// Who holds what.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HolderList {
    /// [`VERSION`].
    pub version: u32,
    /// Processes that hold something (all processes, if that was asked for).
    pub processes: Vec<Process>,
    /// Processes that may hold anything.
    pub unreadable: Vec<Unreadable>,
    /// How the scan ended; `None` if it did not.
    pub end: Option<ScanEnd>,
}

impl Default for HolderList {
    fn default() -> Self {
        Self { version: VERSION, processes: Vec::new(), unreadable: Vec::new(), end: None }
    }
}

impl HolderList {
    /// Whether the absence of a process from the list means that it holds nothing.
    ///
    /// False where the scan did not end, where a process could not be read, where processes may
    /// be hidden, and where the list is a container's. Only a complete list may open a gate.
    pub fn is_complete(&self) -> bool {
        self.unreadable.is_empty()
            && self.end.as_ref().is_some_and(|e| e.gaps.is_empty() && e.host_wide == Some(true))
    }

    /// Why the list is not complete, in phrases; empty if it is.
    pub fn gaps(&self) -> Vec<String> {
        let mut gaps = Vec::new();
        match &self.end {
            None => gaps.push("the scan did not end".to_owned()),
            Some(end) => {
                gaps.extend(end.gaps.iter().cloned());
                match end.host_wide {
                    Some(true) => {}
                    Some(false) => {
                        gaps.push("only the processes of this container can be seen".to_owned());
                    }
                    None => {
                        gaps.push("whether all processes can be seen is not known".to_owned());
                    }
                }
            }
        }
        if let Some(first) = self.unreadable.first() {
            gaps.push(format!(
                "what {} processes hold could not be read (the first: {} \"{}\")",
                self.unreadable.len(),
                first.pid,
                first.comm
            ));
        }
        gaps
    }
}

/// One line of the way from the child to its parent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Line {
    /// The first: what the child speaks, and the walls that it stands behind.
    Begin { version: u32, walls: peerway_walls::Report },
    /// One process.
    Process(Process),
    /// One that could not be read.
    Unreadable(Unreadable),
    /// The last.
    End(ScanEnd),
    /// The last, if nothing could be scanned.
    Failed(String),
}

impl Line {
    /// As JSON, with the line break.
    pub(crate) fn to_bytes(&self) -> Result<Vec<u8>, serde_json::Error> {
        let mut bytes = serde_json::to_vec(self)?;
        bytes.push(b'\n');
        Ok(bytes)
    }
}
