//! What the kernel log says has happened: refused accesses, and what drivers complained about.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Snapshot;
use super::pci::PciDevice;
use crate::address::{BusAddress, PciAddress};
use crate::diagnose::assessment::Assessment;
use crate::judge::Confidence;

/// Everything that the kernel log says has happened, in bounded size.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultFacts {
    /// What was read: `/dev/kmsg`, or the names of files.
    pub source: String,
    /// Lines.
    pub lines: u64,
    /// IOMMU events that stand in the log.
    pub events: u64,
    /// IOMMU events that the kernel's rate limits kept out of it, by its own notices.
    pub suppressed: u64,
    /// Records that the ring buffer had lost before they were read.
    pub records_lost: u64,
    /// Notices that the IOMMU's own event log was full.
    pub overflows: u64,
    /// How often an IOMMU did not complete its commands.
    pub stuck: u64,
    /// The first event.
    pub first: Option<Moment>,
    /// The last event.
    pub last: Option<Moment>,
    /// Who was refused, by requester and kind of event, the most events first.
    pub requesters: Vec<Faulting>,
    /// What drivers and the PCI core logged.
    pub driver_events: Vec<DriverEvent>,
}

/// Where and when something was logged.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Moment {
    /// Line number, from 1.
    pub line: u64,
    /// Boot within the log, from 0.
    pub boot: u32,
    /// Time as the log has it: RFC 3339, the syslog form, or seconds since boot.
    pub time: Option<String>,
    /// Seconds on the log's own clock: since boot, or of its wall clock from an arbitrary day on.
    /// Only distances within one boot mean something.
    pub seconds: Option<u64>,
}

/// Events this close belong together: a GPU's start-up takes some seconds until it fails.
const TOGETHER_SECONDS: u64 = 15;
/// The same in lines, where the log has no clock.
const TOGETHER_LINES: u64 = 200;

impl Moment {
    /// Whether a span of the log, from this moment to `until`, comes near another span.
    pub fn is_near(&self, until: &Self, other: &Self, other_until: &Self) -> bool {
        if self.boot != other.boot && until.boot != other_until.boot {
            return false;
        }
        let near = |from: u64, upto: u64, other: u64, other_upto: u64, most: u64| {
            from <= other_upto.saturating_add(most) && other <= upto.saturating_add(most)
        };
        match (self.seconds, until.seconds, other.seconds, other_until.seconds) {
            (Some(from), Some(upto), Some(other), Some(other_upto)) => near(
                from.min(upto),
                from.max(upto),
                other.min(other_upto),
                other.max(other_upto),
                TOGETHER_SECONDS,
            ),
            _ => near(self.line, until.line, other.line, other_until.line, TOGETHER_LINES),
        }
    }
}

/// What a requester's events are, as far as that can be told.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
pub enum FaultClass {
    /// A GPU that reaches for a peer's memory.
    #[serde(rename = "iommu_fault_gpu_p2p")]
    PeerAccess,
    /// A GPU, and not peer access.
    #[serde(rename = "iommu_fault_gpu_other")]
    GpuOther,
    /// A device of another class.
    #[serde(rename = "iommu_fault_nongpu")]
    OtherDevice,
    /// A device whose class cannot be known from what was looked at.
    #[serde(rename = "iommu_fault_unknown_device")]
    UnknownDevice,
    /// No page fault: tables, queues, commands, requests that are not allowed.
    #[serde(rename = "iommu_event_other")]
    Event,
    /// An event of an Arm SMMU.
    #[serde(rename = "smmu_fault")]
    Smmu,
    /// SEV-SNP's reverse map refused it.
    #[serde(rename = "rmp_fault")]
    Rmp,
}

impl FaultClass {
    /// The assessment of a log that holds nothing else.
    pub const fn assessment(self) -> Assessment {
        match self {
            Self::PeerAccess => Assessment::IommuFaultGpuP2p,
            Self::GpuOther => Assessment::IommuFaultGpuOther,
            Self::OtherDevice => Assessment::IommuFaultNongpu,
            Self::UnknownDevice => Assessment::IommuFaultUnknownDevice,
            Self::Event => Assessment::IommuEventOther,
            Self::Smmu => Assessment::SmmuFault,
            Self::Rmp => Assessment::RmpFault,
        }
    }

    /// In words for people.
    pub const fn words(self) -> &'static str {
        match self {
            Self::PeerAccess => "peer access",
            Self::GpuOther => "a GPU, not peer access",
            Self::OtherDevice => "not a GPU",
            Self::UnknownDevice => "unknown device",
            Self::Event => "no page fault",
            Self::Smmu => "SMMU event",
            Self::Rmp => "reverse map (SNP)",
        }
    }
}

