//! From a snapshot to pairs, findings and an assessment.
//!
//! A rule is data: a code, its manual page and a pure function from the context to findings. The
//! table [`RULES`] lists them; each lives in a file of its own below `rules`.

pub mod assessment;
pub mod finding;
pub mod pairs;
pub mod rules;

use std::collections::BTreeSet;

use crate::address::PciAddress;
use crate::code::Code;
use crate::judge::{Confidence, Pair, Verdict};
use crate::snapshot::Snapshot;
use assessment::Assessment;
use finding::Finding;
use pairs::PairScope;

pub use rules::RULES;

/// What a rule looks at.
#[derive(Debug)]
pub struct Context<'a> {
    /// The host.
    pub snapshot: &'a Snapshot,
    /// Its pairs with their verdicts.
    pub pairs: &'a [Pair],
}

impl Context<'_> {
    /// Pairs whose verdict names a code.
    pub fn pairs_with(&self, code: Code) -> impl Iterator<Item = &Pair> {
        self.pairs.iter().filter(move |pair| pair.codes.contains(&code))
    }

    /// Requesters of the pairs whose verdict names a code, ordered.
    pub fn requesters_with(&self, code: Code) -> BTreeSet<PciAddress> {
        self.pairs_with(code).map(|pair| pair.from).collect()
    }

    /// Both ends of the pairs whose verdict names a code, ordered.
    pub fn ends_with(&self, code: Code) -> BTreeSet<PciAddress> {
        self.pairs_with(code).flat_map(|pair| [pair.from, pair.to]).collect()
    }

    /// The least confident of the pairs that name a code: a finding is no surer than its pairs.
    pub fn confidence_of(&self, code: Code) -> Confidence {
        self.pairs_with(code).map(|pair| pair.confidence).max().unwrap_or(Confidence::Possible)
    }
}

/// A rule: what it is called, its manual page, and how it is found.
#[derive(Clone, Copy)]
pub struct Rule {
    /// Code of its findings.
    pub code: Code,
    /// One line.
    pub title: &'static str,
    /// Manual page, in Markdown, without the heading.
    pub page: &'static str,
    /// Looks for it.
    pub check: fn(&Context<'_>) -> Vec<Finding>,
}

impl std::fmt::Debug for Rule {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "Rule({})", self.code)
    }
}

/// The rule of a code.
pub fn rule(code: Code) -> Option<&'static Rule> {
    RULES.iter().find(|rule| rule.code == code)
}

/// Everything concluded from a snapshot.
#[derive(Clone, Debug, PartialEq)]
pub struct Diagnosis {
    /// Ordered pairs, by requester and target.
    pub pairs: Vec<Pair>,
    /// Findings: errors first, then by code and subject.
    pub findings: Vec<Finding>,
    /// All assessments, the one that the rest follows from first.
    pub assessments: Vec<Assessment>,
}

impl Diagnosis {
    /// The leading assessment.
    pub fn assessment(&self) -> Assessment {
        self.assessments.first().copied().unwrap_or(Assessment::CouldNotLook)
    }

    /// How many pairs have a verdict.
    pub fn count(&self, verdict: Verdict) -> usize {
        self.pairs.iter().filter(|pair| pair.verdict == verdict).count()
    }
}

/// Judges the pairs and runs every rule.
pub fn diagnose(snapshot: &Snapshot, scope: &PairScope) -> Diagnosis {
    let pairs = pairs::judge_all(snapshot, scope);
    let context = Context { snapshot, pairs: &pairs };
    let mut findings: Vec<Finding> = RULES.iter().flat_map(|rule| (rule.check)(&context)).collect();
    findings
        .sort_by(|a, b| (a.severity, a.code, &a.subjects).cmp(&(b.severity, b.code, &b.subjects)));
    let assessments = assessment::assess(snapshot, &pairs, &findings);
    Diagnosis { pairs, findings, assessments }
}
