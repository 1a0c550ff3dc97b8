//! From files to a diagnosis.

use std::collections::BTreeSet;

use peerway_core::address::PciAddress;
use peerway_core::code::{self, Code};
use peerway_core::diagnose::assessment::Assessment;
use peerway_core::diagnose::finding::{Finding, Severity};
use peerway_core::diagnose::{Context, RULES};
use peerway_core::document::diagnose::{Diagnose, Pair};
use peerway_core::judge::{Basis, Confidence, Verdict};
use peerway_core::snapshot::Snapshot;
use peerway_core::snapshot::faults::FaultClass;

use crate::assess::{Assessed, Case, assess, concerns_peer_access};
use crate::document::{Explanation, Import};
use crate::material::{Material, SourceKind};
use crate::partial;

/// Rules that need no more of a host than files say: words of the command line, SNP, the log.
const RULES_FOR_FILES: [&str; 7] =
    ["PW0101", "PW0102", "PW0104", "PW0106", "PW0401", "PW0403", "PW06"];

/// Diagnoses files; `name` stands for all of them in evidence.
pub fn import(name: &str, material: &Material) -> Import {
    let snapshot = partial::snapshot(name, material);
    let assessed = assess(&Case { material, snapshot: &snapshot });
    let findings = findings(name, material, &snapshot, &assessed);
    let assessments: Vec<Assessment> = assessed.iter().map(|one| one.assessment).collect();
    let leading = assessments.first().copied().unwrap_or(Assessment::CouldNotLook);
    let facts = snapshot.faults.known();
    Import {
        diagnose: Diagnose { assessment: leading, assessments, pairs: pairs(&snapshot), findings },
        sources: material.sources.clone(),
        explanations: assessed
            .into_iter()
            .map(|one| Explanation {
                assessment: one.assessment,
                why: one.why,
                subjects: one.subjects.into_iter().collect(),
            })
            .collect(),
        gpu_p2p_related: concerns_peer_access(leading),
        events: facts.map_or(0, |facts| facts.events),
        suppressed: facts.map_or(0, |facts| facts.suppressed),
    }
}

/// Pairs that the log shows to fail; files say nothing about others.
fn pairs(snapshot: &Snapshot) -> Vec<Pair> {
    let mut pairs: Vec<Pair> = Vec::new();
    let facts = snapshot.faults.known();
    for one in facts.into_iter().flat_map(|facts| facts.of_class(FaultClass::PeerAccess)) {
        let Some(from) = one.address else { continue };
        let targets: BTreeSet<PciAddress> = one
            .hits
            .iter()
            .map(|hit| hit.device)
            .filter(|target| !target.same_device(from))
            .collect();
        for to in targets {
            if pairs.iter().any(|pair| (pair.from, pair.to) == (from, to)) {
                continue;
            }
            pairs.push(Pair {
                from,
                to,
                verdict: Verdict::Broken,
                basis: Basis::Predicted,
                codes: vec![code::PEER_FAULTS],
                confidence: one.confidence,
                reason: format!("the log shows its requests refused: {}", one.why),
            });
        }
    }
    pairs.sort_by_key(|pair| (pair.from, pair.to));
    pairs
}

fn findings(
    name: &str,
    material: &Material,
    snapshot: &Snapshot,
    assessed: &[Assessed],
) -> Vec<Finding> {
    let context = Context { snapshot, pairs: &[] };
    let mut found: Vec<Finding> = RULES
        .iter()
        .filter(|rule| RULES_FOR_FILES.iter().any(|front| rule.code.text().starts_with(front)))
        .flat_map(|rule| (rule.check)(&context))
        .collect();
    for one in assessed {
        let code = explained_by(one.assessment);
        match found.iter_mut().find(|finding| Some(finding.code) == code) {
            // The finding may lack a device that only another file names.
            Some(finding) => {
                let missing =
                    one.subjects.iter().filter(|subject| !finding.subjects.contains(subject));
                let missing: Vec<String> = missing.cloned().collect();
                finding.subjects.retain(|subject| subject != "host" || missing.is_empty());
                finding.subjects.extend(missing);
            }
            None => found.push(explanation(name, material, one)),
        }
    }
    found.sort_by(|a, b| (a.severity, a.code, &a.subjects).cmp(&(b.severity, b.code, &b.subjects)));
    found
}

/// The finding that explains an assessment, where the log's rules have one.
const fn explained_by(assessment: Assessment) -> Option<Code> {
    use Assessment as A;
    match assessment {
        A::IommuFaultGpuP2p => Some(code::PEER_FAULTS),
        A::IommuFaultGpuOther => Some(code::GPU_FAULTS),
        A::IommuFaultNongpu | A::IommuFaultUnknownDevice => Some(code::DEVICE_FAULTS),
        A::IommuEventOther | A::SmmuFault | A::RmpFault => Some(code::IOMMU_EVENTS),
        A::NvidiaInitFail | A::NvidiaInitFailIommu => Some(code::INIT_FAILED),
        A::Xid | A::Sxid => Some(code::XID),
        A::GpuMmuFault => Some(code::GPU_OWN_ERRORS),
        A::VfioReset => Some(code::DEVICE_STATE),
        A::BarAlignment | A::P2pHostBridge => Some(code::PEER_REFUSED),
        A::DriverNoise => Some(code::LOUD_LINES),
        _ => None,
    }
}