/// What one requester did: one kind of event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Faulting {
    /// The requester as the log names it: an address, `stream 0x…`, a name, `unknown`.
    pub name: String,
    /// Its PCI address, if it has one.
    pub address: Option<PciAddress>,
    /// Family of the IOMMU that reports: `amd-vi`, `vt-d`, `smmu-v2`, `smmu-v3`.
    pub iommu: String,
    /// Kind of the event: `io_page_fault`, `dma_fault`, …
    pub kind: String,
    /// Events in the log; rate limits drop more.
    pub count: u64,
    /// `read`, `write`, `read+write`, `interrupt`, `execute`, `mixed`, `unknown`.
    pub access: String,
    /// Whether the hardware vouches for that direction. AMD defines it only where a translation
    /// was present, so for the usual faults of unmapped addresses it is a hint.
    pub access_certain: bool,
    /// Lowest address.
    pub lowest: Option<BusAddress>,
    /// Highest address.
    pub highest: Option<BusAddress>,
    /// Different addresses, counted or estimated.
    pub distinct: u64,
    /// Regions of devices that the addresses lie in.
    pub hits: Vec<BarHit>,
    /// What it is.
    pub class: FaultClass,
    /// How sure that is.
    pub confidence: Confidence,
    /// What the class rests on, in one sentence.
    pub why: String,
    /// What kind of device the requester is, in words: `GPU (driver nvidia)`.
    pub device: String,
    /// The first event.
    pub first: Moment,
    /// The last event.
    pub last: Moment,
    /// The first event's message.
    pub text: String,
}

/// Events of a requester inside one region of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct BarHit {
    /// Whose region.
    pub device: PciAddress,
    /// Resource index of the region.
    pub bar: u8,
    /// Lowest offset into it.
    pub offset_first: u64,
    /// Highest offset into it.
    pub offset_last: u64,
    /// Events.
    pub count: u64,
    /// Whether every event was counted; else only that many different addresses are known to lie
    /// there.
    pub count_exact: bool,
}

/// Something that a driver, or the PCI core, logged about a device; many times, perhaps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DriverEvent {
    /// Kind: `xid`, `nvidia_init`, `device_state`, …
    pub kind: String,
    /// Code: an Xid's number, the stage that failed, a state.
    pub code: Option<String>,
    /// The device, where the line names it.
    pub device: Option<PciAddress>,
    /// How often.
    pub count: u64,
    /// The other device that the line names: a provider, a port.
    pub other: Option<PciAddress>,
    /// First time.
    pub first: Moment,
    /// Last time.
    pub last: Moment,
    /// The first message.
    pub text: String,
    /// What the code means, where that is known.
    pub meaning: Option<String>,
    /// How much it says about peer access or initialisation.
    pub weight: Option<Weight>,
}

/// How much an error of a GPU says.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Weight {
    /// Another cause has to be excluded first: memory, NVLink, hardware.
    Elsewhere,
    /// Says little by itself.
    Low,
    /// May follow from corrupted data.
    Medium,
    /// Looks like blocked or corrupted DMA.
    High,
    /// The GPU is gone or unusable.
    Critical,
    /// States a wanted recovery; the error before it is the cause.
    Advice,
}

impl FaultFacts {
    /// Requesters of one class.
    pub fn of_class(&self, class: FaultClass) -> impl Iterator<Item = &Faulting> {
        self.requesters.iter().filter(move |one| one.class == class)
    }

    /// Lines that say that the NVIDIA driver could not bring a GPU up, dumps and follow-ups
    /// included.
    pub fn init_failures(&self) -> Vec<&DriverEvent> {
        let xids = self.of_kind("xid").next().is_some();
        self.driver_events
            .iter()
            .filter(|event| match event.kind.as_str() {
                "nvidia_init" | "nvidia_init_failed" => true,
                "nvidia" => {
                    event.is("not-addressable")
                        || event.is("probe-failed")
                        // With an Xid it was up, and fell off later.
                        || event.is("fell-off-bus") && !xids
                }
                "device_state" => event.is("probe-failed") && event.text.contains("nvidia"),
                _ => false,
            })
            .collect()
    }

    /// Refused requests of a GPU's own while it was being brought up.
    pub fn refused_during_init(&self) -> Vec<&Faulting> {
        let failures = self.init_failures();
        self.requesters
            .iter()
            .filter(|one| one.class != FaultClass::PeerAccess)
            .filter(|one| {
                failures.iter().any(|event| {
                    let same = match (one.address, event.device) {
                        (Some(requester), Some(device)) => requester.same_device(device),
                        // The line names no GPU: only a requester that is one fits.
                        (Some(_), None) => one.class == FaultClass::GpuOther,
                        (None, _) => false,
                    };
                    same && one.first.is_near(&one.last, &event.first, &event.last)
                })
            })
            .collect()
    }

    /// Driver events of one kind.
    pub fn of_kind<'f>(&'f self, kind: &'f str) -> impl Iterator<Item = &'f DriverEvent> {
        self.driver_events.iter().filter(move |event| event.kind == kind)
    }
}

impl DriverEvent {
    /// Whether its code is this word.
    pub fn is(&self, code: &str) -> bool {
        self.code.as_deref() == Some(code)
    }
}

impl Snapshot {
    /// What was seen of one device's requests that were refused inside the memory of another.
    pub fn refused<'s>(
        &'s self,
        from: &'s PciDevice,
        to: &'s PciDevice,
    ) -> impl Iterator<Item = (&'s Faulting, &'s BarHit)> {
        let memory = self.peer_memory(to).map_or(to.address, |(function, _)| function.address);
        let facts = self.faults.known();
        facts
            .into_iter()
            .flat_map(|facts| &facts.requesters)
            .filter(move |one| one.address == Some(from.address))
            .flat_map(|one| one.hits.iter().map(move |hit| (one, hit)))
            .filter(move |(_, hit)| hit.device == memory || hit.device == to.address)
    }
}
