//! What each version refuses or changes, one rule a row. `source` is the engine's file that it was
//! read in.

use super::Outcome;
use crate::engine::{EngineName, Version};
use crate::launch::{Line, Wanted};
use crate::precision::Precision;

/// A rule: versions from, to before, what it is about, and when it holds.
pub(super) struct Rule {
    pub(super) engine: EngineName,
    pub(super) since: Version,
    pub(super) until: Option<Version>,
    pub(super) what: &'static str,
    pub(super) outcome: Outcome,
    pub(super) why: &'static str,
    pub(super) source: &'static str,
    pub(super) holds: fn(&Line, &Wanted) -> bool,
}

pub(super) const ANY: Rule = Rule {
    engine: EngineName::Sglang,
    since: Version(0, 0, 0),
    until: None,
    what: "",
    outcome: Outcome::Refused,
    why: "",
    source: "server_args.py, from 0.5.23 on arg_groups",
    holds: |_, _| false,
};

const V10: Version = Version(0, 5, 10);
const V12: Version = Version(0, 5, 12);
pub(super) const V15: Version = Version(0, 5, 15);
pub(super) const V23: Version = Version(0, 5, 23);

pub(super) fn keeping(line: &Line) -> Option<&str> {
    line.value("--mamba-radix-cache-strategy").or(line.value("--mamba-scheduler-strategy"))
}

fn speculates(line: &Line) -> bool {
    line.has("--speculative-algorithm")
}

pub(super) fn algorithm(line: &Line, names: &[&str]) -> bool {
    line.value("--speculative-algorithm")
        .is_some_and(|name| names.contains(&name.to_ascii_uppercase().as_str()))
}

pub(super) fn attention_dp(line: &Line) -> bool {
    line.has("--enable-dp-attention") || line.number("--attn-dp-size").is_some_and(|n| n > 1)
}

pub(super) fn tp(line: &Line, wanted: &Wanted) -> u32 {
    line.number("--tp-size").unwrap_or(if line.flags.is_empty() { wanted.layout.tp } else { 1 })
}

const DRAFT: [&str; 3] =
    ["--speculative-num-steps", "--speculative-eagle-topk", "--speculative-num-draft-tokens"];

