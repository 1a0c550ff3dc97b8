//! Gates on the GPU driver.

use std::collections::BTreeSet;

use peerway_core::boards;
use peerway_core::diagnose::rules::p2p_mechanism::{Mechanism, mechanism};
use peerway_core::judge::addressing;
use peerway_core::observed::Observed;
use peerway_core::snapshot::driver::{DriverFlavour, DriverVersion};
use peerway_core::snapshot::kernel::Tristate;
use peerway_core::snapshot::pci::PciDevice;

use super::some_of;
use crate::constraint;
use crate::gate::{Gate, GateCode};
use crate::scene::Scene;

/// Addresses below this are 32-bit: the DMA API gives them out first.
const FOUR_GIB: u64 = 1 << 32;
/// BAR1 peer addresses have to be aligned to this (`kern_bus_gh100.c`).
const BAR1_ALIGNMENT: u64 = 512 << 20;

/// Devices of the goal that NVIDIA's driver drives and nobody declared.
pub(crate) fn nvidia<'s, 'a>(scene: &'s Scene<'a>) -> impl Iterator<Item = &'a PciDevice> + 's {
    scene.devices().iter().copied().filter(|device| {
        device.driver_name() == Some("nvidia")
            && scene.snapshot().accelerator(device.address).is_none()
    })
}

/// A driver is bound to every device, and it is not VFIO's.
pub(crate) fn bound(scene: &Scene<'_>) -> Gate {
    let mut read = BTreeSet::new();
    let mut bad = Vec::new();
    let mut unread = Vec::new();
    for device in scene.devices() {
        let text = format!("driver of {} = {}", device.address, device.driver);
        match &device.driver {
            Observed::Known(_) if device.is_vfio() => bad.push(text),
            Observed::Known(name) => {
                read.insert(name.clone());
            }
            Observed::Absent => bad.push(text),
            Observed::Unreadable(_) => unread.push(text),
        }
    }
    if !bad.is_empty() {
        let lifts = "the GPU's own driver bound to it";
        Gate::fail(GateCode::BoundDriver, some_of(&bad), lifts)
    } else if !unread.is_empty() {
        let lifts = "a readable driver link";
        Gate::unknown(GateCode::BoundDriver, some_of(&unread), lifts)
    } else {
        let names = read.into_iter().collect::<Vec<_>>().join(", ");
        Gate::pass(GateCode::BoundDriver, format!("driver of the devices = {names}"))
    }
}

/// Whether boards of the goal have NVLink that is not known to be down. A key that forces one type
/// of access for all pairs would take it away.
pub(crate) fn linked(scene: &Scene<'_>) -> bool {
    let has_links = nvidia(scene).any(|device| {
        let board = device.ids.known().and_then(|ids| boards::lookup(*ids));
        board.is_some_and(|board| board.nvlink)
    });
    let down = match &scene.snapshot().nvlinks {
        Observed::Known(links) => links.is_empty(),
        Observed::Absent => true,
        Observed::Unreadable(_) => false,
    };
    has_links && !down
}

/// Whether BAR1 access is chosen by a key that forces one type for all pairs: branches before 575.
fn forces_all_pairs(scene: &Scene<'_>) -> bool {
    let branch = scene.snapshot().nvidia.version.known().and_then(DriverVersion::branch);
    branch.is_none_or(|branch| branch < crate::operator::parameters::RENUMBERED_AT)
}

