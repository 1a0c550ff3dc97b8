//! What may be changed at all: what the plan of the open transaction names, and nothing else.

use std::collections::{BTreeMap, BTreeSet};

use peerway_core::address::PciAddress;
use peerway_roads::op::MapEntry;
use peerway_roads::{Op, Plan, Service};

/// The reach of one plan; empty where there is none.
#[derive(Debug, Default)]
pub(super) struct Limits {
    functions: BTreeSet<PciAddress>,
    nodes: BTreeSet<String>,
    files: BTreeSet<String>,
    /// Members of the group of each function whose type the plan changes, as the plan saw them.
    groups: BTreeMap<PciAddress, Vec<String>>,
    entries: BTreeSet<MapEntry>,
    modules: BTreeSet<String>,
    services: BTreeSet<Service>,
}

impl Limits {
    pub(super) fn of(plan: &Plan) -> Self {
        let members = |member: PciAddress| plan.group_members(member).map(str::to_owned);
        Self::of_acts(plan.steps.iter().map(|step| &step.act), members)
    }

    /// What some acts name, given the members that the group of a function had.
    pub(super) fn of_acts<'a>(
        acts: impl Iterator<Item = &'a Op>,
        members: impl Fn(PciAddress) -> Option<String>,
    ) -> Self {
        let mut limits = Self::default();
        for act in acts {
            limits.functions.extend(act.touches());
            match act {
                Op::Fence { node, .. } | Op::Unfence { node } => {
                    limits.nodes.insert(node.clone());
                }
                Op::Install { path, .. } | Op::Uninstall { path } => {
                    limits.files.insert(path.clone());
                }
                Op::WriteGroupType { member, .. } => {
                    let members = members(*member).unwrap_or_default();
                    let mut members: Vec<String> = members.split(' ').map(str::to_owned).collect();
                    members.sort();
                    limits.groups.insert(*member, members);
                }
                Op::Map(entry) | Op::Unmap(entry) => {
                    limits.entries.insert(entry.clone());
                }
                Op::LoadModule { module } | Op::UnloadModule { module } => {
                    limits.modules.insert(module.clone());
                }
                Op::Stop { service } | Op::Start { service } | Op::Restart { service } => {
                    limits.services.insert(service.clone());
                }
                _ => {}
            }
        }
        limits
    }

    /// Says why an act is none of the plan's.
    pub(super) fn allows(&self, act: &Op) -> Result<(), String> {
        if let Some(address) = act.touches().iter().find(|one| !self.functions.contains(one)) {
            return Err(format!("no step of the plan names {address}"));
        }
        match act {
            Op::Fence { node, .. } | Op::Unfence { node } if !self.nodes.contains(node) => {
                Err(format!("no step of the plan names {node}"))
            }
            Op::Map(entry) | Op::Unmap(entry) if !self.entries.contains(entry) => {
                Err(format!("no step of the plan names the {entry}"))
            }
            Op::LoadModule { module } | Op::UnloadModule { module }
                if !self.modules.contains(module) =>
            {
                Err(format!("no step of the plan names the module {module}"))
            }
            Op::Stop { service } | Op::Start { service } | Op::Restart { service }
                if !self.services.contains(service) =>
            {
                Err(format!("no step of the plan names {service}"))
            }
            Op::Install { path, .. } | Op::Uninstall { path } if !self.files.contains(path) => {
                Err(format!("no step of the plan names {path}"))
            }
            _ => Ok(()),
        }
    }

    /// Says why a group is not the one that the plan saw.
    pub(super) fn group(&self, member: PciAddress, members: &[String]) -> Result<(), String> {
        match self.groups.get(&member) {
            Some(planned) if planned == members => Ok(()),
            Some(planned) => Err(format!(
                "the group of {member} has the members {}, and the plan saw {}",
                members.join(" "),
                planned.join(" ")
            )),
            None => Err(format!("no step of the plan changes the group of {member}")),
        }
    }
}
