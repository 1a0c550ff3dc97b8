//! The NVIDIA kernel driver, as far as it shows in `/proc/driver/nvidia` and `/sys/module`.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::address::PciAddress;
use crate::observed::Observed;

/// NVIDIA's kernel driver.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NvidiaDriver {
    /// `/proc/driver/nvidia/version`; absent if the module is not loaded.
    pub version: Observed<DriverVersion>,
    /// `/proc/driver/nvidia/params`: effective parameters by name, without `NVreg_`.
    pub params: Observed<BTreeMap<String, String>>,
    /// Kernel modules of the family that are loaded.
    pub modules: Observed<Vec<String>>,
    /// `/proc/driver/nvidia/gpus/ADDRESS/information`, by address.
    pub gpus: Observed<Vec<GpuInformation>>,
}

/// Version line of the driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DriverVersion {
    /// `580.95.05`.
    pub version: String,
    /// Open or closed kernel modules, or a build that is neither NVIDIA's.
    pub flavour: DriverFlavour,
    /// The line as read.
    pub line: String,
}

impl DriverVersion {
    /// Branch: the number before the first full stop.
    pub fn branch(&self) -> Option<u32> {
        self.version.split('.').next()?.parse().ok()
    }
}

/// Which build of the driver is loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DriverFlavour {
    /// NVIDIA's open kernel modules.
    Open,
    /// NVIDIA's closed kernel modules.
    Closed,
    /// A build with peer-to-peer patches, by its version text.
    Fork,
}

/// One GPU in `/proc/driver/nvidia/gpus`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpuInformation {
    /// Its address (the directory's name).
    pub address: PciAddress,
    /// `Model`.
    pub model: Observed<String>,
    /// `GPU UUID`; absent until the GPU was initialised.
    pub uuid: Observed<String>,
    /// `Device Minor`: N of `/dev/nvidiaN`.
    pub minor: Observed<u32>,
    /// `GPU Excluded`.
    pub excluded: Observed<bool>,
}
