//! What a body of evidence comes to: one kind a file, each with the rule that tells it apart.

mod acs;
mod bar;
mod boot;
mod gpu_own;
mod init;
mod iommu;
mod measured;
mod noise;
mod peer;
mod reset;
mod tenants;
#[cfg(test)]
mod tests;
mod transport;
mod xid;

use std::collections::BTreeSet;

use peerway_core::diagnose::assessment::Assessment;
use peerway_core::snapshot::Snapshot;
use peerway_core::snapshot::faults::{DriverEvent, FaultClass, FaultFacts};
use peerway_klog::Report;

use crate::class::{DeviceKind, by_driver};
use crate::collect::Hints;
use crate::material::{Material, SourceKind};

/// What the rules look at.
#[derive(Clone, Copy, Debug)]
pub struct Case<'a> {
    /// The files.
    pub material: &'a Material,
    /// What they say about the host.
    pub snapshot: &'a Snapshot,
}

/// One assessment, with what it rests on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Assessed {
    /// The word.
    pub assessment: Assessment,
    /// Its place: what the rest follows from has the lowest.
    pub rank: u16,
    /// Why, in one sentence.
    pub why: String,
    /// Devices that it is about.
    pub subjects: BTreeSet<String>,
}

impl Assessed {
    fn new(assessment: Assessment, rank: u16, why: impl Into<String>) -> Self {
        Self { assessment, rank, why: why.into(), subjects: BTreeSet::new() }
    }

    fn about<T: std::fmt::Display>(mut self, subjects: impl IntoIterator<Item = T>) -> Self {
        self.subjects.extend(subjects.into_iter().map(|subject| subject.to_string()));
        self
    }
}

/// Ranks, in the order in which one thing follows from another. Wrong data that was measured says
/// more than a guess; a device without an address explains why it does not start; what a log says
/// about the boot explains nothing by itself.
mod rank {
    pub(super) const DRIVER_P2P: u16 = 9;
    pub(super) const PEER_FAULTS: u16 = 10;
    pub(super) const WRONG_DATA: u16 = 12;
    pub(super) const BAR: u16 = 20;
    pub(super) const INIT_IOMMU: u16 = 25;
    pub(super) const RMP: u16 = 30;
    pub(super) const RESET_FIRST: u16 = 33;
    pub(super) const FAULTS: u16 = 35;
    pub(super) const IOMMU_EVENT: u16 = 39;
    pub(super) const INIT: u16 = 40;
    pub(super) const RESET: u16 = 45;
    pub(super) const SXID: u16 = 50;
    pub(super) const XID: u16 = 55;
    pub(super) const INIT_AFTER: u16 = 57;
    pub(super) const GPU_OWN: u16 = 60;
    pub(super) const PEER_REFUSED: u16 = 64;
    pub(super) const MEASURED: u16 = 67;
    pub(super) const TRANSPORT: u16 = 68;
    pub(super) const SMALL_BAR: u16 = 70;
    pub(super) const ACS: u16 = 72;
    pub(super) const SNP: u16 = 75;
    pub(super) const NOISE: u16 = 78;
    pub(super) const TENANTS: u16 = 79;
    pub(super) const GROUPS: u16 = 80;
    pub(super) const COMMAND_LINE: u16 = 82;
    pub(super) const NOTHING: u16 = 99;
}

