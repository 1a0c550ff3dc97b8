//! What a [`crate::Summary`] gives: the document about a log.

use std::collections::BTreeMap;

use peerway_core::address::{BusAddress, PciAddress, VendorDevice};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::notice::{Banner, BarState, DomainRefusal, Lost, Platform};
use crate::row::{Occurrence, Row};

/// Something that a driver, or the PCI core, logged about a device; many times, perhaps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DriverEvent {
    /// Kind, such as `xid`.
    pub kind: String,
    /// Code, such as the Xid's number or the stage that failed.
    pub code: Option<String>,
    /// The device.
    pub device: Option<PciAddress>,
    /// The other device that the line names: the provider, the port.
    pub other: Option<PciAddress>,
    /// How often.
    pub count: u64,
    /// Addresses in the lines, the first sixteen. They are the driver's or the GPU's own, not the
    /// IOMMU's.
    pub addresses: Vec<BusAddress>,
    /// First time.
    pub first: Occurrence,
    /// Last time.
    pub last: Occurrence,
    /// The first message, as evidence.
    pub text: String,
}

/// What the log says about a device.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DeviceFacts {
    /// Drivers (or bus and class names) that stood in front of it.
    pub drivers: Vec<String>,
    /// IOMMU group that it joined last.
    pub group: Option<u32>,
    /// Vendor and device number.
    pub id: Option<VendorDevice>,
    /// Class code, 24 bits.
    pub class: Option<u32>,
    /// BARs by number.
    pub bars: BTreeMap<u8, BarFacts>,
}

/// What the log says about a BAR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BarFacts {
    /// The last that was said.
    pub state: BarState,
    /// First address, while it has one.
    pub start: Option<BusAddress>,
    /// Size in bytes.
    pub size: Option<u64>,
}

/// How often a line of some meaning was seen, and when.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Seen {
    /// How often.
    pub count: u64,
    /// First time.
    pub first: Occurrence,
    /// Last time.
    pub last: Occurrence,
}

impl Seen {
    pub(crate) fn note<K: Ord>(map: &mut BTreeMap<K, Self>, key: K, at: Occurrence) {
        match map.get_mut(&key) {
            Some(seen) => {
                seen.count += 1;
                seen.last = at;
            }
            None => {
                map.insert(key, Self { count: 1, first: at.clone(), last: at });
            }
        }
    }

    pub(crate) fn append<K: Ord + Copy>(
        map: &mut BTreeMap<K, Self>,
        later: &BTreeMap<K, Self>,
        shift: impl Fn(&Occurrence) -> Occurrence,
    ) {
        for (key, theirs) in later {
            if let Some(seen) = map.get_mut(key) {
                seen.count += theirs.count;
                seen.last = shift(&theirs.last);
            } else {
                let (first, last) = (shift(&theirs.first), shift(&theirs.last));
                map.insert(*key, Self { count: theirs.count, first, last });
            }
        }
    }
}

/// One boot within the log.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Boot {
    /// Its number.
    pub boot: u32,
    /// Release of the kernel, where the log has the line.
    pub release: Option<String>,
    /// Command line of the kernel, where the log has the line.
    pub command_line: Option<String>,
    /// Versions of NVIDIA's driver and whether each is the open flavour.
    pub nvidia: Vec<(String, bool)>,
}

/// The aggregate as a document.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Report {
    /// IOMMU events in the log.
    pub events: u64,
    /// Of these, page faults.
    pub translation_events: u64,
    /// Of these, events about tables, queues, commands and requests.
    pub structure_events: u64,
    /// Of these, events of SEV-SNP's reverse map.
    pub rmp_events: u64,
    /// IOMMU events that rate limits kept out of the log.
    pub suppressed: u64,
    /// Rate limits by function: messages, and whether they were IOMMU events.
    pub suppressed_by: BTreeMap<String, (u64, bool)>,
    /// Records that `/dev/kmsg` had lost before they were read.
    pub records_lost: u64,
    /// The first event.
    pub first: Option<Occurrence>,
    /// The last event.
    pub last: Option<Occurrence>,
    /// Who, the most events first.
    pub requesters: Vec<Row>,
    /// Events of requesters beyond the number that is kept.
    pub unlisted_events: u64,
    /// What drivers logged.
    pub driver_events: Vec<DriverEvent>,
    /// Driver events beyond the number that is kept.
    pub unlisted_driver_events: u64,
    /// What the log says about devices.
    pub devices: BTreeMap<PciAddress, DeviceFacts>,
    /// There were more devices than are kept.
    pub devices_truncated: bool,
    /// Boots within the log.
    pub boots: Vec<Boot>,
    /// SEV, SNP, memory encryption.
    pub platform: BTreeMap<Platform, Seen>,
    /// Boot lines of the IOMMU.
    pub banners: BTreeMap<Banner, Seen>,
    /// Refused or changed domain types.
    pub domain_refusals: BTreeMap<DomainRefusal, Seen>,
    /// Events lost in hardware, by how.
    pub events_lost: BTreeMap<Lost, u64>,
    /// How often the IOMMU did not complete its commands.
    pub iommu_stuck: u64,
}