/// What the driver puts on the bus can be mapped: whole memory regions (BAR1), or a declared one.
pub(crate) fn p2p_mechanism(scene: &Scene<'_>) -> Gate {
    const LIFTS: &str = "driver-policy: BAR1 peer access, chosen by RMPcieP2PType=1 from branch \
                         575 on (RMForceP2PType=2 before) on Hopper and Blackwell boards";
    const LINKED: &str = "NVLink comes first on these boards: RMPcieP2PType=1 of a branch from 575 on \
                          leaves it alone, RMForceP2PType=2 before would take it away";
    let snapshot = scene.snapshot();
    let mut read = BTreeSet::new();
    let mut unknown = Vec::new();
    let mut mailbox = Vec::new();
    for device in scene.devices() {
        if let Some(declared) = snapshot.accelerator(device.address) {
            read.insert(format!("{} = declared region {}", declared.name, declared.bar));
            continue;
        }
        if let Some(fault) = scene.request().faults.iter().find(|fault| {
            fault.requester == device.address && fault.bar == 0 && fault.target != device.address
        }) {
            mailbox.push(format!(
                "{} faulted in BAR0 of {} ({} times): mailbox",
                fault.requester, fault.target, fault.count
            ));
            continue;
        }
        if device.driver_name() != Some("nvidia") {
            unknown
                .push(format!("{}: driver {} is not looked into", device.address, device.driver));
            continue;
        }
        match mechanism(snapshot, device) {
            (Mechanism::Bar1, why) => match aligned(scene, device) {
                None => {
                    read.insert(format!("BAR1: {why}"));
                }
                Some(text) => unknown.push(text),
            },
            (Mechanism::Mailbox, why) => {
                mailbox.push(format!("{} = mailbox: {why}", device.address));
            }
            (Mechanism::Unknown, why) => {
                unknown.push(format!("{} = unknown: {why}", device.address));
            }
        }
    }
    if !mailbox.is_empty() {
        if forces_all_pairs(scene) && linked(scene) {
            return mailbox_gate(scene, &mailbox, LINKED);
        }
        return mailbox_gate(scene, &mailbox, LIFTS);
    }
    if unknown.is_empty() {
        let read: Vec<String> = read.into_iter().collect();
        Gate::pass(GateCode::P2pMechanism, some_of(&read))
    } else {
        Gate::unknown(GateCode::P2pMechanism, some_of(&unknown), LIFTS)
    }
}

/// A peer's region whose address BAR1 access cannot use.
fn aligned(scene: &Scene<'_>, device: &PciDevice) -> Option<String> {
    let Some((memory, bar)) = scene.snapshot().peer_memory(device) else {
        return Some(format!("{}: its memory region could not be read", device.address));
    };
    (bar.start.0 % BAR1_ALIGNMENT != 0).then(|| {
        format!(
            "resource {} of {} = {}: not aligned to 512 MiB, which BAR1 peer access needs",
            bar.index, memory.address, bar.start
        )
    })
}

/// Mailbox access writes to a page of the peer's BAR0. Below 4 GiB under another host bridge that
/// address is the DMA API's to give out; elsewhere nobody has established which pages it takes.
fn mailbox_gate(scene: &Scene<'_>, mailbox: &[String], lifts: &str) -> Gate {
    let bar0 = |device: &PciDevice| {
        let bars = device.bars.known()?;
        bars.iter().find(|bar| bar.index == 0 && bar.memory).map(|bar| bar.start)
    };
    let mut roots = BTreeSet::new();
    let low: Vec<String> = scene
        .devices()
        .iter()
        .filter_map(|device| {
            roots.insert(device.root);
            let start = bar0(device)?;
            (start.0 < FOUR_GIB).then(|| format!("BAR0 of {} = {start}", device.address))
        })
        .collect();
    if !low.is_empty() && roots.len() > 1 {
        return Gate::fail(
            GateCode::P2pMechanism,
            format!(
                "{}; {}: below 4 GiB, under {} host bridges",
                some_of(mailbox),
                some_of(&low),
                roots.len()
            ),
            lifts,
        );
    }
    Gate::unknown(
        GateCode::P2pMechanism,
        format!("{}; which pages of BAR0 it takes is not established", some_of(mailbox)),
        lifts,
    )
}

/// The driver's source can be built again.
pub(crate) fn open_driver(scene: &Scene<'_>) -> Gate {
    const SOURCE: &str = "/proc/driver/nvidia/version";
    let undriven = scene.undriven();
    if !undriven.is_empty() {
        return Gate::unknown(GateCode::OpenDriver, some_of(&undriven), "readable driver links");
    }
    if nvidia(scene).count() != scene.devices().len() {
        return Gate::fail(
            GateCode::OpenDriver,
            "not every device of the goal is driven by NVIDIA's driver",
            "nothing: the road is about NVIDIA's open kernel modules",
        );
    }
    match &scene.snapshot().nvidia.version {
        Observed::Known(version) => {
            let read = format!("{SOURCE} = {}", version.line);
            match version.flavour {
                DriverFlavour::Open => Gate::pass(GateCode::OpenDriver, read),
                DriverFlavour::Closed => Gate::fail(
                    GateCode::OpenDriver,
                    read,
                    "NVIDIA's open kernel modules of the same version",
                ),
                DriverFlavour::Fork => Gate::fail(
                    GateCode::OpenDriver,
                    format!("{read}: a peer-to-peer build, which uses raw addresses always"),
                    "NVIDIA's open kernel modules without those changes",
                ),
            }
        }
        other => Gate::unknown(
            GateCode::OpenDriver,
            format!("{SOURCE} = {}", other.as_ref().map(|version| version.line.clone())),
            "a readable /proc/driver/nvidia/version",
        ),
    }
}

