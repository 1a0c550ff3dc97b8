//! The product's documents, as far as they are held against facts.

use anyhow::{Context as _, Result};
use serde::Deserialize;

use super::super::boot::Report;

/// Exit status of a diagnosis in which nothing is wrong and something is open.
const UNDECIDED: i32 = 3;

/// `diagnose --format json`.
#[derive(Debug, Deserialize)]
pub(super) struct Diagnosis {
    pub(super) pairs: Vec<Pair>,
}

/// One ordered pair.
#[derive(Debug, Deserialize)]
pub(super) struct Pair {
    pub(super) from: String,
    pub(super) to: String,
    pub(super) verdict: String,
    pub(super) codes: Vec<String>,
    pub(super) reason: String,
}

/// `scan --format json`.
#[derive(Debug, Deserialize)]
pub(super) struct Scan {
    pub(super) devices: Vec<Device>,
    pub(super) groups: Vec<Group>,
    pub(super) tenants: Vec<Tenant>,
    pub(super) iommu: Iommu,
    pub(super) gaps: Vec<serde_json::Value>,
}

/// One device.
#[derive(Debug, Deserialize)]
pub(super) struct Device {
    pub(super) address: String,
    #[serde(rename = "vendor_id")]
    pub(super) vendor: Option<String>,
    #[serde(rename = "device_id")]
    pub(super) model: Option<String>,
    pub(super) driver: Option<String>,
    pub(super) numa_node: Option<u32>,
    pub(super) group: Option<u32>,
    pub(super) tenant: Option<String>,
}

/// One IOMMU group.
#[derive(Debug, Deserialize)]
pub(super) struct Group {
    pub(super) id: u32,
    #[serde(rename = "type")]
    pub(super) kind: Option<String>,
    pub(super) devices: Vec<String>,
}

/// One tenant.
#[derive(Debug, Deserialize)]
pub(super) struct Tenant {
    pub(super) id: String,
    pub(super) devices: Vec<String>,
}

/// The IOMMU.
#[derive(Debug, Deserialize)]
pub(super) struct Iommu {
    pub(super) vendor: Option<String>,
    pub(super) state: String,
}

/// `faults --format json`.
#[derive(Debug, Deserialize)]
pub(super) struct Faults {
    pub(super) requesters: Vec<Requester>,
}

/// A device whose requests faulted.
#[derive(Debug, Deserialize)]
pub(super) struct Requester {
    pub(super) address: String,
    pub(super) access: String,
    pub(super) count: usize,
    pub(super) tenant: Option<String>,
    pub(super) targets: Vec<Target>,
}

/// Whose memory they went to.
#[derive(Debug, Deserialize)]
pub(super) struct Target {
    pub(super) device: String,
    pub(super) bar: u8,
    pub(super) offset_first: u64,
    pub(super) offset_last: u64,
}

/// What a step of the product printed; a verdict that it leaves open is an answer too.
pub(super) fn of<T: serde::de::DeserializeOwned>(report: &Report, step: &str) -> Result<T> {
    let outcome = report.outcome(step)?;
    let ended = (outcome.status, outcome.timed_out);
    anyhow::ensure!(
        ended == (Some(0), false) || ended == (Some(UNDECIDED), false),
        "step {step:?} ended with {ended:?}: {}",
        outcome.stderr
    );
    serde_json::from_str(&outcome.stdout)
        .with_context(|| format!("cannot understand what {step:?} printed"))
}
