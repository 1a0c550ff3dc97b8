//! Small random hosts, built in code: GPUs on root ports or below switches, alone or sharing
//! groups, with tenants, claims and holders of every kind, and with things that nobody could read.

use peerway_core::observed::Observed::{self, Unreadable};
use peerway_core::snapshot::Snapshot;
use peerway_core::snapshot::kernel::Established;
use peerway_core::snapshot::tenant::TenantId;
use peerway_roads::{Accepted, Constraints, Lifted, RoadId, Stop};
use proptest::collection::vec;
use proptest::option::weighted;
use proptest::prelude::*;
use proptest::sample::{Index, select};

/// One GPU slot.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
    /// Below the switch of its root bus, or on a root port of its own.
    pub(crate) below_switch: bool,
    pub(crate) root: u8,
    pub(crate) driver: &'static str,
    pub(crate) board: u16,
    pub(crate) owner: &'static str,
    pub(crate) second_claim: Option<&'static str>,
    pub(crate) audio: Option<&'static str>,
    /// Shares the group of the slot before it.
    pub(crate) shares_group: bool,
    pub(crate) domain: &'static str,
    pub(crate) external: bool,
}

/// A host before it is built.
#[expect(clippy::struct_excessive_bools, reason = "independent properties of a random host")]
#[derive(Clone, Debug)]
pub(crate) struct Recipe {
    pub(crate) slots: Vec<Slot>,
    pub(crate) kernel: &'static str,
    pub(crate) amd: bool,
    pub(crate) sme: bool,
    pub(crate) snp: bool,
    pub(crate) driver: &'static str,
    pub(crate) dwords: &'static str,
    pub(crate) lockdown: &'static str,
    pub(crate) redirect: bool,
    pub(crate) running: bool,
    pub(crate) held: bool,
    pub(crate) stranger: bool,
    pub(crate) gap: Option<&'static str>,
    pub(crate) override_acs: bool,
}

/// Tenants of every random host.
pub(crate) const OWNERS: [&str; 5] = ["host", "lxc:1", "lxc:2", "vm:3", "container:abcdef"];

fn slot() -> impl Strategy<Value = Slot> {
    let place = (any::<bool>(), 0_u8..2, weighted(0.15, Just(())), weighted(0.05, Just(())));
    let device = (
        select(&["nvidia", "nvidia", "nvidia", "vfio-pci", ""][..]),
        select(&[0x2bb5_u16, 0x2bb5, 0x2bb5, 0x26b9, 0x2684, 0x2bff][..]),
        select(&["DMA-FQ", "DMA-FQ", "DMA-FQ", "DMA", "identity"][..]),
        weighted(0.3, select(&["snd_hda_intel", "snd_hda_intel", "", "vfio-pci"][..])),
    );
    let owner = (select(&OWNERS[..]), weighted(0.1, select(&OWNERS[..])));
    (place, device, owner).prop_map(|(place, device, owner)| {
        let (below_switch, root, shares_group, external) = place;
        let (driver, board, domain, audio) = device;
        Slot {
            below_switch,
            root,
            driver,
            board,
            owner: owner.0,
            second_claim: owner.1,
            audio,
            // Most groups are of one device.
            shares_group: shares_group.is_some() && audio.is_none(),
            domain,
            external: external.is_some(),
        }
    })
}