/// Unbinding cannot get the host into a state that only a reboot heals, or the operator accepts
/// that it may.
pub(crate) fn unbind_hazard(scene: &Scene<'_>) -> Gate {
    let other: Vec<String> = scene
        .devices()
        .iter()
        .filter(|device| {
            device.driver_name() != Some("nvidia")
                && scene.snapshot().accelerator(device.address).is_none()
        })
        .map(|device| format!("driver of {} = {}", device.address, device.driver))
        .collect();
    if !other.is_empty() {
        return Gate::unknown(
            GateCode::UnbindHazard,
            format!("{}: how it lets go of a device is not known", some_of(&other)),
            "an operator's own fact about that driver (--knowledge FILE)",
        );
    }
    if nvidia(scene).next().is_none() {
        return Gate::pass(
            GateCode::UnbindHazard,
            "the devices are declared by the operator, who answers for their driver",
        );
    }
    let version = scene.snapshot().nvidia.version.as_ref().map(|version| version.version.clone());
    let read = format!("/proc/driver/nvidia/version = {version}");
    match hazard(scene) {
        Tristate::No => Gate::pass(
            GateCode::UnbindHazard,
            format!("{read}: removal waits for users, and none may be there"),
        ),
        state if scene.constraints().accepted.unbind_hazard => Gate::pass(
            GateCode::UnbindHazard,
            format!("{read}: hazard {state}, accepted by the operator; {}", hit(scene)),
        )
        .constraint(),
        Tristate::Yes => Gate::fail(
            GateCode::UnbindHazard,
            format!("{read}: a lost race while unbinding needs a reboot; {}", hit(scene)),
            "accepting it (--accept unbind-hazard), or a driver branch before 595",
        ),
        Tristate::Unknown => Gate::unknown(
            GateCode::UnbindHazard,
            format!("{read}; {}", hit(scene)),
            "accepting it (--accept unbind-hazard), or a readable driver version",
        ),
    }
}

/// Whether the driver's version is one whose unbinding can be lost.
pub(crate) fn hazard(scene: &Scene<'_>) -> Tristate {
    if !scene.undriven().is_empty() {
        Tristate::Unknown
    } else if nvidia(scene).next().is_none() {
        Tristate::No
    } else {
        scene.fact("unbind-hazard")
    }
}

/// Whom a reboot would hit.
fn hit(scene: &Scene<'_>) -> String {
    match constraint::no_reboot(scene) {
        Some((_, why)) => why,
        None => "a reboot would hit the goal's own tenant".to_owned(),
    }
}

