//! What takes an act back.

use super::{Environment, Found, Irreversible, Op};
use crate::operator::environment;

impl Op {
    /// The act that takes this one back, given what was in place before it.
    ///
    /// Where what was found is what the act sets anyhow, there is nothing to take back.
    pub fn inverse(&self, found: &Found) -> Result<Self, Irreversible> {
        let bad = |why: &str| Irreversible { act: self.word(), why: why.to_owned() };
        let was = |word: &str| found.value() == Some(word);
        Ok(match self {
            Self::WriteEnvironment { content, .. } => match found.value() {
                None => Self::RemoveEnvironment,
                Some(before) if before == content => Self::Nothing,
                // Whatever stood there, going back never leaves peer access allowed.
                Some(_) => Self::WriteEnvironment {
                    kind: Environment::Safe,
                    content: environment::safe_file(),
                },
            },
            Self::RemoveEnvironment => Self::WriteEnvironment {
                kind: Environment::Safe,
                content: environment::safe_file(),
            },
            Self::Stop { service } if was("running") => Self::Start { service: service.clone() },
            Self::Start { service } | Self::Restart { service } if !was("running") => {
                Self::Stop { service: service.clone() }
            }
            Self::Stop { .. } | Self::Start { .. } | Self::Restart { .. } => Self::Nothing,
            Self::Fence { node, .. } => Self::Unfence { node: node.clone() },
            Self::Unfence { node } => Self::Fence { node: node.clone(), mode: 0 },
            Self::Persistence { device, on } => match found.value() {
                Some("on") if !on => Self::Persistence { device: *device, on: true },
                Some("off") if *on => Self::Persistence { device: *device, on: false },
                Some("on" | "off") => Self::Nothing,
                _ => return Err(bad("whether persistence was on was not found out")),
            },
            Self::RestorePersistence { device } => Self::Persistence { device: *device, on: false },
            Self::SetOverride { device, .. } | Self::ClearOverride { device } => {
                match found.value() {
                    None => Self::ClearOverride { device: *device },
                    Some(driver) => {
                        Self::SetOverride { device: *device, driver: driver.to_owned() }
                    }
                }
            }
            Self::Unbind { device, .. } => match found.value() {
                None => Self::Nothing,
                Some(driver) => Self::Probe { device: *device, driver: driver.to_owned() },
            },
            Self::Probe { device, driver } => match found.value() {
                None => Self::Unbind { device: *device, driver: driver.clone() },
                Some(before) if before == driver => Self::Nothing,
                Some(_) => return Err(bad("another driver was bound before")),
            },
            Self::WriteGroupType { group, member, to, .. } => match found.value() {
                None => return Err(bad("the group's type was not found out")),
                Some(before) if before == to => Self::Nothing,
                Some(before) => Self::WriteGroupType {
                    group: *group,
                    member: *member,
                    from: to.clone(),
                    to: before.to_owned(),
                },
            },
            Self::WriteAcs { port, mask, .. } => {
                let before = found.value().and_then(|text| text.parse::<u16>().ok());
                let before = before.ok_or_else(|| bad("the control word was not found out"))?;
                Self::WriteAcs { port: *port, mask: *mask, bits: before & mask }
            }
            Self::LoadModule { .. } if was("loaded") => Self::Nothing,
            Self::LoadModule { module } => Self::UnloadModule { module: module.clone() },
            Self::UnloadModule { module } if was("loaded") => {
                Self::LoadModule { module: module.clone() }
            }
            Self::UnloadModule { .. } => Self::Nothing,
            Self::Install { path, mode, content } => put_back(path, *mode, content, found),
            Self::Uninstall { .. } if found.value().is_none() => Self::Nothing,
            Self::Uninstall { .. } => return Err(bad("the mode of the file was not found out")),
            // Whatever is there by somebody else's hand, in whichever state, stays theirs.
            Self::Map(_) if found.value().is_some() => Self::Nothing,
            Self::Map(entry) => Self::Unmap(entry.clone()),
            Self::Unmap(entry) if was("mapped") => Self::Map(entry.clone()),
            Self::Unmap(_) | Self::Reset { .. } | Self::Wait { .. } | Self::Nothing => {
                Self::Nothing
            }
        })
    }
}

/// What stood at a file's place before it.
fn put_back(path: &str, mode: u32, content: &str, found: &Found) -> Op {
    let path = path.to_owned();
    match found.value() {
        None => Op::Uninstall { path },
        Some(before) if before == content => Op::Nothing,
        Some(before) => Op::Install { path, mode, content: before.to_owned() },
    }
}
