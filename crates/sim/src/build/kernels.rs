//! Kernel releases as distributions name them, one for each era that bears on the product.

/// Debian 11: `type` is read-only.
pub const DEBIAN_11: &str = "5.10.0-38-amd64";
/// Debian 12: old DMA operations table; AMD prints its features in the old order.
pub const DEBIAN_12: &str = "6.1.0-41-amd64";
/// Ubuntu 24.04: the last long-term kernel with the old DMA operations table.
pub const UBUNTU_6_8: &str = "6.8.0-88-generic";
/// Proxmox VE 6.11: SNP hosting and the old DMA operations table.
pub const PVE_6_11: &str = "6.11.11-2-pve";
/// Debian 12 backports: translated devices have no DMA operations table; SNP refuses identity.
pub const DEBIAN_6_12: &str = "6.12.57+deb12-amd64";
/// Proxmox VE 6.14: takes the identity write under SNP, then the device breaks.
pub const PVE_6_14: &str = "6.14.11-5-bpo12-pve";
/// Proxmox VE 6.17, as 6.14.
pub const PVE_6_17: &str = "6.17.13-2-pve";
/// Stable 6.19 before the guard and before the fix for encrypted MMIO entries.
pub const STABLE_6_19_0: &str = "6.19.0";
/// Stable 6.19 with both.
pub const STABLE_6_19_10: &str = "6.19.10";
/// Proxmox VE 7.0: guard and fix.
pub const PVE_7_0: &str = "7.0.14-1-pve";
/// 7.3: identity under SNP where the IOMMU allows it.
pub const STABLE_7_3: &str = "7.3.4-amd64";
