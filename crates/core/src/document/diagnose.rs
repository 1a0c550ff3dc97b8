//! The document of `diagnose`: pairs, findings, assessment.

use schemars::JsonSchema;
use serde::Serialize;

use crate::address::PciAddress;
use crate::code::Code;
use crate::diagnose::Diagnosis;
use crate::diagnose::assessment::Assessment;
use crate::diagnose::finding::Finding;
use crate::judge::{Basis, Confidence, Verdict};

/// Pairs, findings, assessment.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Diagnose {
    /// The leading assessment.
    pub assessment: Assessment,
    /// All that apply.
    pub assessments: Vec<Assessment>,
    /// Ordered pairs.
    pub pairs: Vec<Pair>,
    /// Findings, errors first.
    pub findings: Vec<Finding>,
}

/// One ordered pair.
#[derive(Clone, Debug, Serialize, JsonSchema)]
pub struct Pair {
    /// Who issues requests.
    pub from: PciAddress,
    /// Whose memory they address.
    pub to: PciAddress,
    /// The verdict.
    pub verdict: Verdict,
    /// What it rests on.
    pub basis: Basis,
    /// Codes of the findings that explain it.
    pub codes: Vec<Code>,
    /// How sure it is.
    pub confidence: Confidence,
    /// Why, in one sentence.
    pub reason: String,
}

impl From<&crate::judge::Pair> for Pair {
    fn from(pair: &crate::judge::Pair) -> Self {
        Self {
            from: pair.from,
            to: pair.to,
            verdict: pair.verdict,
            basis: pair.basis,
            codes: pair.codes.clone(),
            confidence: pair.confidence,
            reason: pair.reason.clone(),
        }
    }
}

impl Diagnose {
    /// From a diagnosis.
    pub fn new(diagnosis: &Diagnosis) -> Self {
        Self {
            assessment: diagnosis.assessment(),
            assessments: diagnosis.assessments.clone(),
            pairs: diagnosis.pairs.iter().map(Pair::from).collect(),
            findings: diagnosis.findings.clone(),
        }
    }
}
