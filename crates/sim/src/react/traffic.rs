//! Peer copies, and what becomes of them.

use peerway_core::address::PciAddress;
use peerway_core::route::{Redirect, Route};
use peerway_core::snapshot::Snapshot;
use peerway_read::tree::Node;
use peerway_roads::op::MapEntry;
use rustix::io::Errno;

use super::group_type::rejects_all_dma;
use super::{SimError, SimHost};

const ERROR: u8 = 3;

/// What the owner of the memory finds after a copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrived {
    /// The data.
    Intact,
    /// What was there before.
    Nothing,
    /// The requester is not usable.
    NotRun,
}

impl SimHost {
    /// The module's own rules: a paging domain, a bound kernel driver on both sides, the region as
    /// the kernel has it, and nothing there yet.
    pub(super) fn map(&mut self, entry: &MapEntry) -> Result<(), SimError> {
        if self.names(&format!("/sys/module/{}", peerway_roads::op::PEER_MAP_MODULE)).is_err() {
            return Err(SimError::Errno(Errno::NODEV));
        }
        for device in [entry.requester, entry.target] {
            match self.driver_of(device).as_deref() {
                None | Some("vfio-pci") => return Err(SimError::Errno(Errno::BUSY)),
                Some(_) => {}
            }
        }
        let group = self.group_of(entry.requester).ok_or(SimError::Errno(Errno::NODEV))?;
        if !matches!(self.type_of(group).as_deref(), Some("DMA" | "DMA-FQ")) {
            return Err(SimError::Errno(Errno::INVAL));
        }
        let snapshot = self.snapshot();
        let fits = snapshot.device(entry.target).is_some_and(|device| {
            let bars = device.bars.known().map(Vec::as_slice).unwrap_or_default();
            bars.iter().any(|bar| {
                bar.index == entry.bar
                    && bar.start == entry.start
                    && entry.offset.saturating_add(entry.length) <= bar.size
            })
        });
        if !fits {
            return Err(SimError::Errno(Errno::INVAL));
        }
        let same = |one: &MapEntry| one.requester == entry.requester && one.target == entry.target;
        if self.state.entries.iter().any(same) {
            return Err(SimError::Errno(Errno::EXIST));
        }
        self.state.entries.insert(entry.clone());
        self.show_entries();
        Ok(())
    }

    /// The list that the loaded module gives (`kmod/peerway_map.c`, `map_show`).
    pub(super) fn show_entries(&mut self) {
        use std::fmt::Write as _;
        const LIST: &str = "/proc/peerway-map";
        if self.names(&format!("/sys/module/{}", peerway_roads::op::PEER_MAP_MODULE)).is_err() {
            self.edit().remove(LIST);
            return;
        }
        let entries = &self.state.entries;
        let mut text = format!(
            "peerway-map 1\nentries {} dropped 0 lost 0\nlast 0 none 0 no command yet\n",
            entries.len()
        );
        for entry in entries {
            // Writing to a String cannot fail.
            writeln!(
                text,
                "entry {} {} {} {:#x} {:#x} at {:#x} ok",
                entry.requester,
                entry.target,
                entry.bar,
                entry.offset,
                entry.length,
                entry.start.0.saturating_add(entry.offset)
            )
            .unwrap_or_default();
        }
        self.put_node(LIST, Node::File(text.into_bytes()));
    }

    /// A copy from one GPU into the memory of another, checked by its owner. What is blocked is
    /// logged as the IOMMU's driver logs it.
    pub fn copy(&mut self, from: PciAddress, to: PciAddress) -> Arrived {
        let snapshot = self.snapshot();
        self.copy_on(&snapshot, from, to)
    }

    fn copy_on(&mut self, snapshot: &Snapshot, from: PciAddress, to: PciAddress) -> Arrived {
        let declared = |device: PciAddress| snapshot.accelerator(device).is_some();
        // A declared one does what its own program tells it, with whatever driver of the host's.
        let usable = |device: PciAddress| match self.driver_of(device).as_deref() {
            Some("nvidia") => true,
            Some("vfio-pci") | None => false,
            Some(_) => declared(device),
        };
        if !usable(from) || !usable(to) {
            return Arrived::NotRun;
        }
        let (Some(requester), Some(target)) = (snapshot.device(from), snapshot.device(to)) else {
            return Arrived::NotRun;
        };
        let Some((memory, bar)) = snapshot.peer_memory(target) else { return Arrived::NotRun };
        // Turned round at a switch, the request never meets the IOMMU.
        if matches!(Route::between(snapshot, requester, target).redirect(), Redirect::None) {
            return Arrived::Intact;
        }
        let Some(group) = self.group_of(from) else { return Arrived::Intact };
        let current = self.type_of(group).unwrap_or_default();
        let facts = self.facts;
        if rejects_all_dma(&current, facts.version, facts.snp, facts.mode_zero) {
            return Arrived::Nothing;
        }
        if current == "identity" {
            return Arrived::Intact;
        }
        let members = self.members(group);
        let mapped = self
            .state
            .entries
            .iter()
            .any(|entry| members.contains(&entry.requester) && entry.target == memory.address);
        if mapped {
            // Before commit e2692c4eeaa4 entries for MMIO carry the encryption bit under SME, so
            // that the request leads nowhere.
            let fixed = facts.version
                >= peerway_core::snapshot::kernel::KernelVersion { major: 6, minor: 19, patch: 10 };
            return if facts.sme && !fixed { Arrived::Nothing } else { Arrived::Intact };
        }
        let address = bar.start.0;
        self.fault(from, group, address);
        Arrived::Nothing
    }

    fn fault(&mut self, from: PciAddress, group: u32, address: u64) {
        if self.facts.amd {
            let text = format!(
                "nvidia {from}: AMD-Vi: Event logged [IO_PAGE_FAULT domain={group:#06x} \
                 address={address:#x} flags=0x0020]"
            );
            self.log(ERROR, &text, Some(from));
        } else {
            self.log(ERROR, "DMAR: DRHD: handling fault status reg 2", None);
            let short = from.to_string();
            let short = short.strip_prefix("0000:").unwrap_or(&short);
            let text = format!(
                "DMAR: [DMA Write NO_PASID] Request device [{short}] fault addr {address:#x} \
                 [fault reason 0x05] PTE Write access is not set"
            );
            self.log(ERROR, &text, None);
        }
    }

    /// Copies from each first GPU into the memory of the second, in order.
    pub fn copies(&mut self, pairs: &[(PciAddress, PciAddress)]) -> Vec<Arrived> {
        let snapshot = self.snapshot();
        pairs.iter().map(|(from, to)| self.copy_on(&snapshot, *from, *to)).collect()
    }
}
