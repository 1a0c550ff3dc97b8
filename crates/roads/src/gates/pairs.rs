//! Gates on the pairs themselves: is there something to cure, and can it be reached?

use std::collections::BTreeMap;

use peerway_core::boards;
use peerway_core::code::{self, Code};
use peerway_core::judge::{Verdict, addressing, forwarding};
use peerway_core::snapshot::kernel::Tristate;
use peerway_core::snapshot::pci::{Addressing, PciDevice};

use super::some_of;
use crate::gate::{Gate, GateCode};
use crate::scene::Scene;

/// There are at least two devices of one tenant.
pub(crate) fn goal(scene: &Scene<'_>) -> Gate {
    match scene.goal() {
        Some(goal) if goal.devices.len() > 1 => Gate::pass(GateCode::Goal, goal.to_string()),
        Some(goal) => Gate::fail(
            GateCode::Goal,
            format!("{goal}: one device"),
            "two devices of one tenant, or naming them (--device)",
        ),
        None => Gate::fail(
            GateCode::Goal,
            "no two GPUs or declared accelerators of one tenant",
            "naming a tenant or devices (--goal, --device), or declaring accelerators (--accelerator FILE)",
        ),
    }
}

/// Something is broken.
pub(crate) fn broken_pairs(scene: &Scene<'_>) -> Gate {
    let count = |verdict| scene.pairs().iter().filter(|pair| pair.verdict == verdict).count();
    let (broken, unknown) = (count(Verdict::Broken), count(Verdict::Unknown));
    let (works, impaired) = (count(Verdict::Works), count(Verdict::Impaired));
    let read = format!(
        "verdicts of the goal's pairs = {broken} broken, {impaired} impaired, {works} work, \
         {unknown} unknown"
    );
    if broken > 0 {
        Gate::pass(GateCode::BrokenPairs, read)
    } else if unknown > 0 || scene.pairs().is_empty() {
        Gate::unknown(GateCode::BrokenPairs, read, "peerway test measures the pairs")
    } else {
        Gate::fail(GateCode::BrokenPairs, read, "nothing: there is no broken pair to cure")
    }
}

/// The devices are not a guest's.
pub(crate) fn in_guest(scene: &Scene<'_>) -> Gate {
    let here = scene.snapshot().is_guest();
    if here == Tristate::Yes {
        return Gate::fail(
            GateCode::DecidedInGuest,
            "/proc/cpuinfo flags = hypervisor: this system is a guest",
            "running peerway on the host, whose IOMMU decides",
        );
    }
    let vfio: Vec<String> = scene
        .devices()
        .iter()
        .filter(|device| device.is_vfio())
        .map(|device| format!("driver of {} = {}", device.address, device.driver))
        .collect();
    if scene.goal_is_guest() || !vfio.is_empty() {
        let read = match scene.tenant() {
            Some(tenant) => format!("the devices are {tenant}'s; {}", some_of(&vfio)),
            None => some_of(&vfio),
        };
        return Gate::fail(
            GateCode::DecidedInGuest,
            read,
            "running peerway inside the guest: VFIO's domain is the guest's own",
        );
    }
    let undriven = scene.undriven();
    if !undriven.is_empty() {
        let lifts = "readable driver links";
        return Gate::unknown(GateCode::DecidedInGuest, some_of(&undriven), lifts);
    }
    let read = "no device of the goal is bound to VFIO";
    match here {
        Tristate::No => Gate::pass(GateCode::DecidedInGuest, read),
        _ => Gate::unknown(
            GateCode::DecidedInGuest,
            format!("{read}; whether this system is a guest could not be read"),
            "a readable /proc/cpuinfo",
        ),
    }
}

/// Pairs of the goal that carry one of these codes, named.
fn with_codes(scene: &Scene<'_>, codes: &[Code]) -> Vec<String> {
    scene
        .open_pairs()
        .filter(|pair| pair.codes.iter().any(|code| codes.contains(code)))
        .map(|pair| format!("{} to {}: {}", pair.from, pair.to, pair.reason))
        .collect()
}

