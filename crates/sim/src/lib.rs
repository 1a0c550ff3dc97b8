//! Hosts that do not exist: built from a description, or recorded and checked in.
//!
//! [`build::HostBuilder`] describes a machine and renders it as the files that Linux would show;
//! [`host`] gives the named hosts that every reading command takes as `--host sim:NAME`;
//! [`hosts::all`] gives the hosts that tests run over, each with the verdict that is right for
//! each pair.

pub mod benchmark;
pub mod build;
pub mod expect;
pub mod hosts;
pub mod react;

use peerway_read::host_file;
use peerway_read::tree::Tree;

use build::BuildError;

/// Names of the hosts that tell a story and react to changes; [`host`] gives those of
/// [`hosts::all`] too.
pub const NAMES: [&str; 4] = ["kpro6", "kpro6-pve7", "kpro6-pve7-mailbox", "fsp"];

/// The reference host as text, checked in and reviewable; written by `write-fixtures`.
pub const KPRO6: &str = include_str!("../../../fixtures/hosts/kpro6.host");

/// A simulated host by its name.
pub fn host(name: &str) -> Option<Result<Tree, BuildError>> {
    match name {
        "kpro6" => Some(host_file::parse(KPRO6).map_err(BuildError::from)),
        "kpro6-pve7" => Some(hosts::kpro6::pve7().tree()),
        "kpro6-pve7-mailbox" => Some(hosts::kpro6::pve7_mailbox().tree()),
        "fsp" => Some(hosts::kpro6::fsp().tree()),
        _ => {
            let known = hosts::all().into_iter().find(|one| one.name == name)?;
            Some(known.builder.tree())
        }
    }
}
