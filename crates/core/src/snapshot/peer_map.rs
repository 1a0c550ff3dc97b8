//! Entries of the peer-map module: what it says of itself, without a look into page tables.

use serde::{Deserialize, Serialize};

use super::Snapshot;
use super::kernel::Tristate;
use super::pci::PciDevice;
use crate::address::{BusAddress, PciAddress};
use crate::observed::Observed;

/// What `/proc/peerway-map` says (`kmod/peerway_map.c`, `map_show`).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerMap {
    /// Number of the module's interface.
    pub interface: u32,
    /// Entries that went with a device.
    pub dropped: u64,
    /// Pages that somebody else took over.
    pub lost: u64,
    /// Entries, in the module's order.
    pub entries: Vec<Entry>,
}

/// One entry: the requester's domain translates a part of the target's region to itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// In whose domain; every member of its group shares it.
    pub requester: PciAddress,
    /// Whose memory.
    pub target: PciAddress,
    /// Resource index of the region.
    pub bar: u8,
    /// First byte within the region.
    pub offset: u64,
    /// Bytes.
    pub length: u64,
    /// Bus address of the first byte.
    pub start: BusAddress,
    /// The module's word for it: `ok`, or what became of it.
    pub state: String,
}

impl Entry {
    /// Whether it is as it was made.
    pub fn is_ok(&self) -> bool {
        self.state == "ok"
    }
}

/// What the map does for requests of one device to another's memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Coverage {
    /// No entry.
    None,
    /// Entries that are as they were made cover all of the region.
    Whole,
    /// They cover so many bytes of it.
    Part {
        /// Covered.
        bytes: u64,
        /// The region.
        of: u64,
    },
    /// An entry is not what it was.
    Spoiled {
        /// The module's word.
        state: String,
    },
    /// Nobody could tell.
    Unknown(String),
}

impl Snapshot {
    /// What the peer map does for requests of `from` to the memory of `to`.
    pub fn map_coverage(&self, from: &PciDevice, to: &PciDevice) -> Coverage {
        let map = match &self.peer_map {
            Observed::Known(map) => map,
            Observed::Absent => return Coverage::None,
            Observed::Unreadable(why) => return Coverage::Unknown(why.clone()),
        };
        let Some((memory, bar)) = self.peer_memory(to) else {
            return Coverage::Unknown(format!("the memory of {} could not be read", to.address));
        };
        let shares = |requester: PciAddress| {
            requester == from.address
                || (from.group.known().is_some()
                    && self.device(requester).is_some_and(|one| one.group == from.group))
        };
        let mut ranges = Vec::new();
        for entry in &map.entries {
            let about = entry.target == memory.address && entry.bar == bar.index;
            if !about || !shares(entry.requester) {
                continue;
            }
            // An entry that stands elsewhere than the region serves nobody.
            if !entry.is_ok() || entry.start.0.checked_sub(entry.offset) != Some(bar.start.0) {
                let state =
                    if entry.is_ok() { "bar-moved".to_owned() } else { entry.state.clone() };
                return Coverage::Spoiled { state };
            }
            ranges.push((entry.offset, entry.offset.saturating_add(entry.length).min(bar.size)));
        }
        match covered(ranges) {
            0 => Coverage::None,
            bytes if bytes == bar.size => Coverage::Whole,
            bytes => Coverage::Part { bytes, of: bar.size },
        }
    }

    /// Whether the map serves every given pair as it is meant to.
    pub fn map_serves<'a>(
        &'a self,
        pairs: impl IntoIterator<Item = (&'a PciDevice, &'a PciDevice)>,
    ) -> Tristate {
        let mut any = false;
        let mut sure = true;
        for (from, to) in pairs {
            any = true;
            match self.map_coverage(from, to) {
                Coverage::Whole => {}
                // Less than the region may be all that the driver's way of access needs.
                Coverage::Part { .. } | Coverage::Unknown(_) => sure = false,
                Coverage::None | Coverage::Spoiled { .. } => return Tristate::No,
            }
        }
        match (any, sure) {
            (true, true) => Tristate::Yes,
            (true, false) => Tristate::Unknown,
            (false, _) => Tristate::No,
        }
    }
}

/// Bytes in the union of ranges, each first and end.
fn covered(mut ranges: Vec<(u64, u64)>) -> u64 {
    ranges.sort_unstable();
    let mut bytes = 0_u64;
    let mut reached = 0_u64;
    for (first, end) in ranges {
        let first = first.max(reached);
        if end > first {
            bytes = bytes.saturating_add(end - first);
            reached = end;
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(ranges: &[(u64, u64)], expected: u64) {
        assert_eq!(covered(ranges.to_vec()), expected, "{ranges:?}");
    }

    #[test]
    fn ranges_are_counted_once() {
        check(&[], 0);
        check(&[(0, 8)], 8);
        check(&[(4, 8), (0, 4)], 8);
        check(&[(0, 6), (4, 8), (5, 6)], 8);
        check(&[(0, 2), (6, 8)], 4);
        check(&[(8, 4)], 0);
    }
}