/// Every GPU gets its node number back when it is bound again: the driver gives the lowest free
/// one, and the devices are bound one after another.
pub(crate) fn minors(scene: &Scene<'_>) -> Gate {
    const SOURCE: &str = "/proc/driver/nvidia/gpus/*/information";
    let undriven = scene.undriven();
    if !undriven.is_empty() {
        return Gate::unknown(GateCode::Minors, some_of(&undriven), "readable driver links");
    }
    if nvidia(scene).next().is_none() {
        return Gate::pass(GateCode::Minors, "no device of the goal has a numbered node");
    }
    let Some(gpus) = scene.snapshot().nvidia.gpus.known() else {
        return Gate::unknown(GateCode::Minors, format!("{SOURCE} = unreadable"), "root");
    };
    let all: Option<BTreeSet<u32>> = gpus.iter().map(|gpu| gpu.minor.known().copied()).collect();
    let Some(all) = all else {
        return Gate::unknown(GateCode::Minors, format!("{SOURCE}: Device Minor missing"), "root");
    };
    // The lowest number that nobody has; a device that is bound again gets it if it is lower than
    // its own.
    let free = (0..=u32::MAX).find(|number| !all.contains(number)).unwrap_or(u32::MAX);
    let mut moved = Vec::new();
    let mut read = Vec::new();
    for device in nvidia(scene) {
        match gpus.iter().find(|gpu| gpu.address == device.address) {
            Some(gpu) => match gpu.minor.known() {
                Some(minor) if *minor < free => read.push(format!("{} = {minor}", device.address)),
                Some(minor) => {
                    moved.push(format!("{} = {minor}, and {free} is free", device.address));
                }
                None => {}
            },
            None => {
                return Gate::unknown(
                    GateCode::Minors,
                    format!("{} is not below {SOURCE}", device.address),
                    "root",
                );
            }
        }
    }
    if moved.is_empty() {
        Gate::pass(GateCode::Minors, format!("{SOURCE}: Device Minor {}", some_of(&read)))
    } else {
        Gate::fail(
            GateCode::Minors,
            format!("{SOURCE}: Device Minor {}", some_of(&moved)),
            "binding the devices in the order of their numbers: rules of containers name numbers",
        )
    }
}

/// There is something that the driver's parameters would change for the goal.
pub(crate) fn policy_applies(scene: &Scene<'_>) -> Gate {
    let snapshot = scene.snapshot();
    let undriven = scene.undriven();
    if !undriven.is_empty() {
        return Gate::unknown(GateCode::PolicyApplies, some_of(&undriven), "readable driver links");
    }
    if nvidia(scene).next().is_none() {
        return Gate::fail(
            GateCode::PolicyApplies,
            "no device of the goal is driven by NVIDIA's driver",
            "nothing",
        );
    }
    if snapshot.nvidia.params.known().is_none() {
        return Gate::unknown(
            GateCode::PolicyApplies,
            "/proc/driver/nvidia/params could not be read",
            "a readable /proc/driver/nvidia/params",
        );
    }
    let mailbox: Vec<String> = nvidia(scene)
        .filter(|device| mechanism(snapshot, device).0 == Mechanism::Mailbox)
        .filter(|device| {
            device
                .ids
                .known()
                .and_then(|ids| boards::architecture(*ids))
                .is_some_and(boards::Architecture::has_fsp)
        })
        .map(|device| device.address.to_string())
        .collect();
    let small: Vec<String> = nvidia(scene)
        .filter_map(|device| {
            let config = device.config.known()?;
            let entry =
                config.resizable.known()?.iter().find(|entry| entry.current < entry.largest)?;
            Some(format!(
                "BAR {} of {} = {} of {} MiB",
                entry.index,
                device.address,
                entry.current >> 20,
                entry.largest >> 20
            ))
        })
        .collect();
    let refused = super::pairs::boards_refused(scene);
    if addressing::told_not_to_map(snapshot) {
        Gate::pass(GateCode::PolicyApplies, "DmaRemapPeerMmio is 0")
    } else if refused {
        Gate::fail(
            GateCode::PolicyApplies,
            "the driver refuses these boards, and no parameter makes a data path",
            "boards on which the stock driver offers peer access",
        )
    } else if !mailbox.is_empty() && forces_all_pairs(scene) && linked(scene) {
        Gate::fail(
            GateCode::PolicyApplies,
            format!(
                "mailbox is in use on {}; NVLink comes first on these boards, and RMForceP2PType=2, \
                 this branch's key for BAR1, would take it from every pair",
                some_of(&mailbox)
            ),
            "a driver branch from 575 on, whose RMPcieP2PType leaves NVLink alone",
        )
    } else if !mailbox.is_empty() {
        Gate::pass(
            GateCode::PolicyApplies,
            format!("mailbox is in use on {}; BAR1 access can be chosen", some_of(&mailbox)),
        )
    } else if !small.is_empty() {
        Gate::pass(GateCode::PolicyApplies, some_of(&small))
    } else {
        Gate::fail(
            GateCode::PolicyApplies,
            "mechanism, BAR sizes and boards are as good as parameters can make them",
            "nothing: there is nothing to set",
        )
    }
}
