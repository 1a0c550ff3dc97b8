//! Rates and gains.

use super::{Named, PublishedError, Row, request};
use crate::allreduce::Arm;
use crate::estimate::{Context, Estimate, Request, estimate};
use crate::interval::Interval;
use crate::precision::Precision;

/// What a published figure is about.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Of {
    /// Tokens a second without speculation.
    Rate(Arm),
    /// Tokens a second with it.
    SpeculativeRate(Arm),
    /// More tokens a second with peer access, per cent.
    P2p(Arm),
    /// More tokens a second by speculation, per cent.
    Speculation(Arm),
    /// More tokens a second by one-shot kernels than by NCCL, both over peer access and with
    /// speculation, per cent.
    KernelsWithSpeculation,
}

/// A published figure.
#[derive(Clone, Copy, Debug)]
pub struct Figure {
    what: &'static str,
    workload: Named,
    of: Of,
    published: (f64, f64),
    source: &'static str,
}

const BIG: Named = Named {
    model: "qwen3.5-397b-a17b",
    experts: Some(Precision::Nvfp4),
    tp: 4,
    concurrency: 1,
    draft_steps: 0,
};

const REFERENCE: Named =
    Named { model: "qwen3.5-122b-a10b", experts: None, tp: 4, concurrency: 1, draft_steps: 0 };

const TUNED: &str = "rtx6kpro, April 2026: b12x kernels and one-shot sums";
const VLLM: &str = "rtx6kpro, March 2026: vLLM as it comes";
const SGLANG: &str = "rtx6kpro, March 2026: SGLang 0.5.9 as it comes";
const OPERATOR: &str = "the operator of the reference host";
const FORK: &str = "rtx6kpro, with MTP";

const fn big(
    what: &'static str,
    concurrency: u32,
    of: Of,
    at: f64,
    source: &'static str,
) -> Figure {
    Figure { what, workload: Named { concurrency, ..BIG }, of, published: (at, at), source }
}

const fn drafted(
    what: &'static str,
    concurrency: u32,
    of: Of,
    at: f64,
    source: &'static str,
) -> Figure {
    let workload = Named { concurrency, draft_steps: 2, ..BIG };
    Figure { what, workload, of, published: (at, at), source }
}

const NVFP4: &str = "397B NVFP4 TP4, P2P on";
const NVFP4_MTP: &str = "397B NVFP4 TP4, P2P on, MTP 2 steps";

/// Every published rate and gain whose model and layout are stated.
pub fn figures() -> &'static [Figure] {
    FIGURES
}

