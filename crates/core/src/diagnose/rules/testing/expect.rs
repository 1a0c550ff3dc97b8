//! What is asked of findings.

use super::Host;
use crate::diagnose::finding::Finding;
use crate::diagnose::pairs::judge_all;
use crate::diagnose::rules::support::LONGEST_VALUE;
use crate::diagnose::{Context, Rule};

/// Findings of a rule on a host, each well formed.
#[track_caller]
pub(in crate::diagnose::rules) fn all(rule: &Rule, host: &Host) -> Vec<Finding> {
    let pairs = judge_all(&host.snapshot, &host.scope);
    let context = Context { snapshot: &host.snapshot, pairs: &pairs };
    let found = (rule.check)(&context);
    for finding in &found {
        assert_eq!(finding.code, rule.code);
        well_formed(finding);
    }
    found
}

/// The only finding of a rule on a host.
#[track_caller]
pub(in crate::diagnose::rules) fn fires(rule: &Rule, host: &Host) -> Finding {
    let mut found = all(rule, host);
    assert_eq!(found.len(), 1, "{rule:?}: {found:#?}");
    found.remove(0)
}

/// The rule finds nothing on a host.
#[track_caller]
pub(in crate::diagnose::rules) fn silent(rule: &Rule, host: &Host) {
    assert_eq!(all(rule, host), Vec::new(), "{rule:?}");
}

/// What holds for every finding.
#[track_caller]
pub(in crate::diagnose::rules) fn well_formed(finding: &Finding) {
    let title = &finding.title;
    assert!(title.chars().count() < 110, "{title:?} is too long");
    assert!(!title.is_empty() && !title.ends_with('.') && !title.contains('\n'), "{title:?}");
    assert!(!finding.subjects.is_empty(), "{title:?} has no subject");
    assert!(!finding.evidence.is_empty(), "{title:?} has no evidence");
    for one in &finding.evidence {
        assert!(!one.source.is_empty() && !one.value.is_empty(), "{title:?}: {one:?}");
        assert!(one.value.chars().count() <= LONGEST_VALUE, "{title:?}: {one:?}");
    }
    for remedy in &finding.remedies {
        assert_eq!(folklore(remedy), None, "{title:?}: {remedy:?}");
    }
}

/// Advice that does not exist or hurts somebody, if a text holds any.
pub(in crate::diagnose::rules) fn folklore(text: &str) -> Option<&'static str> {
    const FORBIDDEN: [&str; 7] = [
        "pci=noacs",
        "amd_iommu=on",
        "iommu=pt",
        "iommu.passthrough=1",
        "pcie_acs_override",
        "change your BIOS IOMMU setting",
        "disable the IOMMU",
    ];
    FORBIDDEN.into_iter().find(|words| text.to_lowercase().contains(&words.to_lowercase()))
}

/// The value that a finding shows for a source.
#[track_caller]
pub(in crate::diagnose::rules) fn value<'f>(finding: &'f Finding, source: &str) -> &'f str {
    let found = finding.evidence.iter().find(|one| one.source.contains(source));
    &found.unwrap_or_else(|| panic!("no source {source:?} in {finding:#?}")).value
}
