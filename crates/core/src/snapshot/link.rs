//! NVLink connections.

use serde::{Deserialize, Serialize};

use crate::address::PciAddress;

/// One NVLink connection between two GPUs, direct or through switches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NvLink {
    /// One end.
    pub a: PciAddress,
    /// The other end.
    pub b: PciAddress,
    /// Links that are up.
    pub links: u32,
}
