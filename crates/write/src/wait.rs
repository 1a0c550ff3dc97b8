//! Bounded waits, reading only.

use std::sync::atomic::{AtomicBool, Ordering};

use peerway_core::address::PciAddress;
use peerway_core::observed::Observed;
use peerway_core::snapshot::tenant::Holder;
use peerway_read::root::SMALL;
use peerway_roads::op::Until;

use crate::executor::StepError;
use crate::health;
use crate::mutator::Host;

/// Seconds between two looks.
const BETWEEN: u64 = 1;
/// Seconds between the two scans that have to agree that nobody holds a device: a process that is
/// being started has its descriptors by then.
const SCANS_APART: u64 = 2;

/// Processes that hold one of some devices, one line each; an error where that cannot be told.
pub fn holders(host: &dyn Host, devices: &[PciAddress]) -> Result<Vec<String>, String> {
    let line = |holder: &Holder| {
        format!(
            "{} ({}, {}) started at {}",
            holder.pid, holder.command, holder.tenant, holder.start
        )
    };
    held(host, devices, line)
}

/// Their numbers.
pub(crate) fn pids(host: &dyn Host, devices: &[PciAddress]) -> Result<Vec<u32>, String> {
    held(host, devices, |holder| holder.pid)
}

fn held<T>(
    host: &dyn Host,
    devices: &[PciAddress],
    of: impl Fn(&Holder) -> T,
) -> Result<Vec<T>, String> {
    let (holders, gaps) = host.holders().map_err(|error| error.to_string())?;
    let gap = gaps.iter().find(|gap| gap.source.starts_with("/proc/PID"));
    if let Some(gap) = gap {
        return Err(format!("who holds the devices is unknown: {}: {}", gap.source, gap.why));
    }
    match &holders {
        Observed::Known(all) => Ok(all
            .iter()
            .filter(|holder| {
                // Another function of a slot goes with it, and a node whose device cannot be told
                // (its driver is unbound just now, or it is gone) may be one of ours.
                let ours = |held: &PciAddress| devices.iter().any(|one| one.same_device(*held));
                !holder.untold.is_empty() || holder.devices.iter().any(ours)
            })
            .map(of)
            .collect()),
        Observed::Absent => Err("who holds the devices is unknown: no process was seen".to_owned()),
        Observed::Unreadable(why) => Err(format!("who holds the devices is unknown: {why}")),
    }
}

/// Waits until something holds; a signal ends the wait where `interrupted` is watched.
pub fn wait(
    host: &mut dyn Host,
    until: &Until,
    seconds: u32,
    mark: u64,
    interrupted: Option<&AtomicBool>,
) -> Result<(), StepError> {
    let deadline = host.uptime().saturating_add(u64::from(seconds));
    let mut quiet = false;
    loop {
        if interrupted.is_some_and(|flag| flag.load(Ordering::SeqCst)) {
            return Err(StepError::Interrupted);
        }
        let look = look(host, until, mark)?;
        let pause = match look {
            Look::Holds if !matches!(until, Until::NoHolders { .. }) || quiet => return Ok(()),
            Look::Holds => {
                quiet = true;
                SCANS_APART
            }
            Look::Never(why) => {
                return Err(StepError::Waited { what: until.to_string(), why });
            }
            Look::NotYet(why) => {
                quiet = false;
                if host.uptime() >= deadline {
                    return Err(StepError::Waited { what: until.to_string(), why });
                }
                BETWEEN
            }
        };
        host.pause(pause);
    }
}

enum Look {
    Holds,
    NotYet(String),
    Never(String),
}

fn look(host: &dyn Host, until: &Until, mark: u64) -> Result<Look, StepError> {
    let root = host.root()?;
    let text = |path: &str| root.text(path, SMALL).map_err(|error| error.to_string());
    Ok(match until {
        Until::NoHolders { devices } => match holders(host, devices) {
            Ok(all) if all.is_empty() => Look::Holds,
            Ok(all) => Look::NotYet(format!("held by {}", all.join(", "))),
            Err(why) => Look::NotYet(why),
        },
        Until::Healthy { device, driver } => {
            let seen = health::since(host, mark)?;
            let whose = [Some(*device), None].into_iter();
            let troubles = whose.filter_map(|device| seen.of_driver(device));
            if let Some(trouble) = troubles.min_by_key(|trouble| trouble.line) {
                return Ok(Look::Never(trouble.text.clone()));
            }
            if seen.lost {
                let why = "records of the kernel log were lost, so that nothing is proved by it";
                return Ok(Look::Never(why.to_owned()));
            }
            match root.link(&format!("/sys/bus/pci/devices/{device}/driver")) {
                Ok(link) if link.rsplit('/').next() == Some(driver) => Look::Holds,
                Ok(link) => Look::NotYet(format!("its driver link leads to {link}")),
                Err(error) => Look::NotYet(error.to_string()),
            }
        }
        Until::Minor { device, minor } => {
            let path = format!("/proc/driver/nvidia/gpus/{device}/information");
            let number = text(&path).map(|text| {
                let line = text.lines().find_map(|line| line.strip_prefix("Device Minor:"));
                line.map(|number| number.trim().to_owned()).unwrap_or_default()
            });
            match number {
                Ok(number) if number == minor.to_string() => Look::Holds,
                Ok(number) => Look::NotYet(format!("it has {number:?}")),
                Err(why) => Look::NotYet(why),
            }
        }
        Until::GroupType { member, is } => {
            let path = format!("/sys/bus/pci/devices/{member}/iommu_group/type");
            match text(&path) {
                Ok(word) if word == *is => Look::Holds,
                Ok(word) => Look::NotYet(format!("it reads {word}")),
                Err(why) => Look::NotYet(why),
            }
        }
    })
}
