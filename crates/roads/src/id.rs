//! Names of the roads.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// A road, by its fixed name.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum RoadId {
    /// Entries for the tenant's own peer memory in each requester's translating domain.
    PeerMap,
    /// The tenant's groups switched to identity domains.
    IdentityGroups,
    /// Redirect cleared on the switch ports between the tenant's devices.
    AcsDirect,
    /// The tenant's devices in one virtual machine, where VFIO maps peer memory.
    VfioGuest,
    /// A driver that has the kernel map peer memory.
    MappingDriver,
    /// The whole host booted in pass-through mode.
    BootPassthrough,
    /// Parameters of the driver.
    DriverPolicy,
    /// Peer access off everywhere, completely.
    LiveWithout,
    /// Other ways to make the workload faster.
    Elsewhere,
}

/// A word that names no road.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
#[error("there is no road {word:?}; there are: {}", all_words())]
pub struct NoSuchRoad {
    word: String,
}

fn all_words() -> String {
    RoadId::ALL.map(RoadId::word).join(", ")
}

impl RoadId {
    /// All roads, in the order in which equals are ranked.
    pub const ALL: [Self; 9] = [
        Self::PeerMap,
        Self::IdentityGroups,
        Self::AcsDirect,
        Self::VfioGuest,
        Self::MappingDriver,
        Self::BootPassthrough,
        Self::DriverPolicy,
        Self::LiveWithout,
        Self::Elsewhere,
    ];

    /// Its name on the command line and in documents.
    pub const fn word(self) -> &'static str {
        match self {
            Self::PeerMap => "peer-map",
            Self::IdentityGroups => "identity-groups",
            Self::AcsDirect => "acs-direct",
            Self::VfioGuest => "vfio-guest",
            Self::MappingDriver => "mapping-driver",
            Self::BootPassthrough => "boot-passthrough",
            Self::DriverPolicy => "driver-policy",
            Self::LiveWithout => "live-without",
            Self::Elsewhere => "elsewhere",
        }
    }

    /// What it does, in one line.
    pub const fn title(self) -> &'static str {
        match self {
            Self::PeerMap => "map the peers' memory into each GPU's translating domain",
            Self::IdentityGroups => "switch the GPUs' IOMMU groups to identity domains",
            Self::AcsDirect => "clear ACS redirect on the switch ports between the GPUs",
            Self::VfioGuest => "move the GPUs into one virtual machine, where VFIO maps peers",
            Self::MappingDriver => "have the GPU driver ask the kernel to map peer memory",
            Self::BootPassthrough => "boot the whole host with the IOMMU in pass-through mode",
            Self::DriverPolicy => "set the driver's parameters for peer access",
            Self::LiveWithout => "keep peer access off, completely, and tune what remains",
            Self::Elsewhere => "make the workload faster without peer access",
        }
    }
}

impl fmt::Display for RoadId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.pad(self.word())
    }
}

impl FromStr for RoadId {
    type Err = NoSuchRoad;

    fn from_str(text: &str) -> Result<Self, NoSuchRoad> {
        Self::ALL
            .into_iter()
            .find(|road| road.word() == text)
            .ok_or_else(|| NoSuchRoad { word: text.to_owned() })
    }
}
