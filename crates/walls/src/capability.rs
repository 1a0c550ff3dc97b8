//! Capabilities: only those that reading needs.

use rustix::io::Errno;
use rustix::thread::{CapabilitySet, CapabilitySets};
use serde::{Deserialize, Serialize};

use crate::plan::WallError;
use crate::report::{Kept, Standing, Wall, WallReport};

/// The capabilities that reading a host can need. There is no way to keep any other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Capability {
    /// `CAP_SYS_ADMIN`: configuration space beyond its first 64 bytes
    /// (`drivers/pci/pci-sysfs.c: pci_read_config()` asks for it when the file is opened).
    SysAdmin,
    /// `CAP_SYSLOG`: the kernel log where `kernel.dmesg_restrict` is set, and kernel addresses.
    SysLog,
    /// `CAP_DAC_READ_SEARCH`: files and directories of other users.
    DacReadSearch,
    /// `CAP_SYS_PTRACE`: descriptors and mappings of other users' processes
    /// (`kernel/ptrace.c: __ptrace_may_access()`).
    SysPtrace,
}

impl Capability {
    /// The kernel's name, as in `CAP_SYS_ADMIN`.
    pub fn name(self) -> &'static str {
        match self {
            Self::SysAdmin => "CAP_SYS_ADMIN",
            Self::SysLog => "CAP_SYSLOG",
            Self::DacReadSearch => "CAP_DAC_READ_SEARCH",
            Self::SysPtrace => "CAP_SYS_PTRACE",
        }
    }

    fn flag(self) -> CapabilitySet {
        match self {
            Self::SysAdmin => CapabilitySet::SYS_ADMIN,
            Self::SysLog => CapabilitySet::SYSLOG,
            Self::DacReadSearch => CapabilitySet::DAC_READ_SEARCH,
            Self::SysPtrace => CapabilitySet::SYS_PTRACE,
        }
    }
}

/// Capabilities wanted, split by whether the process has them.
pub(crate) struct Reduced {
    pub(crate) report: WallReport,
    pub(crate) kept: Vec<Kept>,
    pub(crate) lacking: Vec<Kept>,
}

/// Whether the process may use a capability now.
pub(crate) fn holds(capability: Capability) -> Result<bool, WallError> {
    let sets = rustix::thread::capabilities(None)
        .map_err(|e| WallError::refused(Wall::Capabilities, "reading them", e))?;
    Ok(sets.effective.contains(capability.flag()))
}

/// Drops every capability but `wanted` from the effective, permitted, inheritable, ambient and
/// bounding sets of the calling thread.
pub(crate) fn reduce(wanted: &[Kept]) -> Result<Reduced, WallError> {
    let refused = |act| move |e| WallError::refused(Wall::Capabilities, act, e);
    let before = rustix::thread::capabilities(None).map_err(refused("reading them"))?;
    let mut notes = Vec::new();

    // Ambient capabilities came with Linux 4.3; where there are none, none need clearing.
    match rustix::thread::clear_ambient_capability_set() {
        Ok(()) | Err(Errno::INVAL) => {}
        Err(e) => return Err(refused("clearing the ambient set")(e)),
    }
    if before.effective.contains(CapabilitySet::SETPCAP) {
        empty_bounding_set()?;
    } else {
        notes.push(
            "bounding set left as it was (no CAP_SETPCAP); without new privileges it gives nothing"
                .to_owned(),
        );
    }

    let (kept, lacking): (Vec<Kept>, Vec<Kept>) =
        wanted.iter().cloned().partition(|k| before.permitted.contains(k.capability.flag()));
    let set = kept.iter().fold(CapabilitySet::empty(), |set, k| set | k.capability.flag());
    let sets =
        CapabilitySets { effective: set, permitted: set, inheritable: CapabilitySet::empty() };
    rustix::thread::set_capabilities(None, sets).map_err(refused("dropping them"))?;

    let after = rustix::thread::capabilities(None).map_err(refused("reading them"))?;
    if after != sets {
        return Err(WallError::NotInForce(Wall::Capabilities));
    }
    let report = WallReport { wall: Wall::Capabilities, standing: Standing::Raised, notes };
    Ok(Reduced { report, kept, lacking })
}

/// Goes through all 64 numbers rather than the named ones, since a kernel may know more of them
/// than this library; the kernel says `EINVAL` at the first that it does not know
/// (`security/commoncap.c: cap_prctl_drop()`).
fn empty_bounding_set() -> Result<(), WallError> {
    for number in 0..u64::BITS {
        let one = CapabilitySet::from_bits_retain(1_u64 << number);
        match rustix::thread::remove_capability_from_bounding_set(one) {
            Ok(()) => {}
            Err(Errno::INVAL) => break,
            Err(e) => {
                return Err(WallError::refused(Wall::Capabilities, "emptying the bounding set", e));
            }
        }
    }
    Ok(())
}
