//! The plan of `peer-map`: one entry for each requester and peer, whole memory regions and nothing
//! else.

use std::collections::BTreeSet;

use peerway_core::address::PciAddress;
use peerway_core::judge::Verdict;

use super::Phase;
use super::build::{Draft, Expect, HEALTHY_SECONDS};
use crate::gate::{Gate, GateCode, Passed};
use crate::id::RoadId;
use crate::op::{Found, MapEntry, Op, PEER_MAP_MODULE, Until};
use crate::scene::Scene;

pub(super) fn steps(scene: &Scene<'_>, draft: &mut Draft) -> Result<(), Gate> {
    let entries = entries(scene)?;
    draft.prepare(scene);
    let load = Op::LoadModule { module: PEER_MAP_MODULE.to_owned() };
    draft.push(Phase::Prepare, load, Expect::AtRun(Found::Nothing));
    let canary = entries.first().map(|entry| entry.requester);
    draft.canary = canary;
    let (first, rest): (Vec<_>, Vec<_>) =
        entries.into_iter().partition(|entry| Some(entry.requester) == canary);
    for (phase, entries) in [(Phase::Canary, first), (Phase::Rest, rest)] {
        let requesters: BTreeSet<PciAddress> =
            entries.iter().map(|entry| entry.requester).collect();
        for entry in entries {
            draft.push(phase, Op::Map(entry), Expect::AtRun(Found::Nothing));
        }
        for device in requesters {
            if let Some(driver) = driver_of(scene, device) {
                draft.wait(phase, Until::Healthy { device, driver }, HEALTHY_SECONDS);
            }
        }
    }
    draft.confirm(scene, RoadId::PeerMap);
    draft.need(
        format!(
            "the module {PEER_MAP_MODULE} is built for kernel {} and installed",
            scene.snapshot().kernel.release
        ),
        "apply: the step that loads it",
    );
    assumptions(scene, draft);
    Ok(())
}

/// Entries for the pairs that are broken. Requesters of one group share its domain, so each peer
/// is mapped there once.
fn entries(scene: &Scene<'_>) -> Result<Vec<MapEntry>, Gate> {
    let unread = |why: String| Gate::unknown(GateCode::AddressesFree, why, "a new scan as root");
    let mut done = BTreeSet::new();
    let mut entries = Vec::new();
    for pair in scene.pairs().iter().filter(|pair| pair.verdict == Verdict::Broken) {
        let snapshot = scene.snapshot();
        let from = snapshot.device(pair.from);
        let group = from.and_then(|device| snapshot.group_of(device));
        let group = group.ok_or_else(|| unread(format!("group of {} = unknown", pair.from)))?;
        if !done.insert((group.id, pair.to)) {
            continue;
        }
        let target = snapshot.device(pair.to).and_then(|device| snapshot.peer_memory(device));
        let (function, bar) = target
            .filter(|(_, bar)| bar.assigned && bar.memory)
            .ok_or_else(|| unread(format!("memory region of {} = unknown", pair.to)))?;
        entries.push(MapEntry {
            requester: pair.from,
            target: function.address,
            bar: bar.index,
            start: bar.start,
            offset: 0,
            length: bar.size,
            members: group.devices.iter().copied().filter(|one| *one != pair.from).collect(),
        });
    }
    entries.sort();
    Ok(entries)
}

fn driver_of(scene: &Scene<'_>, device: PciAddress) -> Option<String> {
    scene.snapshot().device(device)?.driver_name().map(str::to_owned)
}

fn assumptions(scene: &Scene<'_>, draft: &mut Draft) {
    draft.assume(
        "the type file of a group accepts a write: not relied on, no type is written",
        "plan: no step writes a type",
        Passed::Yes,
    );
    draft.assume_others(scene);
    draft.assume(
        "a GPU survives unbind and rebind: not relied on, no driver is unbound",
        "plan: no step unbinds",
        Passed::Yes,
    );
    draft.assume(
        "the DMA API does not give out the mapped addresses",
        "plan: gate addresses-free; apply: the module looks every page up first; verify, \
         whenever it is run: every entry still points at its region, and dma_mask_bits is what it \
         was",
        Passed::Yes,
    );
    draft.assume(
        "an entry for MMIO leads to the peer's memory (no encryption bit, forwarding by the root \
         complex, no objection of SNP's table)",
        "verify: copies in both directions, by both engines, checked on the owner's side; no RMP \
         event and no IOMMU fault since the mark",
        Passed::Unknown,
    );
    draft.assume(
        "the map lives as long as the driver stays bound on both sides",
        "the module drops it on unbind and removal; the safe environment is written first",
        Passed::Unknown,
    );
}
