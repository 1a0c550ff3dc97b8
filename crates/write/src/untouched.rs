//! The closed list of what "untouched" means for everybody else, compared before and after.

use std::collections::{BTreeMap, BTreeSet};

use peerway_core::address::PciAddress;
use peerway_core::snapshot::Snapshot;
use peerway_core::snapshot::pci::PciDevice;
use peerway_roads::Plan;
use serde::{Deserialize, Serialize};

use crate::health::Seen;

/// Values of protected devices and tenants by source.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Untouched {
    /// Device or tenant and value: `0000:81:00.0 driver`, `vm:132 running`.
    pub values: BTreeMap<String, String>,
}

impl Untouched {
    /// Takes the list from a snapshot: for each protected device its group, type, driver, holders
    /// with start time, ACS and command bits, BARs and power state; for each protected tenant
    /// whether it runs; and for every other group type and members. Before any driver is bound, what
    /// drivers set is left out: it is compared once they are, and would be another every time.
    pub fn of(snapshot: &Snapshot, plan: &Plan) -> Self {
        let mut values = BTreeMap::new();
        let mut devices = BTreeSet::new();
        for one in &plan.protects {
            devices.extend(one.devices.iter().copied());
            let running = snapshot.tenant(&one.tenant).map(|tenant| tenant.running.to_string());
            let running = running.unwrap_or_else(|| "not seen".to_owned());
            values.insert(format!("{} running", one.tenant), running);
        }
        for address in devices {
            match snapshot.device(address) {
                Some(device) if plan.before_driver => group_values(snapshot, device, &mut values),
                Some(device) => device_values(snapshot, device, &mut values),
                None => {
                    values.insert(format!("{address}"), "not listed".to_owned());
                }
            }
        }
        let own: BTreeSet<u32> = plan
            .goal
            .devices
            .iter()
            .filter_map(|address| snapshot.device(*address)?.group.known().copied())
            .collect();
        // Devices of nobody in particular, and the goal tenant's other ones, are left alone too; who
        // opens them, and when they sleep, is their own affair.
        let ours = |device: &PciDevice| {
            plan.goal.devices.contains(&device.address)
                || device.group.known().is_some_and(|group| own.contains(group))
        };
        let seen: BTreeSet<PciAddress> =
            plan.protects.iter().flat_map(|one| one.devices.iter().copied()).collect();
        for device in snapshot.devices.iter().filter(|device| !device.is_bridge()) {
            if ours(device) || seen.contains(&device.address) {
                continue;
            }
            if plan.before_driver {
                group_values(snapshot, device, &mut values);
            } else {
                lasting_values(snapshot, device, &mut values);
            }
        }
        for group in snapshot.groups.iter().filter(|group| !own.contains(&group.id)) {
            let members: Vec<String> = group.devices.iter().map(ToString::to_string).collect();
            values.insert(
                format!("group {}", group.id),
                format!("{}: {}", group.domain, members.join(" ")),
            );
        }
        Self { values }
    }

    /// What differs now, one line each.
    pub fn differences(&self, now: &Self) -> Vec<String> {
        let keys: BTreeSet<&String> = self.values.keys().chain(now.values.keys()).collect();
        let shown = |values: &BTreeMap<String, String>, key: &str| {
            values.get(key).map_or("nothing".to_owned(), Clone::clone)
        };
        keys.into_iter()
            .filter(|key| self.values.get(*key) != now.values.get(*key))
            .map(|key| {
                format!("{key}: was {}, is {}", shown(&self.values, key), shown(&now.values, key))
            })
            .collect()
    }

    /// Faults that devices of others have since a mark: the fault counter of the list.
    pub fn faults(plan: &Plan, seen: &Seen) -> Vec<String> {
        let theirs: BTreeSet<PciAddress> =
            plan.protects.iter().flat_map(|one| one.devices.iter().copied()).collect();
        seen.troubles
            .iter()
            .filter(|one| one.device.is_some_and(|device| theirs.contains(&device)))
            .map(|one| one.text.clone())
            .collect()
    }
}

fn device_values(snapshot: &Snapshot, device: &PciDevice, values: &mut BTreeMap<String, String>) {
    lasting_values(snapshot, device, values);
    let mut put = |what: &str, value: String| {
        values.insert(format!("{} {what}", device.address), value);
    };
    let holders = snapshot.holders.as_ref().map(|all| {
        let own = all.iter().filter(|holder| holder.devices.contains(&device.address));
        own.map(|holder| format!("{} since {}", holder.pid, holder.start))
            .collect::<Vec<_>>()
            .join(", ")
    });
    put("holders", holders.to_string());
    let bits = device.config.as_ref().map(|config| {
        let acs = config.acs.as_ref().map(|acs| format!("{:#06x}", acs.control));
        format!("memory {} master {} ACS {acs}", config.memory_enabled, config.bus_master)
    });
    put("bits", bits.to_string());
    put("power", device.power.as_ref().map(|power| format!("{power:?}")).to_string());
}

/// What no driver changes. Regions are not among it: some drivers resize them.
fn group_values(snapshot: &Snapshot, device: &PciDevice, values: &mut BTreeMap<String, String>) {
    values.insert(format!("{} group", device.address), device.group.to_string());
    values.insert(format!("{} type", device.address), snapshot.domain_of(device).to_string());
}

/// What nobody changes in passing.
fn lasting_values(snapshot: &Snapshot, device: &PciDevice, values: &mut BTreeMap<String, String>) {
    group_values(snapshot, device, values);
    let mut put = |what: &str, value: String| {
        values.insert(format!("{} {what}", device.address), value);
    };
    put("driver", device.driver.to_string());
    put("driver_override", device.driver_override.to_string());
    let bars = device.bars.as_ref().map(|bars| {
        let one = |bar: &peerway_core::snapshot::pci::Bar| {
            format!("{}: {} + {:#x}", bar.index, bar.start, bar.size)
        };
        bars.iter().map(one).collect::<Vec<_>>().join("; ")
    });
    put("BARs", bars.to_string());
}