pub(crate) fn recipe() -> impl Strategy<Value = Recipe> {
    let kernel = select(
        &[
            "5.10.0",
            "6.1.0-41-amd64",
            "6.8.0",
            "6.12.57",
            "6.14.11-5-pve",
            "6.19.10",
            "7.0.14-1-pve",
            "7.3.4",
            "next",
        ][..],
    );
    let host = (any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>());
    let driver = (
        select(&["580.95.05", "570.10.01", "595.45.04"][..]),
        select(
            &["", "RMPcieP2PType=1", "RMPcieP2PType=1", "ForceP2P=0x11", "RMForceP2PType=2"][..],
        ),
        select(&["none", "none", "none", "integrity"][..]),
    );
    let people = (any::<bool>(), weighted(0.2, Just(())), weighted(0.1, Just(())));
    let gap = weighted(0.1, select(&["/etc/pve/lxc/9.conf", "/proc/PID/fd"][..]));
    (vec(slot(), 2..7), kernel, host, driver, people, gap).prop_map(
        |(mut slots, kernel, host, driver, people, gap)| {
            // Half of the hosts are much like real ones, so that roads open at all.
            if host.4 {
                let owner = slots[0].owner;
                for slot in &mut slots {
                    slot.owner = owner;
                    slot.driver = "nvidia";
                    slot.board = 0x2bb5;
                    slot.domain = "DMA-FQ";
                    slot.shares_group &= slot.audio.is_none();
                }
            }
            Recipe {
                slots,
                kernel,
                amd: host.0,
                sme: host.1 && host.0,
                snp: host.2 && host.0,
                driver: driver.0,
                dwords: driver.1,
                lockdown: driver.2,
                redirect: host.3,
                running: people.0,
                held: people.0,
                stranger: people.1.is_some(),
                gap,
                override_acs: people.2.is_some(),
            }
        },
    )
}

pub(crate) fn constraints() -> impl Strategy<Value = Constraints> {
    let sets = (
        weighted(0.3, select(&RoadId::ALL[..])),
        vec(select(&RoadId::ALL[..]), 0..2),
        weighted(0.3, select(&OWNERS[..])),
        weighted(0.2, select(&OWNERS[..])),
    );
    let switches = [any::<bool>(), any::<bool>(), any::<bool>(), any::<bool>()];
    let more = [any::<bool>(), any::<bool>()];
    let stop = prop_oneof![
        Just(Stop::Tenant),
        Just(Stop::Operator),
        Just(Stop::Named(vec!["pct:1".parse().unwrap()])),
        Just(Stop::Named(vec!["qm:3".parse().unwrap(), "unit:job.service".parse().unwrap()])),
    ];
    (sets, switches, more, stop).prop_map(|(sets, switches, more, stop)| Constraints {
        tenant: sets.2.map(|id| TenantId(id.to_owned())),
        asked: sets.0,
        exclude: sets.1.into_iter().collect(),
        protect: sets.3.into_iter().map(|id| TenantId(id.to_owned())).collect(),
        no_reboot: switches[0],
        keep_snp: switches[1],
        lifted: Lifted { reboot: switches[2], snp: switches[3] },
        accepted: Accepted { unbind_hazard: more[0], module_signed: more[1] },
        stop,
        ..Constraints::default()
    })
}

/// Things that can be made unreadable, by number.
pub(crate) const BLINDS: usize = 19;

/// Makes one thing unreadable; the device that it is about is chosen by `which`.
pub(crate) fn blind(snapshot: &mut Snapshot, what: usize, which: Index) {
    fn lose<T>(seen: &mut Observed<T>) {
        *seen = Unreadable("blinded".to_owned());
    }
    let count = snapshot.devices.len();
    let device = &mut snapshot.devices[which.index(count)];
    match what {
        0 => lose(&mut snapshot.kernel.release),
        1 => lose(&mut snapshot.kernel.lockdown),
        2 => lose(&mut snapshot.kernel.command_line),
        3 => lose(&mut snapshot.cpu.vendor),
        4 => lose(&mut snapshot.cpu.flags),
        5 => snapshot.memory_encryption.sme = Established::default(),
        6 => snapshot.memory_encryption.snp = Established::default(),
        7 => lose(&mut snapshot.iommu.units),
        8 => lose(&mut snapshot.nvidia.version),
        9 => lose(&mut snapshot.nvidia.params),
        10 => lose(&mut snapshot.nvidia.gpus),
        11 => lose(&mut snapshot.holders),
        12 => lose(&mut device.driver),
        13 => lose(&mut device.group),
        14 => lose(&mut device.bars),
        15 => lose(&mut device.config),
        16 => lose(&mut device.removable),
        17 => lose(&mut device.ids),
        _ => {
            let count = snapshot.groups.len();
            let group = &mut snapshot.groups[which.index(count)];
            lose(&mut group.domain);
            lose(&mut group.reserved);
        }
    }
}