/// The targets' memory can be addressed.
pub(crate) fn reachable(scene: &Scene<'_>) -> Gate {
    let blocked = with_codes(
        scene,
        &[
            code::DEAD_DEVICE,
            code::UNASSIGNED_BAR,
            code::TARGET_UNREACHABLE,
            code::BEYOND_ADDRESS_WIDTH,
        ],
    );
    if !blocked.is_empty() {
        return Gate::fail(
            GateCode::Reachable,
            some_of(&blocked),
            "leaving the device out of the goal (--device); firmware settings for BARs \
             (Above 4G Decoding, Resizable BAR, MMIO base)",
        );
    }
    let mut unread = Vec::new();
    let mut read = Vec::new();
    for device in scene.devices() {
        match scene.snapshot().peer_memory(device) {
            Some((memory, bar)) if bar.assigned => read.push(format!(
                "resource {} of {} = {} + {} MiB",
                bar.index,
                memory.address,
                bar.start,
                bar.size >> 20
            )),
            _ => unread.push(format!("resource of {} = {}", device.address, bars_text(device))),
        }
    }
    if unread.is_empty() {
        Gate::pass(GateCode::Reachable, some_of(&read))
    } else {
        let lifts = "readable /sys/bus/pci/devices/*/resource";
        Gate::unknown(GateCode::Reachable, some_of(&unread), lifts)
    }
}

fn bars_text(device: &PciDevice) -> String {
    match &device.bars {
        peerway_core::observed::Observed::Known(_) => "no memory region with an address".to_owned(),
        other => other.as_ref().map(|_| "").to_string(),
    }
}

/// Whether a board of the goal is one that the stock driver does not offer peer access on, whatever
/// answer it was told to give.
pub(crate) fn boards_refused(scene: &Scene<'_>) -> bool {
    let no_offer = |device: &PciDevice| {
        let board = device.ids.known().and_then(|ids| boards::lookup(*ids));
        board.is_some_and(|board| board.offers_p2p == Tristate::No)
    };
    let snapshot = scene.snapshot();
    !addressing::is_fork(snapshot)
        && scene
            .devices()
            .iter()
            .any(|device| snapshot.accelerator(device.address).is_none() && no_offer(device))
}

/// The driver offers peer access on these boards.
pub(crate) fn driver_offers(scene: &Scene<'_>) -> Gate {
    let snapshot = scene.snapshot();
    if addressing::is_fork(snapshot) {
        return Gate::pass(
            GateCode::DriverOffers,
            "a peer-to-peer build offers peer access on every board (its answers are no evidence)",
        );
    }
    let mut none = Vec::new();
    let mut unknown = Vec::new();
    let mut read = Vec::new();
    for device in scene.devices() {
        if let Some(declared) = snapshot.accelerator(device.address) {
            read.push(format!("{} = declared ({})", device.address, declared.name));
            continue;
        }
        let ids = &device.ids;
        match ids.known().and_then(|ids| boards::lookup(*ids)) {
            Some(board) if board.offers_p2p == Tristate::Yes => {
                read.push(format!("{} = {ids} ({})", device.address, board.name));
            }
            Some(board) if board.offers_p2p == Tristate::No => {
                none.push(format!("{} = {ids} ({})", device.address, board.name));
            }
            _ => unknown.push(format!("{} = {ids}", device.address)),
        }
    }
    if addressing::forced(snapshot) && !(none.is_empty() && unknown.is_empty()) {
        none.append(&mut unknown);
        return Gate::unknown(
            GateCode::DriverOffers,
            format!("{}: ForceP2P overrides the answer and makes no path", some_of(&none)),
            "peerway test: whether the hardware has the path is not known",
        );
    }
    if !none.is_empty() {
        return Gate::fail(
            GateCode::DriverOffers,
            some_of(&none),
            "boards on which the stock driver offers it",
        );
    }
    if !unknown.is_empty() {
        return Gate::unknown(
            GateCode::DriverOffers,
            format!("no entry in the table of boards for {}", some_of(&unknown)),
            "peerway test, which asks the driver",
        );
    }
    read.dedup();
    Gate::pass(GateCode::DriverOffers, some_of(&read))
}

