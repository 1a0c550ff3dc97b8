//! Who holds the devices, and files that may never answer.
//!
//! Both are looked at by children with walls of their own, because the walls of the reading
//! process itself stand in the way: Landlock hides other processes' descriptors, and a call into
//! a file system whose server is gone cannot be taken back.
//!
//! The order is always the same, since nothing can be started once the walls stand:
//!
//! ```no_run
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use std::time::{Duration, Instant};
//! use peerway_holders::{ScanChild, ScanOptions, SlowOptions, SlowReader};
//! use peerway_walls::Plan;
//!
//! // 0. At the top of `main`, before anything else: the children are this same program.
//! let args: Vec<_> = std::env::args_os().skip(1).collect();
//! if let Some(code) = peerway_holders::dispatch(&args) {
//!     std::process::exit(code);
//! }
//! // 1. Start the children.
//! let holders = ScanChild::spawn(&ScanOptions::default())?;
//! let cluster = SlowReader::spawn(&SlowOptions::live(&["/etc/pve"]))?;
//! // 2. Raise the walls.
//! Plan::new().read_beneath("/sys").write_to(cluster.requests()).raise()?;
//! // 3. Collect.
//! let found = holders.collect(Instant::now() + Duration::from_secs(5));
//! let list = found.list;
//! let nodes = cluster.list("/etc/pve/nodes");
//! # Ok(()) }
//! ```
//!
//! A list is evidence of absence only if [`HolderList::is_complete`]; and processes come and go,
//! so whoever is about to act on a device looks twice.
#![forbid(unsafe_code)]

mod child;
mod list;
mod parse;
mod pattern;
mod procfs;
mod regions;
mod scan;
mod scan_child;
mod slow;

pub use child::{SpawnError, dispatch};
pub use list::{
    DeviceNumber, Environment, Held, HolderList, Process, ScanEnd, Unreadable, VERSION,
};
pub use pattern::{NodeKind, Pattern, Patterns};
pub use scan::{Record, ScanError, ScanOptions, scan, scan_each};
pub use scan_child::{Collected, ScanChild};
pub use slow::{EntryKind, SlowEntry, SlowError, SlowOptions, SlowReader};