const FIGURES: &[Figure] = &[
    Figure {
        what: "122B BF16 TP4, P2P off",
        workload: REFERENCE,
        of: Of::Rate(Arm::Host),
        published: (108.0, 108.0),
        source: OPERATOR,
    },
    Figure {
        what: "122B BF16 TP4, P2P off",
        workload: Named { concurrency: 128, ..REFERENCE },
        of: Of::Rate(Arm::Host),
        published: (2800.0, 2800.0),
        source: OPERATOR,
    },
    Figure {
        what: "122B, gain by MTP 2 steps, P2P off",
        workload: Named { draft_steps: 2, ..REFERENCE },
        of: Of::Speculation(Arm::Host),
        published: (12.0, 45.0),
        source: "the operator of the reference host, on similar models; origin not found",
    },
    big(NVFP4, 1, Of::Rate(Arm::PeerKernel), 108.0, TUNED),
    big(NVFP4, 8, Of::Rate(Arm::PeerKernel), 554.0, TUNED),
    big(NVFP4, 32, Of::Rate(Arm::PeerKernel), 1174.0, TUNED),
    big(NVFP4, 64, Of::Rate(Arm::PeerKernel), 1551.0, TUNED),
    big(NVFP4, 1, Of::Rate(Arm::Peer), 81.0, VLLM),
    big(NVFP4, 32, Of::Rate(Arm::Peer), 987.0, VLLM),
    big(NVFP4, 64, Of::Rate(Arm::Peer), 1590.0, VLLM),
    big(NVFP4, 128, Of::Rate(Arm::Peer), 2291.0, VLLM),
    big(NVFP4, 1, Of::Rate(Arm::Peer), 74.0, SGLANG),
    big(NVFP4, 32, Of::Rate(Arm::Peer), 996.0, SGLANG),
    big(NVFP4, 64, Of::Rate(Arm::Peer), 1160.0, SGLANG),
    drafted(NVFP4_MTP, 1, Of::SpeculativeRate(Arm::Peer), 127.0, VLLM),
    drafted(NVFP4_MTP, 32, Of::SpeculativeRate(Arm::Peer), 1441.0, VLLM),
    drafted(NVFP4_MTP, 64, Of::SpeculativeRate(Arm::Peer), 2283.0, VLLM),
    drafted(NVFP4_MTP, 128, Of::SpeculativeRate(Arm::Peer), 3220.0, VLLM),
    drafted(NVFP4_MTP, 1, Of::SpeculativeRate(Arm::Peer), 130.0, SGLANG),
    drafted(NVFP4_MTP, 32, Of::SpeculativeRate(Arm::Peer), 1342.0, SGLANG),
    drafted(NVFP4_MTP, 64, Of::SpeculativeRate(Arm::Peer), 1248.0, SGLANG),
    Figure {
        what: "397B NVFP4 TP4, gain by MTP 2 steps",
        workload: Named { draft_steps: 2, ..BIG },
        of: Of::Speculation(Arm::Peer),
        published: (51.0, 72.0),
        source: "rtx6kpro: vLLM, 1 to 32 at once",
    },
    drafted(
        "397B NVFP4 TP4, gain by MTP 2 steps",
        1,
        Of::Speculation(Arm::Peer),
        -21.8,
        "a public post: Marlin kernels under WSL2 (50.5 to 39.5 tokens/s)",
    ),
    drafted(
        "397B NVFP4 TP4, gain by one-shot over NCCL",
        1,
        Of::KernelsWithSpeculation,
        11.3,
        FORK,
    ),
    drafted(
        "397B NVFP4 TP4, gain by one-shot over NCCL",
        64,
        Of::KernelsWithSpeculation,
        7.3,
        FORK,
    ),
    Figure {
        what: "122B NVFP4 TP2, P2P on",
        workload: Named { experts: Some(Precision::Nvfp4), tp: 2, ..REFERENCE },
        of: Of::Rate(Arm::Peer),
        published: (131.0, 131.0),
        source: "rtx6kpro, a public post, before",
    },
    Figure {
        what: "122B NVFP4 TP2, P2P on, NEXTN, a switch and other kernels",
        workload: Named { experts: Some(Precision::Nvfp4), tp: 2, draft_steps: 2, ..REFERENCE },
        of: Of::SpeculativeRate(Arm::PeerKernel),
        published: (198.0, 198.0),
        source: "rtx6kpro, a public post, after",
    },
    Figure {
        what: "Kimi K2.5 INT4 TP8, gain by P2P, short context",
        workload: Named { model: "kimi-k2", experts: None, tp: 8, concurrency: 1, draft_steps: 0 },
        of: Of::P2p(Arm::Peer),
        published: (47.7, 47.7),
        source: "rtx6kpro: 65 against 44 tokens/s",
    },
];