/// A finding for an assessment that no other explains.
fn explanation(name: &str, material: &Material, one: &Assessed) -> Finding {
    use Assessment as A;
    let severity = match one.assessment {
        A::P2pVerificationFailure | A::GpuP2pDriverError | A::BarUnassigned => Severity::Error,
        A::BarTooSmall
        | A::BarAlignment
        | A::AcsRedirect
        | A::P2pHostBridge
        | A::P2pTopology
        | A::P2pDriverUnsupported => Severity::Warning,
        _ => Severity::Info,
    };
    let mut finding =
        Finding::new(code::IMPORTED, severity, Confidence::Probable, one.assessment.about());
    finding.subjects = one.subjects.iter().cloned().collect();
    if finding.subjects.is_empty() {
        finding = finding.about("files");
    }
    finding = finding.seen(name, one.why.clone());
    for source in &material.sources {
        if source.kind == SourceKind::Unknown {
            finding = finding.seen(source.name.clone(), "not understood");
        }
    }
    match remedy(one.assessment) {
        Some(remedy) => finding.remedy(remedy),
        None => finding,
    }
}

/// What helps, where the assessment alone says it.
const fn remedy(assessment: Assessment) -> Option<&'static str> {
    use Assessment as A;
    Some(match assessment {
        A::GpuP2pDriverError => {
            "another driver version, or running without peer access (NCCL_P2P_DISABLE=1); leave \
             the translation on, which keeps stray writes out of memory"
        }
        A::P2pVerificationFailure => {
            "run without peer access until the cause is known (NCCL_P2P_DISABLE=1); verify from \
             the owner's side (peerway test)"
        }
        A::BarUnassigned => {
            "give the board room: firmware's setting for addresses above 4 GiB, or the guest's \
             64-bit window; which value of pci=realloc helps differs from host to host"
        }
        A::BarTooSmall => "switch Resizable BAR on in the firmware, where board and slot have it",
        A::BarAlignment => "another driver version: the check is the driver's own",
        A::AcsRedirect => {
            "clear redirect on the ports between the two GPUs, if every device below them is the \
             same tenant's (peerway roads on the host)"
        }
        A::P2pHostBridge => "a switch above both devices, or staging through the host",
        A::P2pTopology => "pairs below one root complex or switch; across sockets there is no road",
        A::P2pDriverUnsupported => "none on this board with this driver; staging through the host",
        A::BandwidthMatrix => "a data-checking test (peerway test) before any number is believed",
        A::SnpHostState => "peerway roads on the host: SNP decides which roads exist",
        A::TenantConfig => "list everybody who is named before anything is changed",
        A::NcclLog => "the kernel log of the same run: refused requests, Xids",
        A::CouldNotLook => {
            "the kernel log of the boot in which it happened (journalctl -k -b, or dmesg as root), \
             or a capture of the host (peerway capture)"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collect::{Collector, Filter};
    use peerway_klog::Scanner;

    fn of(text: &str) -> Import {
        let mut material = Material::default();
        let mut collector = Collector::new(Vec::new(), Filter::default());
        let mut scanner = Scanner::new();
        scanner.feed(text.as_bytes(), &mut collector);
        scanner.finish(&mut collector);
        let collected = collector.finish(scanner.lines());
        if material.add("log", text.as_bytes(), &collected) == SourceKind::KernelLog {
            material.log = Some(collected);
        }
        import("log", &material)
    }

    const REGIONS: &str = "\
[    1.000000] pci 0000:21:00.0: [10de:2bb5] type 00 class 0x030200
[    1.000000] pci 0000:21:00.0: BAR 1 [mem 0x1c000000000-0x1dfffffffff 64bit pref]
[    9.000000] nvidia 0000:11:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0012 address=0x1c000003000 flags=0x0020]
[    9.100000] amd_iommu_report_page_fault: 12 callbacks suppressed
";

    #[test]
    fn pairs_that_the_log_shows_to_fail() {
        let seen = of(REGIONS);
        assert_eq!(seen.diagnose.assessment, Assessment::IommuFaultGpuP2p);
        assert_eq!(seen.gpu_p2p_related, Some(true));
        assert_eq!((seen.events, seen.suppressed), (1, 12));
        let [pair] = seen.diagnose.pairs.as_slice() else { panic!("{:?}", seen.diagnose.pairs) };
        assert_eq!(
            (pair.from.to_string(), pair.to.to_string()),
            ("0000:11:00.0".to_owned(), "0000:21:00.0".to_owned())
        );
        assert_eq!((pair.verdict, pair.confidence), (Verdict::Broken, Confidence::Certain));
    }

    #[test]
    fn every_assessment_is_explained_and_every_finding_has_evidence() {
        for text in [
            REGIONS,
            "NVRM: GPU 0000:41:00.0: RmInitAdapter failed! (0x62:0x65:1792)\n",
            "BOOT_IMAGE=/vmlinuz iommu=pt amd_iommu=on\n",
            "prose about a problem\n",
            "> Peer access from A (GPU0) -> A (GPU1) : Yes\nTest failed!\n",
        ] {
            let seen = of(text);
            assert_eq!(seen.explanations.len(), seen.diagnose.assessments.len());
            for one in &seen.explanations {
                assert!(!one.why.is_empty(), "{one:?}");
            }
            assert!(!seen.diagnose.findings.is_empty(), "{text}");
            for finding in &seen.diagnose.findings {
                assert!(
                    !finding.evidence.is_empty() && !finding.subjects.is_empty(),
                    "{finding:?}"
                );
            }
        }
    }

    #[test]
    fn what_is_no_peer_access_is_not_blamed_on_it() {
        let text = "kernel: ice 0000:c7:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x002b \
                    address=0x4100180000 flags=0x0020]\n";
        let seen = of(text);
        assert_eq!(seen.gpu_p2p_related, Some(false));
        assert!(seen.diagnose.pairs.is_empty());
        assert!(seen.diagnose.findings.iter().all(|finding| finding.code != code::PEER_FAULTS));
    }
}
