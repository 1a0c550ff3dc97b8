//! A finding: a coded, explained statement about a subject, with evidence and remedies.

use schemars::JsonSchema;
use serde::Serialize;

use crate::address::PciAddress;
use crate::code::Code;
use crate::judge::Confidence;
use crate::observed::Observed;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Severity {
    /// Something does not work.
    Error,
    /// Something will not work, is not safe, or misleads.
    Warning,
    /// Worth knowing.
    Info,
}

/// One observation that a finding rests on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
pub struct Evidence {
    /// File, command-line word, table, or rule of this program.
    pub source: String,
    /// What was read there.
    pub value: String,
}

/// A coded statement.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Finding {
    /// Its code; `peerway explain CODE` has the page.
    pub code: Code,
    /// How bad.
    pub severity: Severity,
    /// How sure.
    pub confidence: Confidence,
    /// Devices, groups, tenants or `host`.
    pub subjects: Vec<String>,
    /// The statement in one sentence.
    pub title: String,
    /// What it rests on.
    pub evidence: Vec<Evidence>,
    /// What can be done.
    pub remedies: Vec<String>,
}

impl Finding {
    /// A finding without subjects, evidence and remedies yet.
    pub fn new(
        code: Code,
        severity: Severity,
        confidence: Confidence,
        title: impl Into<String>,
    ) -> Self {
        Self {
            code,
            severity,
            confidence,
            subjects: Vec::new(),
            title: title.into(),
            evidence: Vec::new(),
            remedies: Vec::new(),
        }
    }

    /// Names a subject.
    #[must_use]
    pub fn about(mut self, subject: impl std::fmt::Display) -> Self {
        self.subjects.push(subject.to_string());
        self
    }

    /// Names several subjects.
    #[must_use]
    pub fn about_all<T: std::fmt::Display>(
        mut self,
        subjects: impl IntoIterator<Item = T>,
    ) -> Self {
        self.subjects.extend(subjects.into_iter().map(|subject| subject.to_string()));
        self
    }

    /// Adds an observation.
    #[must_use]
    pub fn seen(mut self, source: impl Into<String>, value: impl std::fmt::Display) -> Self {
        self.evidence.push(Evidence { source: source.into(), value: value.to_string() });
        self
    }

    /// Adds an observation where it was made; a failed look is evidence of its own.
    #[must_use]
    pub fn observed<T: std::fmt::Display>(
        self,
        source: impl Into<String>,
        value: &Observed<T>,
    ) -> Self {
        self.seen(source, value)
    }

    /// Adds a remedy.
    #[must_use]
    pub fn remedy(mut self, text: impl Into<String>) -> Self {
        self.remedies.push(text.into());
        self
    }
}

/// Path of a device's attribute.
pub fn device_file(address: PciAddress, name: &str) -> String {
    format!("/sys/bus/pci/devices/{address}/{name}")
}

/// Path of a group's attribute.
pub fn group_file(id: u32, name: &str) -> String {
    format!("/sys/kernel/iommu_groups/{id}/{name}")
}
