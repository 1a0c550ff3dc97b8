//! Workloads to begin with.

use peerway_worth::assumption::Assumptions;
use peerway_worth::precision::Precision;
use peerway_worth::{Layout, ModelConfig, Request, hardware, known};

pub(crate) fn model(name: &str) -> ModelConfig {
    known::model(name).unwrap().unwrap()
}

/// Qwen3.5-122B on four RTX PRO 6000, with SGLang.
pub(crate) fn reference() -> Request {
    Request {
        model: model("qwen3.5-122b-a10b"),
        engine: "sglang@0.5.23".parse().unwrap(),
        gpu: hardware::find("rtx-pro-6000").unwrap(),
        layout: Layout::tensor(4),
        concurrency: 1,
        prompt: 1024,
        output: 1024,
        times: None,
        other_times: Vec::new(),
        draft_steps: 0,
        accepted: None,
        kv: Precision::Bfloat16,
        memory_fraction: 0.85,
        measured: Vec::new(),
        assumptions: Assumptions::default(),
    }
}
