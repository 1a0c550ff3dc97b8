//! The one-word summary of a body of evidence.

use schemars::JsonSchema;
use serde::Serialize;

use super::finding::Finding;
use crate::code;
use crate::judge::{Pair, Verdict};
use crate::snapshot::Snapshot;
use crate::snapshot::faults::FaultClass;
use crate::snapshot::kernel::Tristate;

/// The closed list of assessments.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each is explained by `about`, which the manual prints")]
pub enum Assessment {
    IommuFaultGpuP2p,
    IommuFaultGpuOther,
    IommuFaultNongpu,
    IommuFaultUnknownDevice,
    IommuEventOther,
    SmmuFault,
    RmpFault,
    GpuMmuFault,
    NvidiaInitFail,
    NvidiaInitFailIommu,
    Xid,
    Sxid,
    DriverNoise,
    VfioReset,
    SnpHostState,
    BarUnassigned,
    BarTooSmall,
    BarAlignment,
    AcsRedirect,
    AcsExonerated,
    P2pHostBridge,
    P2pTopology,
    P2pDriverUnsupported,
    GpuP2pDriverError,
    P2pVerificationFailure,
    BandwidthMatrix,
    P2pOk,
    P2pBlockedPredicted,
    P2pExpected,
    CouldNotLook,
    NcclLog,
    IommuGroups,
    Cmdline,
    TenantConfig,
    NoFinding,
}

impl Assessment {
    /// What it means, for people.
    pub fn about(self) -> &'static str {
        match self {
            Self::IommuFaultGpuP2p => "a GPU's IOMMU faults carry the signature of peer access",
            Self::IommuFaultGpuOther => "a GPU faults at the IOMMU, and it is not peer access",
            Self::IommuFaultNongpu => "a device that is no GPU faults at the IOMMU",
            Self::IommuFaultUnknownDevice => "a device of unknown class faults at the IOMMU",
            Self::IommuEventOther => "an IOMMU event that is no page fault",
            Self::SmmuFault => "Arm SMMU events",
            Self::RmpFault => "SEV-SNP reverse-map faults",
            Self::GpuMmuFault => "the GPU's own MMU faulted, not the IOMMU",
            Self::NvidiaInitFail => "the NVIDIA driver cannot bring a GPU up",
            Self::NvidiaInitFailIommu => {
                "the NVIDIA driver cannot bring a GPU up, because its own DMA is rejected"
            }
            Self::Xid => "an Xid of the NVIDIA driver is the main event",
            Self::Sxid => "an NVSwitch SXid is the main event",
            Self::DriverNoise => "loud lines that mean nothing",
            Self::VfioReset => "reset, power-state or VFIO trouble of a passed-through device",
            Self::SnpHostState => "what the log says about SEV-SNP on this host",
            Self::BarUnassigned => "a memory region without an address is the trouble",
            Self::BarTooSmall => "a memory region that is too small is the trouble",
            Self::BarAlignment => "the alignment of a memory region is the trouble",
            Self::AcsRedirect => "access control redirects requests on the path",
            Self::AcsExonerated => "access control does not redirect on the path",
            Self::P2pHostBridge => "the host bridge does not allow peer access",
            Self::P2pTopology => "the place in the tree does not allow peer access",
            Self::P2pDriverUnsupported => "the driver or the board does not offer peer access",
            Self::GpuP2pDriverError => "the driver's own way of peer access fails",
            Self::P2pVerificationFailure => "wrong data was measured",
            Self::BandwidthMatrix => "a matrix of bandwidths is the evidence",
            Self::P2pOk => "peer access was measured right",
            Self::P2pBlockedPredicted => {
                "something blocks peer access; no failed peer request was seen"
            }
            Self::P2pExpected => "nothing seen blocks peer access; it is unmeasured",
            Self::CouldNotLook => "the material does not allow an answer",
            Self::NcclLog => "an NCCL or RCCL log is the evidence",
            Self::IommuGroups => "a listing of IOMMU groups",
            Self::Cmdline => "words of the kernel command line are the finding",
            Self::TenantConfig => "configuration of virtual machines or containers",
            Self::NoFinding => "no pair of devices to judge, and nothing else found",
        }
    }
}

/// Assesses a whole host: the first of the result is what the rest follows from.
pub fn assess(snapshot: &Snapshot, pairs: &[Pair], findings: &[Finding]) -> Vec<Assessment> {
    let (mut all, beside) = from_log(snapshot);
    let has = |code| findings.iter().any(|finding| finding.code == code);
    let decided = |verdict| pairs.iter().any(|pair| pair.verdict == verdict);
    if decided(Verdict::Broken) {
        // What was seen to fail is no prediction any more.
        let predicted = |pair: &Pair| {
            pair.verdict == Verdict::Broken && !pair.codes.contains(&code::PEER_FAULTS)
        };
        if pairs.iter().any(predicted) {
            all.push(Assessment::P2pBlockedPredicted);
        }
        let blames = |code| pairs.iter().any(|pair| pair.codes.contains(&code));
        for (code, assessment) in [
            (code::ACS_REDIRECT, Assessment::AcsRedirect),
            (code::UNASSIGNED_BAR, Assessment::BarUnassigned),
            (code::BOARD_OFFERS_NONE, Assessment::P2pDriverUnsupported),
        ] {
            if blames(code) {
                all.push(assessment);
            }
        }
    } else if decided(Verdict::Unknown) {
        all.push(Assessment::CouldNotLook);
    } else if decided(Verdict::Works) || decided(Verdict::Impaired) {
        all.push(Assessment::P2pExpected);
    } else if snapshot.devices.is_empty() {
        all.push(Assessment::CouldNotLook);
    } else {
        // What the log holds is a finding.
        if all.is_empty() && beside.is_empty() {
            all.push(Assessment::NoFinding);
        }
    }
    if snapshot.memory_encryption.snp.state == Tristate::Yes || has(code::SNP_OFF) {
        all.push(Assessment::SnpHostState);
    }
    all.extend(beside);
    if has(code::NO_OP_WORD) || has(code::PASSTHROUGH_BOOT) {
        all.push(Assessment::Cmdline);
    }
    let mut told = std::collections::BTreeSet::new();
    all.retain(|assessment| told.insert(*assessment));
    all
}

/// What the kernel log says: what leads whatever the host looks like (peer access that was seen to
/// fail, a GPU that does not come up), and what stands beside it.
fn from_log(snapshot: &Snapshot) -> (Vec<Assessment>, Vec<Assessment>) {
    let Some(facts) = snapshot.faults.known() else { return (Vec::new(), Vec::new()) };
    let mut leading = Vec::new();
    let mut beside = Vec::new();
    if facts.of_class(FaultClass::PeerAccess).next().is_some() {
        leading.push(Assessment::IommuFaultGpuP2p);
    }
    if !facts.init_failures().is_empty() {
        leading.push(if facts.refused_during_init().is_empty() {
            Assessment::NvidiaInitFail
        } else {
            Assessment::NvidiaInitFailIommu
        });
    }
    beside.extend(facts.requesters.iter().map(|one| one.class.assessment()));
    if facts.of_kind("sxid").next().is_some() {
        beside.push(Assessment::Sxid);
    }
    if facts.of_kind("xid").next().is_some() {
        beside.push(Assessment::Xid);
    }
    (leading, beside)
}