/// Published figures that the model cannot be held against, and why.
pub const NOT_COMPARED: &[(&str, &str)] = &[
    (
        "decode, one at a time: +3.6 % by NCCL at level SYS, +11 % by one-shot kernels (rtx6kpro)",
        "model and layout are not stated",
    ),
    (
        "+7 to +8 % by one-shot kernels over NCCL, +10 % in later reports (rtx6kpro)",
        "several models, not stated which",
    ),
    (
        "vLLM's PCIe all-reduce: +14.3, +9.3, +26.3 % at 1, 8, 32 at once, +3.8 and -0.5 % with MTP \
         (vllm 56128)",
        "model not stated",
    ),
    (
        "SGLang's PCIe kernels: 9.53 to 8.18, 14.14 to 12.75, 23.92 to 21.28 ms a token at 1, 8, 32 \
         at once and 8k; 9.10 to 8.25, 14.68 to 13.32, 27.75 to 24.93 ms at 32k; 9.33 to 8.47 ms at \
         128k; TP8 21.1 to 13.6 ms, 35.0 to 48.1 tokens/s (sglang 34528)",
        "model and layout not stated; hidden size 6144",
    ),
    (
        "MiniMax-M2.5, 100 at once: 5,000 tokens/s with P2P, 10,000 without (rtx6kpro)",
        "one report, of the opposite sign: congestion of the host's fabric is not in the model",
    ),
    (
        "8 GPUs over two sockets: -4 to -16 % by one-shot kernels with MTP (rtx6kpro)",
        "model not stated; writes of many GPUs over one root complex are not in the model",
    ),
    (
        "Kimi K2.5: 27 against 23 tokens/s at 200k tokens of context; 90 against 70 (rtx6kpro)",
        "attention kernels at that length are not in the model; the second without a model",
    ),
    (
        "GPQA in 18 to 24 % less time with MTP on SGLang (rtx6kpro)",
        "wall time of a whole evaluation, concurrency not stated",
    ),
    (
        "41 against 126 tokens/s by a late flag; MTP slower (vllm 39680, 47277, sglang 5160)",
        "defects, not in the model",
    ),
];

fn rate_of(estimate: &Estimate, arm: Arm) -> Option<Interval> {
    estimate.decode.iter().find(|row| row.arm == arm).map(|row| row.tokens_per_second)
}

/// Gain by one-shot kernels over NCCL at equal acceptance, within each combination of assumptions.
fn kernels_over_nccl(request: &Request) -> Result<Interval, PublishedError> {
    let context = Context::new(request);
    let (setup, work) = (context.setup(), context.work(request.draft_steps));
    Ok(context.over("the gain by kernels", |one| {
        let nccl = setup.decode(&work, Arm::Peer, one).total();
        (nccl / setup.decode(&work, Arm::PeerKernel, one).total() - 1.0) * 100.0
    })?)
}

impl Figure {
    /// The row, with what the model says.
    ///
    /// # Errors
    /// A defect of the tables.
    pub fn row(&self) -> Result<Row, PublishedError> {
        let estimate = estimate(&request(self.workload)?)?;
        let (low, high) = self.published;
        let model = match self.of {
            Of::KernelsWithSpeculation => kernels_over_nccl(&request(self.workload)?)?,
            _ => self.model(&estimate).ok_or(PublishedError::Absent(self.what))?,
        };
        let unit = match self.of {
            Of::Rate(_) | Of::SpeculativeRate(_) => "tokens/s",
            Of::P2p(_) | Of::Speculation(_) | Of::KernelsWithSpeculation => "%",
        };
        Ok(Row {
            what: format!("{}, {} at once", self.what, self.workload.concurrency),
            unit,
            published: Interval::new(low, f64::midpoint(low, high), high),
            model,
            source: self.source,
        })
    }

    fn model(&self, estimate: &Estimate) -> Option<Interval> {
        let speculative = |arm: Arm| {
            let steps = self.workload.draft_steps;
            let row = estimate.speculation.iter().find(|row| row.draft_steps == steps)?;
            row.arms.iter().find(|one| one.arm == arm)
        };
        match self.of {
            Of::Rate(arm) => rate_of(estimate, arm),
            Of::SpeculativeRate(arm) => speculative(arm).map(|row| row.tokens_per_second),
            Of::Speculation(arm) => speculative(arm).map(|row| row.gain_percent),
            Of::P2p(arm) => {
                estimate.p2p.iter().find(|row| row.arm == arm).map(|row| row.decode_percent)
            }
            Of::KernelsWithSpeculation => None,
        }
    }
}