/// All rules, by engine and version.
pub(super) const RULES: &[Rule] = &[
    Rule {
        until: Some(V15),
        what: "speculation with states kept as no_buffer and the prefix cache on",
        why: "give --mamba-scheduler-strategy extra_buffer and SGLANG_ENABLE_SPEC_V2=1",
        holds: |line, wanted| {
            wanted.model.linear.is_some()
                && speculates(line)
                && !line.has("--disable-radix-cache")
                && keeping(line).is_none_or(|word| word == "no_buffer" || word == "auto")
        },
        ..ANY
    },
    Rule {
        since: V10,
        until: Some(V12),
        what: "extra_buffer with --disable-radix-cache",
        why: "without the prefix cache there is nothing to buffer: leave one of them out",
        holds: |line, _| keeping(line) == Some("extra_buffer") && line.has("--disable-radix-cache"),
        ..ANY
    },
    Rule {
        since: V15,
        what: "extra_buffer_lazy without the overlapped schedule, or with separate prefill",
        why: "give extra_buffer",
        source: "mamba_hook.py, kv_cache_configurator.py",
        holds: |line, _| {
            keeping(line) == Some("extra_buffer_lazy")
                && (line.has("--disable-overlap-schedule") || line.has("--disaggregation-mode"))
        },
        ..ANY
    },
    Rule {
        what: "states kept as no_buffer",
        outcome: Outcome::Changed,
        why: "page size becomes 1 and the overlapped schedule is switched off",
        source: "server_args.py, mamba_hook.py",
        holds: |line, _| keeping(line) == Some("no_buffer"),
        ..ANY
    },
    Rule {
        what: "--speculative-num-draft-tokens other than steps + 1 with top-k 1",
        outcome: Outcome::Changed,
        why: "it is set to steps + 1 without a word",
        source: "speculative_hook.py",
        holds: |line, _| {
            line.number(DRAFT[1]) == Some(1)
                && line.number(DRAFT[0]).zip(line.number(DRAFT[2])).is_some_and(|(s, d)| d != s + 1)
        },
        ..ANY
    },
    Rule {
        what: "top-k or draft tokens without --speculative-num-steps",
        why: "give all three, or none: then the engine chooses",
        source: "speculative_hook.py",
        holds: |line, _| !line.has(DRAFT[0]) && (line.has(DRAFT[1]) || line.has(DRAFT[2])),
        ..ANY
    },
    Rule {
        until: Some(V15),
        what: "speculation of the second form with top-k above 1",
        why: "give --speculative-eagle-topk 1",
        holds: |line, _| {
            line.on("SGLANG_ENABLE_SPEC_V2") && line.number(DRAFT[1]).is_some_and(|k| k > 1)
        },
        ..ANY
    },
    Rule {
        since: V12,
        until: Some(V15),
        what: "top-k above 1, with speculation of the second form as the default",
        why: "give --speculative-eagle-topk 1, or SGLANG_ENABLE_SPEC_V2=0",
        holds: |line, _| {
            !line.environment.contains_key("SGLANG_ENABLE_SPEC_V2")
                && speculates(line)
                && line.number(DRAFT[1]).is_some_and(|k| k > 1)
        },
        ..ANY
    },
    Rule {
        what: "speculation without --max-running-requests",
        outcome: Outcome::Changed,
        why: "48 requests run, whatever comes in",
        source: "speculative_hook.py, older server_args.py",
        holds: |line, _| speculates(line) && !line.has("--max-running-requests"),
        ..ANY
    },
    Rule {
        what: "EAGLE or NEXTN with --enable-mixed-chunk",
        outcome: Outcome::Changed,
        why: "mixed chunks are switched off without a word",
        source: "speculative_hook.py",
        holds: |line, _| {
            algorithm(line, &["EAGLE", "EAGLE3", "NEXTN"]) && line.has("--enable-mixed-chunk")
        },
        ..ANY
    },
    Rule {
        what: "STANDALONE or NGRAM with attention data-parallel",
        why: "leave one of them out",
        source: "speculative_hook.py",
        holds: |line, _| algorithm(line, &["STANDALONE", "NGRAM"]) && attention_dp(line),
        ..ANY
    },
    Rule {
        what: "speculation over pipeline stages",
        why: "needs SGLANG_ENABLE_PP_SPEC=1, and never goes with attention data-parallel",
        source: "speculative_hook.py",
        holds: |line, _| {
            speculates(line)
                && line.number("--pp-size").is_some_and(|n| n > 1)
                && (!line.on("SGLANG_ENABLE_PP_SPEC") || attention_dp(line))
        },
        ..ANY
    },
    Rule {
        since: V23,
        what: "--dp-size above 1 with --attn-dp-size above 1",
        why: "--dp-size are replicas in this version: start them beside each other",
        source: "parallel_hook.py",
        holds: |line, _| {
            [line.number("--dp-size"), line.number("--attn-dp-size")]
                .iter()
                .all(|size| size.is_some_and(|n| n > 1))
        },
        ..ANY
    },
    Rule {
        what: "attention data-parallel that does not divide tensor parallel",
        why: "choose a size that divides --tp-size",
        source: "parallel_hook.py",
        holds: |line, wanted| {
            line.number("--attn-dp-size")
                .or(line.number("--dp-size").filter(|_| line.has("--enable-dp-attention")))
                .is_some_and(|n| n > 0 && !tp(line, wanted).is_multiple_of(n))
        },
        ..ANY
    },
    Rule {
        what: "--enable-dp-lm-head without attention data-parallel",
        why: "leave it out",
        holds: |line, _| line.has("--enable-dp-lm-head") && !attention_dp(line),
        ..ANY
    },
    Rule {
        since: V12,
        what: "--enable-quant-communications with one GPU",
        why: "there are no messages: leave it out",
        holds: |line, wanted| line.has("--enable-quant-communications") && tp(line, wanted) == 1,
        ..ANY
    },
    Rule {
        since: V23,
        what: "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE=1 with --enable-deterministic-inference",
        outcome: Outcome::Changed,
        why: "the kernels are switched off with a warning",
        source: "pcie_ipc_ar.py",
        holds: |line, _| {
            line.on("SGLANG_ENABLE_PCIE_IPC_ALLREDUCE")
                && line.has("--enable-deterministic-inference")
        },
        ..ANY
    },
    Rule {
        since: V23,
        what: "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE=1 with float16, or a number of GPUs other than 2, 4, 8",
        outcome: Outcome::Changed,
        why: "sums stay with NCCL",
        source: "pcie_ipc_ar.py",
        holds: |line, wanted| {
            let configured = wanted.model.weights.base() == Precision::Float16;
            line.on("SGLANG_ENABLE_PCIE_IPC_ALLREDUCE")
                && (matches!(line.value("--dtype"), Some("float16" | "half"))
                    || configured && matches!(line.value("--dtype"), None | Some("auto"))
                    || ![2, 4, 8].contains(&tp(line, wanted)))
        },
        ..ANY
    },
    Rule {
        what: "--enable-custom-all-reduce paths that use peer access beside NCCL_P2P_DISABLE=1",
        outcome: Outcome::Changed,
        why: "NCCL_P2P_DISABLE=1 covers NCCL alone: add --disable-custom-all-reduce, and leave \
              symmetric memory, MSCCL++ and PCIe kernels out",
        source: "parallel_state.py",
        holds: |line, wanted| {
            line.on("NCCL_P2P_DISABLE")
                && (!line.has("--disable-custom-all-reduce") && tp(line, wanted) > 1
                    || line.has("--enable-symm-mem")
                    || line.has("--enable-torch-symm-mem")
                    || line.has("--enable-mscclpp")
                    || line.on("SGLANG_ENABLE_PCIE_IPC_ALLREDUCE"))
        },
        ..ANY
    },
    Rule {
        engine: EngineName::Vllm,
        what: "VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC=1 with two batches at once or batch invariance",
        why: "leave --enable-dbo and VLLM_BATCH_INVARIANT out",
        source: "flashinfer_pcie_ipc_all_reduce.py",
        holds: |line, _| {
            line.on("VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC")
                && (line.has("--enable-dbo") || line.on("VLLM_BATCH_INVARIANT"))
        },
        ..ANY
    },
    Rule {
        engine: EngineName::Vllm,
        what: "--mamba-cache-mode",
        outcome: Outcome::Changed,
        why: "on its way out: parsed with a warning in 0.33.0",
        source: "engine/arg_utils.py",
        holds: |line, _| line.has("--mamba-cache-mode"),
        ..ANY
    },
    Rule {
        engine: EngineName::Vllm,
        what: "peer access by ways that NCCL_P2P_DISABLE=1 does not cover",
        outcome: Outcome::Changed,
        why: "NCCL_P2P_DISABLE=1 covers NCCL alone: add --disable-custom-all-reduce, \
              VLLM_ALLREDUCE_USE_SYMM_MEM=0 and VLLM_ALLREDUCE_USE_FLASHINFER=0",
        source: "cuda_communicator.py",
        holds: |line, wanted| {
            let off = |name: &str| line.environment.get(name).is_some_and(|value| value == "0");
            line.on("NCCL_P2P_DISABLE")
                && tp(line, wanted) > 1
                && (!line.has("--disable-custom-all-reduce")
                    || !off("VLLM_ALLREDUCE_USE_SYMM_MEM")
                    || !off("VLLM_ALLREDUCE_USE_FLASHINFER")
                    || line.on("VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC")
                    || line.on("VLLM_USE_NCCL_SYMM_MEM"))
        },
        ..ANY
    },
];
