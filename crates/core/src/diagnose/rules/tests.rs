//! What holds for the table as a whole.

use super::RULES;
use super::testing::{A, B, Host, folklore, well_formed};
use crate::code::{self, Code};
use crate::diagnose::finding::{Finding, Severity};
use crate::diagnose::pairs::PairScope;
use crate::diagnose::{diagnose, rule};
use crate::snapshot::Snapshot;
use crate::snapshot::kernel::Tristate;

#[test]
fn every_code_has_exactly_one_rule() {
    let codes: Vec<Code> = RULES.iter().map(|rule| rule.code).collect();
    assert_eq!(codes, code::ALL);
}

#[test]
fn every_rule_has_a_title_and_a_page() {
    for rule in RULES {
        assert!(!rule.title.is_empty() && !rule.title.ends_with('.'), "{rule:?}");
        assert!(rule.title.chars().count() < 110, "{rule:?}");
        assert!(rule.page.lines().count() >= 5, "{rule:?}");
        assert!(rule.page.contains("Sources:"), "{rule:?} names no sources");
        assert!(rule.page.contains("How it"), "{rule:?} does not say how it was seen");
        for line in rule.page.lines() {
            assert!(line.chars().count() <= 100, "{rule:?}: {line:?}");
            assert!(!line.ends_with(' '), "{rule:?}: {line:?}");
        }
    }
}

/// Words that do nothing may be named where the page says so, and advice that hurts nowhere.
#[test]
fn no_page_repeats_folklore() {
    for rule in RULES.iter().filter(|rule| rule.code != code::NO_OP_WORD) {
        for words in ["pci=noacs", "amd_iommu=on"] {
            assert!(!rule.page.contains(words), "{rule:?} speaks of {words}");
        }
    }
    for rule in RULES {
        let page = rule.page.to_lowercase();
        for words in ["change your bios", "disable the iommu", "turn the iommu off", "set iommu=pt"]
        {
            assert!(!page.contains(words), "{rule:?} says {words:?}");
        }
    }
}

fn findings(host: &Host) -> Vec<Finding> {
    let found = diagnose(&host.snapshot, &host.scope).findings;
    found.iter().for_each(well_formed);
    for remedy in found.iter().flat_map(|finding| &finding.remedies) {
        assert_eq!(folklore(remedy), None, "{remedy:?}");
    }
    found
}

fn codes(host: &Host) -> Vec<Code> {
    findings(host).iter().map(|finding| finding.code).collect()
}

#[test]
fn an_empty_host_is_quiet() {
    let found = diagnose(&Snapshot::default(), &PairScope::default()).findings;
    assert_eq!(found, Vec::new());
    let without_gpus = Host::amd().edit(|snapshot| snapshot.devices.clear());
    assert_eq!(codes(&without_gpus), Vec::new());
}

#[test]
fn a_healthy_host_has_neither_errors_nor_warnings() {
    let host = Host::amd().identity();
    let loud: Vec<Finding> =
        findings(&host).into_iter().filter(|finding| finding.severity != Severity::Info).collect();
    assert_eq!(loud, Vec::new());
    assert_eq!(codes(&host), [code::UNTRANSLATED, code::P2P_MECHANISM, code::FIRMWARE_SETTINGS]);
}

/// Every code that a verdict carries is explained by a finding.
#[track_caller]
fn check_explained(host: &Host) {
    let diagnosis = diagnose(&host.snapshot, &host.scope);
    for pair in &diagnosis.pairs {
        assert!(!pair.codes.is_empty(), "{pair:#?}");
        for code in &pair.codes {
            let explained = diagnosis.findings.iter().any(|finding| finding.code == *code);
            assert!(explained, "{code} has no finding: {pair:#?}");
            assert!(rule(*code).is_some());
        }
    }
}

#[test]
fn verdicts_are_explained() {
    for base in [Host::amd(), Host::intel(), Host::switch()] {
        for snp in [Tristate::Yes, Tristate::No, Tristate::Unknown] {
            for sme in [Tristate::Yes, Tristate::No, Tristate::Unknown] {
                for release in ["6.8.12", "6.14.8", "7.0.14", "7.3.4", "next"] {
                    let host = base.clone().snp(snp).sme(sme).kernel(release);
                    check_explained(&host);
                    check_explained(&host.clone().identity());
                    check_explained(&host.edit(|snapshot| {
                        snapshot.kernel.iommu_dma_ops = crate::observed::Observed::Known(true);
                    }));
                }
            }
        }
    }
    for board in [0x2684, 0x2330, 0x2230] {
        let host = Host::amd().board(board).edit(|snapshot| {
            snapshot.nvlinks = crate::observed::Observed::default();
        });
        check_explained(&host);
        check_explained(&host.identity());
    }
}

/// A host like the reference: translating, SNP, SME, a confidential guest beside a container.
#[test]
fn the_story_of_a_shared_snp_host() {
    let host = Host::amd()
        .snp(Tristate::Yes)
        .sme(Tristate::Yes)
        .boot("amd_iommu=on mem_encrypt=on kvm_amd.sev=1")
        .container(&[A, B])
        .guest(&[])
        .process("python3", &[("NCCL_P2P_DISABLE", "1")]);
    assert_eq!(
        codes(&host),
        [
            code::RAW_UNDER_TRANSLATION,
            code::REMAP_PARAMETER,
            code::TOOLS_SAY_OK,
            code::SME_ACTIVE,
            code::NO_OP_WORD,
            code::P2P_MECHANISM,
            code::WORKAROUND,
            code::SNP_ACTIVE,
            code::FIRMWARE_SETTINGS,
            code::PROTECTED_TENANT,
        ]
    );
}
