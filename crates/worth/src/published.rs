//! Published figures of others, with what the model says beside each.
//!
//! Nothing here is an input of the model but the curves named as such; no constant is fitted to any
//! row.

mod rates;
mod sums;

use serde::Serialize;

pub use rates::{Figure, NOT_COMPARED, figures};
pub use sums::{Sum, sums};

use crate::allreduce::Times;
use crate::assumption::Assumptions;
use crate::config::{ConfigError, ModelConfig, Part};
use crate::engine::Engine;
use crate::estimate::{EstimateError, Measured, Request};
use crate::hardware;
use crate::interval::Interval;
use crate::layout::Layout;
use crate::precision::Precision;
use thiserror::Error;

/// Why a row could not be computed: a defect of the tables here.
#[derive(Clone, Debug, Error, PartialEq)]
#[non_exhaustive]
pub enum PublishedError {
    /// A model that is not known.
    #[error("no configuration of the name {0:?}")]
    NoModel(&'static str),
    /// A GPU type that is not known.
    #[error("no GPU type of the name {0:?}")]
    NoGpu(&'static str),
    /// A configuration that is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// No estimate.
    #[error(transparent)]
    Estimate(#[from] EstimateError),
    /// Not in the estimate.
    #[error("the estimate has no {0}")]
    Absent(&'static str),
}

/// A row: what was published and what the model says.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// What was measured.
    pub what: String,
    /// Unit.
    pub unit: &'static str,
    /// What was published: one figure, or a range.
    pub published: Interval,
    /// What the model says.
    pub model: Interval,
    /// Where it was published.
    pub source: &'static str,
}

impl Row {
    /// How far the model's middle is from the middle of what was published: per cent for amounts,
    /// points for gains.
    pub fn deviation(&self) -> f64 {
        if self.unit == "%" {
            self.model.mid - self.published.mid
        } else {
            (self.model.mid / self.published.mid - 1.0) * 100.0
        }
    }

    /// Whether the model's interval holds some of what was published.
    pub fn inside(&self) -> bool {
        // An end that is itself a published figure went through a few operations.
        let slack = 1e-9 * self.model.high.abs();
        self.model.low <= self.published.high + slack
            && self.published.low <= self.model.high + slack
    }
}

/// A workload by names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Named {
    pub(crate) model: &'static str,
    /// Format of the experts, where not as configured.
    pub(crate) experts: Option<Precision>,
    pub(crate) tp: u32,
    pub(crate) concurrency: u32,
    pub(crate) draft_steps: u32,
}

/// The request of a workload on RTX PRO 6000.
pub(crate) fn request(named: Named) -> Result<Request, PublishedError> {
    let mut model: ModelConfig =
        crate::known::model(named.model).ok_or(PublishedError::NoModel(named.model))??;
    if let Some(format) = named.experts {
        model.weights.set(Part::Experts, format);
        model.weights.set(Part::SharedExpert, format);
    }
    let gpu = hardware::find("rtx-pro-6000").ok_or(PublishedError::NoGpu("rtx-pro-6000"))?;
    Ok(Request {
        model,
        engine: Engine {
            name: crate::engine::EngineName::Sglang,
            version: Some(crate::engine::Version(0, 5, 23)),
        },
        gpu,
        layout: Layout::tensor(named.tp),
        concurrency: named.concurrency,
        prompt: 1024,
        output: 1024,
        times: None,
        other_times: Vec::new(),
        draft_steps: named.draft_steps,
        accepted: None,
        kv: Precision::Bfloat16,
        memory_fraction: 0.85,
        measured: Vec::new(),
        assumptions: Assumptions::default(),
    })
}

/// The reference workload: Qwen3.5-122B-A10B in bfloat16, TP4, four RTX PRO 6000; with the reported
/// single-stream rate or without.
///
/// # Errors
/// A defect of the tables.
pub fn reference(concurrency: u32, fitted: bool) -> Result<Request, PublishedError> {
    let named =
        Named { model: "qwen3.5-122b-a10b", experts: None, tp: 4, concurrency, draft_steps: 0 };
    let mut request = request(named)?;
    if fitted {
        request.measured = vec![Measured { concurrency: 1, rate: 108.0 }];
    }
    Ok(request)
}

/// A small model on the pair of H200 that this project measured, with its measured sums or with
/// assumed ones.
///
/// # Errors
/// A defect of the tables.
pub fn h200_pair(times: Option<Times>, concurrency: u32) -> Result<Request, PublishedError> {
    let named = Named { model: "qwen3-30b-a3b", experts: None, tp: 2, concurrency, draft_steps: 0 };
    let gpu = hardware::find("h200").ok_or(PublishedError::NoGpu("h200"))?;
    Ok(Request { gpu, times, ..request(named)? })
}