/// How the drivers of the goal address peers, by what the pairs show.
pub(crate) enum Addresses {
    /// Raw bus addresses.
    Raw(String),
    /// Addresses that the kernel mapped.
    Mapped(String),
    /// Nobody could tell.
    Unknown(String),
}

pub(crate) fn addresses(scene: &Scene<'_>) -> Addresses {
    let mut raw = None;
    let mut unknown = None;
    for pair in scene.open_pairs() {
        let has = |code| pair.codes.contains(&code);
        if has(code::RAW_UNDER_TRANSLATION) {
            raw = raw.or(Some(pair));
        } else if has(code::MAPPED_BY_DRIVER) || has(code::ENCRYPTION_BIT) || has(code::SME_ACTIVE)
        {
            return Addresses::Mapped(format!("{} to {}: {}", pair.from, pair.to, pair.reason));
        } else if pair.verdict == Verdict::Unknown || has(code::ADDRESSING_UNKNOWN) {
            unknown = unknown.or(Some(pair));
        }
    }
    let declared_mapped = scene.devices().iter().find_map(|device| {
        let declared = scene.snapshot().accelerator(device.address)?;
        (declared.addressing == Addressing::Mapped).then_some(declared)
    });
    match (declared_mapped, unknown, raw) {
        (Some(declared), _, _) => {
            Addresses::Mapped(format!("{} is declared to use mapped addresses", declared.name))
        }
        (None, Some(pair), _) => {
            Addresses::Unknown(format!("{} to {}: {}", pair.from, pair.to, pair.reason))
        }
        (None, None, Some(pair)) => Addresses::Raw(pair.reason.clone()),
        (None, None, None) => {
            Addresses::Unknown("no pair shows which addresses its driver uses".to_owned())
        }
    }
}

/// The driver uses raw bus addresses.
pub(crate) fn raw_addresses(scene: &Scene<'_>) -> Gate {
    match addresses(scene) {
        Addresses::Raw(read) => Gate::pass(GateCode::RawAddresses, read),
        Addresses::Mapped(read) => Gate::fail(
            GateCode::RawAddresses,
            read,
            "nothing: this driver already has the kernel map its peers",
        ),
        Addresses::Unknown(read) => {
            Gate::unknown(GateCode::RawAddresses, read, "peerway diagnose; peerway test")
        }
    }
}

/// The root complex forwards.
///
/// Pairs of the same two root buses have the same answer, so one of each is asked.
pub(crate) fn routing(scene: &Scene<'_>) -> Gate {
    let mut roots = BTreeMap::new();
    for device in scene.devices() {
        let declared = scene
            .snapshot()
            .accelerator(device.address)
            .map(|declared| declared.root_complex_forwards);
        roots.entry((device.root, declared)).or_insert(*device);
    }
    let mut yes = None;
    for from in roots.values() {
        for to in roots.values() {
            let (state, why) = forwarding::forwards(scene.snapshot(), from, to);
            match state {
                Tristate::Yes => yes = yes.or(Some(why)),
                Tristate::No => {
                    let lifts = "devices below one host bridge that forwards";
                    return Gate::fail(GateCode::Routing, why, lifts);
                }
                Tristate::Unknown => {
                    return Gate::unknown(
                        GateCode::Routing,
                        format!("{} to {}: {why}", from.root, to.root),
                        "peerway test, which measures it",
                    );
                }
            }
        }
    }
    match yes {
        Some(why) => Gate::pass(GateCode::Routing, why),
        None => Gate::unknown(GateCode::Routing, "no device of the goal", "a goal"),
    }
}
