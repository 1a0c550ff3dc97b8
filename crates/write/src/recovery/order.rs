//! What has to wait on the way back where a step before it failed.

use std::collections::{BTreeMap, BTreeSet};

use peerway_core::address::PciAddress;
use peerway_roads::{Op, Plan};

/// Steps that failed, by what they keep.
#[derive(Debug)]
pub(super) struct Order {
    /// The first member of each function's group: members are unbound, typed and bound together.
    groups: BTreeMap<PciAddress, PciAddress>,
    /// Whose each node is.
    nodes: BTreeMap<String, PciAddress>,
    /// First failure by group.
    failed: BTreeMap<PciAddress, u32>,
    /// Devices that are bound and did not come up.
    fallen: BTreeMap<PciAddress, u32>,
    /// The first failure of all.
    first: Option<u32>,
}

impl Order {
    pub(super) fn of(plan: &Plan) -> Self {
        let mut groups = BTreeMap::new();
        let mut nodes = BTreeMap::new();
        for device in &plan.goal.devices {
            let members = plan.group_members(*device).unwrap_or_default();
            let members: BTreeSet<PciAddress> =
                members.split(' ').filter_map(|member| member.parse().ok()).collect();
            if let Some(first) = members.first() {
                groups.extend(members.iter().map(|member| (*member, *first)));
            }
            if let Some(minor) = plan.minor_of(*device) {
                nodes.insert(format!("/dev/nvidia{minor}"), *device);
            }
        }
        Self { groups, nodes, failed: BTreeMap::new(), fallen: BTreeMap::new(), first: None }
    }

    /// The groups that an act belongs to; none where it belongs to all of them.
    fn groups_of(&self, act: &Op) -> BTreeSet<PciAddress> {
        let own = match act {
            Op::Fence { node, .. } | Op::Unfence { node } => {
                self.nodes.get(node).copied().into_iter().collect()
            }
            other => other.touches(),
        };
        own.into_iter().map(|one| self.groups.get(&one).copied().unwrap_or(one)).collect()
    }

    /// An inverse failed.
    pub(super) fn fails(&mut self, step: u32, inverse: &Op) {
        self.first.get_or_insert(step);
        for group in self.groups_of(inverse) {
            self.failed.entry(group).or_insert(step);
        }
    }

    /// A device is bound and did not come up: its own steps wait, and those of its group's others do not.
    pub(super) fn falls(&mut self, step: u32, device: PciAddress) {
        self.first.get_or_insert(step);
        self.fallen.entry(device).or_insert(step);
    }

    /// The failed step that an inverse has to wait for: one of the same group, and where it belongs
    /// to the host as a whole (the environment, services, a module), any.
    pub(super) fn waits_for(&self, inverse: &Op) -> Option<u32> {
        // An entry of the map stands alone.
        if matches!(inverse, Op::Map(_) | Op::Unmap(_)) {
            return None;
        }
        let groups = self.groups_of(inverse);
        if groups.is_empty() {
            return self.first;
        }
        let own = match inverse {
            Op::Unfence { node } | Op::Fence { node, .. } => self.nodes.get(node).copied(),
            other => other.touches().first().copied(),
        };
        if let Some(step) = own.and_then(|device| self.fallen.get(&device)) {
            return Some(*step);
        }
        groups.iter().find_map(|group| self.failed.get(group).copied())
    }
}
