//! What a guest reports.

use serde::{Deserialize, Serialize};

/// One line on the second serial port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "record", rename_all = "snake_case")]
pub enum Record {
    /// The guest is up, its modules are loaded, its drivers are bound.
    Ready {
        /// `uname -r`.
        release: String,
        /// `/proc/cmdline`.
        command_line: String,
    },
    /// A step is over.
    Step(Outcome),
    /// All the kernel said, oldest line first, without time stamps.
    KernelLog {
        /// The lines.
        lines: Vec<String>,
    },
    /// The first process could not do what the script asks.
    Failed {
        /// Why.
        reason: String,
    },
    /// The last record: every step was carried out.
    Done,
}

/// How a step ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outcome {
    /// The step's name.
    pub name: String,
    /// Exit status; `None` where a signal ended it or it still runs (a started one).
    pub status: Option<i32>,
    /// The signal that ended it.
    pub signal: Option<i32>,
    /// It was killed at its deadline.
    pub timed_out: bool,
    /// Standard output; bytes that are not UTF-8 are replaced.
    pub stdout: String,
    /// Standard error, likewise.
    pub stderr: String,
    /// What the kernel logged meanwhile.
    pub kernel: Vec<String>,
    /// How long it took.
    pub milliseconds: u64,
}

/// What `lab-sysfs inventory` prints: the guest's PCI devices as its kernel shows them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Inventory {
    /// Every PCI device.
    pub devices: Vec<Device>,
    /// Every IOMMU group.
    pub groups: Vec<Group>,
}

/// One PCI function.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Device {
    /// PCI address.
    pub address: String,
    /// `vendor:device`, four hexadecimal digits each.
    pub id: String,
    /// The bound driver.
    pub driver: Option<String>,
    /// `numa_node`, -1 where the firmware says nothing.
    pub numa_node: i64,
    /// IOMMU group.
    pub group: Option<u32>,
    /// First bus address and size of each memory BAR, by index.
    pub bars: Vec<(u8, String, u64)>,
}

/// One IOMMU group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Group {
    /// Number.
    pub id: u32,
    /// What its `type` file reads.
    pub kind: String,
    /// Its devices.
    pub devices: Vec<String>,
}

/// What `lab-sysfs set-type` prints: a write to a group's `type` file and what it did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TypeWrite {
    /// The group.
    pub group: u32,
    /// The word written.
    pub value: String,
    /// `ok`, or the name of the error that opening or writing returned.
    pub result: String,
    /// What the file reads afterwards.
    pub reads: String,
}

/// What `lab-still` prints: what differs from the snapshot that it took before.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stillness {
    /// Files in the snapshot.
    pub files: usize,
    /// Those of them that are a device's configuration space.
    pub configurations: usize,
    /// Files whose content is another.
    pub changed: Vec<String>,
    /// Files that were not there.
    pub appeared: Vec<String>,
    /// Files that are not there any more.
    pub gone: Vec<String>,
}

/// What `lab-crash kill` prints for each time it ended the product.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Crash {
    /// The record of the journal at which it was to be ended, counted from the command's first.
    pub record: usize,
    /// Records that the journal had of this command when it was.
    pub records: usize,
    /// Whether it was; if not, the command was over before.
    pub killed: bool,
    /// Exit status of the command, where it has one.
    pub ended: Option<i32>,
    /// Exit status of `recover` afterwards, where it was killed.
    pub recovered: Option<i32>,
    /// What that said.
    pub said: String,
    /// Whether the environment let jobs use what was changed, after that.
    pub in_force: bool,
    /// Exit status of `undo --all` at the end, where `recover` did not take it back.
    pub undone: Option<i32>,
    /// What is not as it was before all, after that.
    pub differences: Vec<String>,
}
