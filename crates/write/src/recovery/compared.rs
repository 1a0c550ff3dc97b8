//! Whether the way back reached the first state.

use std::collections::BTreeMap;

use peerway_core::address::PciAddress;
use peerway_core::snapshot::Snapshot;
use peerway_core::snapshot::iommu::DomainType;
use peerway_roads::Plan;
use peerway_roads::plan::Difference;

use crate::executor::Executor;
use crate::health::{self, Seen};
use crate::mutator::WriteError;
use crate::transaction::TransactionError;

/// What a look at the end found.
pub(super) struct Compared {
    /// What is not as it was.
    pub(super) wrong: Vec<String>,
    /// What cannot be told.
    pub(super) doubts: Vec<String>,
    /// Devices that did not come back, with what their driver says.
    pub(super) fallen: Vec<(PciAddress, String)>,
}

/// What of the goal's own devices is not as the plan found it or did not come back, and what of
/// that cannot be told.
pub(super) fn compared(
    executor: &mut Executor<'_, '_>,
    plan: &Plan,
    mark: Result<u64, WriteError>,
    risen: &BTreeMap<PciAddress, u64>,
) -> Result<Compared, TransactionError> {
    let snapshot = executor.host.snapshot()?;
    let ours = |one: &Difference| {
        one.source.starts_with("/sys/bus/pci/")
            || one.source.starts_with("/proc/driver/nvidia/gpus/")
    };
    let (mut wrong, mut doubts, mut fallen) = (Vec::new(), Vec::new(), Vec::new());
    for one in plan.differences(&snapshot).into_iter().filter(ours) {
        let shown = |text: &Option<String>| text.clone().unwrap_or_else(|| "nothing".to_owned());
        let (planned, now) = (shown(&one.planned), shown(&one.now));
        let text = format!("{} was {planned} and is {now}", one.source);
        let is_type = one.source.ends_with("/iommu_group/type");
        let read = DomainType::from_word(&now);
        if is_type && DomainType::from_word(&planned).may_read_as(&read) {
            doubts.push(format!("{text}: the kernel fell back to strict invalidation"));
        } else {
            wrong.push(text);
        }
    }
    doubts.extend(unopened(executor, plan, &snapshot));
    match mark.and_then(|mark| health::since(executor.host, mark)) {
        Ok(seen_of_all) => {
            let troubles = troubles(executor, plan, &seen_of_all, risen)?;
            for (device, trouble) in troubles {
                let text = format!(
                    "a device did not come back: {trouble}; it needs a reset, or the host a reboot"
                );
                fallen.push((device, trouble));
                if !wrong.contains(&text) {
                    wrong.push(text);
                }
            }
            if seen_of_all.lost {
                doubts.push(
                    "whether each driver came back without an error: records of the kernel log \
                     were lost on the way back"
                        .to_owned(),
                );
            }
        }
        Err(why) => doubts.push(format!("whether each driver came back without an error: {why}")),
    }
    Ok(Compared { wrong, doubts, fallen })
}

/// Devices that were bound to NVIDIA's driver again and that nobody has opened since. It brings a board up at the
/// first open (`kernel-open/nvidia/nv.c`, `nv_open_device`), so that one that is dead says nothing until then;
/// the UUID is shown once it was brought up.
fn unopened(executor: &Executor<'_, '_>, plan: &Plan, snapshot: &Snapshot) -> Vec<String> {
    let gpus = snapshot.nvidia.gpus.known().map(Vec::as_slice).unwrap_or_default();
    let open = executor.journal.open_transaction();
    let was_taken = |device: &PciAddress| {
        open.as_ref().and_then(|one| one.driver_before(*device)).as_deref() == Some("nvidia")
    };
    let is_shut = |device: &PciAddress| {
        gpus.iter().any(|gpu| gpu.address == *device && gpu.uuid.known().is_none())
    };
    let shut = plan.goal.devices.iter().filter(|device| was_taken(device) && is_shut(device));
    shut.map(|device| {
        format!(
            "whether {device} comes up: its driver brings it up when it is first opened, and nobody has opened \
             it since; nvidia-smi -i {device} does"
        )
    })
    .collect()
}

/// What drivers said of the goal's devices. Of one that came up on the ladder, and of nobody in
/// particular, only what came after that counts.
fn troubles(
    executor: &Executor<'_, '_>,
    plan: &Plan,
    seen_of_all: &Seen,
    risen: &BTreeMap<PciAddress, u64>,
) -> Result<Vec<(PciAddress, String)>, TransactionError> {
    let after = |mark: Option<&u64>| mark.map(|mark| health::since(executor.host, *mark));
    let mut all = Vec::new();
    for device in &plan.goal.devices {
        let later = after(risen.get(device)).transpose()?;
        let trouble = later.as_ref().unwrap_or(seen_of_all).of_driver(Some(*device));
        all.extend(trouble.map(|trouble| (*device, trouble.text.clone())));
    }
    let later = after(risen.values().max()).transpose()?;
    let trouble = later.as_ref().unwrap_or(seen_of_all).of_driver(None);
    // One that no line names may be any of them.
    let devices = plan.goal.devices.iter().filter(|_| all.is_empty());
    let whose = trouble.map(|trouble| devices.map(|one| (*one, trouble.text.clone())));
    let whose: Vec<_> = whose.into_iter().flatten().collect();
    all.extend(whose);
    Ok(all)
}