type Rule = fn(&Case<'_>) -> Vec<Assessed>;

/// Every rule.
const RULES: [Rule; 13] = [
    acs::check,
    bar::check,
    boot::check,
    gpu_own::check,
    init::check,
    iommu::check,
    measured::check,
    noise::check,
    peer::check,
    reset::check,
    tenants::check,
    transport::check,
    xid::check,
];

/// Everything that applies, what the rest follows from first. Never empty.
pub fn assess(case: &Case<'_>) -> Vec<Assessed> {
    let mut all: Vec<Assessed> = RULES.iter().flat_map(|rule| rule(case)).collect();
    all.sort_by_key(|one| (one.rank, one.assessment));
    let mut told = BTreeSet::new();
    all.retain(|one| told.insert(one.assessment));
    if all.is_empty() {
        all.push(nothing(case));
    }
    all
}

/// Nothing applied: either there was nothing, or nothing could be read.
fn nothing(case: &Case<'_>) -> Assessed {
    if case.material.has(SourceKind::KernelLog) {
        return Assessed::new(
            Assessment::NoFinding,
            rank::NOTHING,
            "the log holds nothing that concerns the IOMMU, GPUs or peer access",
        );
    }
    Assessed::new(
        Assessment::CouldNotLook,
        rank::NOTHING,
        "none of the files allows an answer: the kernel log of the boot in which it happened would \
         (journalctl -k -b, or dmesg as root), or a capture of the host (peerway capture)",
    )
}

/// Whether the leading assessment concerns peer access between GPUs: yes, no, or it is about the
/// host's state and says neither.
pub fn concerns_peer_access(assessment: Assessment) -> Option<bool> {
    use Assessment as A;
    match assessment {
        A::IommuFaultGpuP2p
        | A::BarTooSmall
        | A::BarAlignment
        | A::AcsRedirect
        | A::AcsExonerated
        | A::P2pHostBridge
        | A::P2pTopology
        | A::P2pDriverUnsupported
        | A::GpuP2pDriverError
        | A::P2pVerificationFailure
        | A::BandwidthMatrix
        | A::P2pOk
        | A::P2pBlockedPredicted
        | A::P2pExpected
        | A::NcclLog
        | A::Cmdline => Some(true),
        A::SnpHostState | A::TenantConfig | A::CouldNotLook => None,
        A::IommuFaultGpuOther
        | A::IommuFaultNongpu
        | A::IommuFaultUnknownDevice
        | A::IommuEventOther
        | A::SmmuFault
        | A::RmpFault
        | A::GpuMmuFault
        | A::NvidiaInitFail
        | A::NvidiaInitFailIommu
        | A::Xid
        | A::Sxid
        | A::DriverNoise
        | A::VfioReset
        | A::BarUnassigned
        | A::IommuGroups
        | A::NoFinding => Some(false),
    }
}

impl<'a> Case<'a> {
    fn facts(&self) -> Option<&'a FaultFacts> {
        self.snapshot.faults.known()
    }

    fn report(&self) -> Option<&'a Report> {
        self.material.log.as_ref().map(|log| &log.report)
    }

    fn hints(&self) -> Option<&'a Hints> {
        self.material.log.as_ref().map(|log| &log.hints)
    }

    /// Driver events of a kind with one of these codes; all of the kind where there is none.
    fn events(&self, kind: &str, codes: &[&str]) -> Vec<&'a DriverEvent> {
        let Some(facts) = self.facts() else { return Vec::new() };
        facts
            .driver_events
            .iter()
            .filter(|event| event.kind == kind)
            .filter(|event| codes.is_empty() || codes.iter().any(|code| event.is(code)))
            .collect()
    }

    fn has_class(&self, class: FaultClass) -> bool {
        self.facts().is_some_and(|facts| facts.of_class(class).next().is_some())
    }

    /// GPUs that the material names.
    fn gpus(&self) -> Vec<String> {
        let listed = self
            .snapshot
            .devices
            .iter()
            .filter(|device| {
                let driven = device.driver_name().and_then(by_driver) == Some(DeviceKind::Gpu);
                device.is_gpu() || driven
            })
            .map(|device| device.address.to_string());
        let faulting = self
            .facts()
            .into_iter()
            .flat_map(|facts| &facts.requesters)
            .filter(|one| matches!(one.class, FaultClass::GpuOther | FaultClass::PeerAccess));
        let all: BTreeSet<String> = listed.chain(faulting.map(|one| one.name.clone())).collect();
        all.into_iter().collect()
    }
}

/// Devices that events name.
fn devices(events: &[&DriverEvent]) -> BTreeSet<String> {
    events
        .iter()
        .flat_map(|event| [event.device, event.other])
        .flatten()
        .map(|device| device.to_string())
        .collect()
}

/// The first line that any of some events has.
fn first_line(events: &[&DriverEvent]) -> Option<u64> {
    events.iter().map(|event| event.first.line).min()
}
