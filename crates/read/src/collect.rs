//! Collectors: each pairs paths below a [`crate::root::Root`] with parsers and fills one part of
//! the snapshot.

pub mod cpu;
pub mod encryption;
pub mod faults;
pub mod firmware;
pub mod holders;
pub mod iommu;
pub mod kernel;
pub mod log;
pub mod measured;
pub mod nvidia;
pub mod pci;
pub mod peer_map;
mod spread;
pub mod tenants;
