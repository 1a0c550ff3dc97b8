//! Pure parsers, one kernel or configuration format a file: bytes or text in, a value out.

pub mod acpi;
pub mod cgroup;
pub mod config_space;
pub mod cpuinfo;
pub mod libvirt;
pub mod lxc;
pub mod nvidia;
pub mod peer_map;
pub mod proxmox;
pub mod sysfs;
