//! Who holds a device, and who says that it is theirs.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::address::PciAddress;
use crate::observed::Observed;
use crate::snapshot::kernel::Tristate;

/// Name of a tenant: `host`, `lxc:129`, `vm:132`, `container:abc`, `pod:…`, `job:…`.
#[derive(
    Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(transparent)]
pub struct TenantId(pub String);

impl TenantId {
    /// The host itself.
    pub fn host() -> Self {
        Self("host".to_owned())
    }

    /// A tenant of a kind.
    pub fn of(kind: TenantKind, id: &str) -> Self {
        match kind {
            TenantKind::Host => Self::host(),
            TenantKind::Lxc
            | TenantKind::Vm
            | TenantKind::Container
            | TenantKind::Pod
            | TenantKind::Job => Self(format!("{kind}:{id}")),
        }
    }
}

impl fmt::Display for TenantId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(&self.0)
    }
}

/// Kind of a tenant.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum TenantKind {
    /// The host itself.
    Host,
    /// A system container.
    Lxc,
    /// A virtual machine.
    Vm,
    /// An application container.
    Container,
    /// A Kubernetes pod.
    Pod,
    /// A batch job.
    Job,
}

impl fmt::Display for TenantKind {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(match self {
            Self::Host => "host",
            Self::Lxc => "lxc",
            Self::Vm => "vm",
            Self::Container => "container",
            Self::Pod => "pod",
            Self::Job => "job",
        })
    }
}

/// Somebody on this host who holds devices or claims them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tenant {
    /// Its name in this program.
    pub id: TenantId,
    /// Its kind.
    pub kind: TenantKind,
    /// Its own name (`snp-sandbox`, `inference`).
    pub name: Observed<String>,
    /// Whether its memory is encrypted against the host.
    pub confidential: Tristate,
    /// Whether it runs now.
    pub running: Tristate,
}

/// Somebody says that a device is theirs: a configuration, or a process that holds it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Claim {
    /// Which function.
    pub device: PciAddress,
    /// Who.
    pub tenant: TenantId,
    /// File and words, or process, that say so.
    pub source: String,
    /// Whether the claimant holds the device now.
    pub active: Tristate,
}

/// A process with an open device node, with the little that is kept of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Process number on the host.
    pub pid: u32,
    /// `comm`.
    pub command: String,
    /// Start time in clock ticks since boot (field 22 of `/proc/PID/stat`), to tell reused
    /// numbers apart.
    pub start: u64,
    /// User number on the host.
    pub uid: u32,
    /// Its tenant, from its control group.
    pub tenant: TenantId,
    /// Device nodes that it holds.
    pub nodes: Vec<String>,
    /// PCI functions behind those nodes, as far as they can be told.
    pub devices: Vec<PciAddress>,
    /// Nodes that stand for one function each, which could not be told: it may be any.
    #[serde(default)]
    pub untold: Vec<String>,
    /// Named switches of its environment that bear on peer access (`NCCL_P2P_DISABLE`, …).
    pub switches: Vec<(String, String)>,
}
