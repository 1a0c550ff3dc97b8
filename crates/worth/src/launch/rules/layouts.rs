//! The same for what depends on the model and its layout, and for what nothing proves.

use super::Outcome;
use super::table::{ANY, Rule, V15, V23, algorithm, attention_dp, keeping, tp};
use crate::config::{Attention, Part};
use crate::engine::EngineName;
use crate::launch::Wanted;
use crate::precision::Precision;

fn proved(wanted: &Wanted) -> bool {
    wanted.proof.as_ref().is_some_and(|proof| proof.kernels)
}

/// Rules, by engine and version.
pub(super) const RULES: &[Rule] = &[
    Rule {
        since: V15,
        what: "extra_buffer on a model without recurrent states",
        why: "leave it out: there are no states to keep",
        source: "mamba_hook.py",
        holds: |line, wanted| {
            wanted.model.linear.is_none()
                && matches!(keeping(line), Some("extra_buffer" | "extra_buffer_lazy"))
        },
        ..ANY
    },
    Rule {
        until: Some(V15),
        what: "extra_buffer on a model without recurrent states",
        why: "leave it out: there are no states to keep",
        source: "server_args.py",
        holds: |line, wanted| {
            wanted.model.linear.is_none() && keeping(line) == Some("extra_buffer")
        },
        ..ANY
    },
    Rule {
        until: Some(V15),
        what: "extra_buffer_lazy",
        why: "unknown before 0.5.15: give extra_buffer",
        source: "server_args.py",
        holds: |line, _| keeping(line) == Some("extra_buffer_lazy"),
        ..ANY
    },
    Rule {
        what: "FlashInfer's decode of linear attention with states kept as no_buffer",
        why: "give extra_buffer, or another --linear-attn-decode-backend",
        source: "sglang issue 20791",
        holds: |line, _| {
            keeping(line) == Some("no_buffer")
                && ["--linear-attn-decode-backend", "--linear-attn-backend"]
                    .iter()
                    .any(|flag| line.value(flag) == Some("flashinfer"))
        },
        ..ANY
    },
    Rule {
        what: "DFLASH over pipeline stages",
        why: "give --pp-size 1",
        source: "speculative_hook.py",
        holds: |line, _| {
            algorithm(line, &["DFLASH"]) && line.number("--pp-size").is_some_and(|n| n > 1)
        },
        ..ANY
    },
    Rule {
        what: "the overlapped schedule over pipeline stages",
        outcome: Outcome::Changed,
        why: "the overlapped schedule is switched off",
        source: "server_args.py, from 0.5.23 on overrides.py",
        holds: |line, _| {
            line.number("--pp-size").is_some_and(|n| n > 1)
                && !line.has("--disable-overlap-schedule")
        },
        ..ANY
    },
    Rule {
        what: "experts placed on more GPUs than are tensor-parallel",
        why: "--ep-size times --moe-dp-size is --tp-size at most",
        source: "parallel_hook.py, older server_args.py",
        holds: |line, wanted| {
            let product = line
                .number("--ep-size")
                .unwrap_or(1)
                .saturating_mul(line.number("--moe-dp-size").unwrap_or(1));
            product > tp(line, wanted)
        },
        ..ANY
    },
    Rule {
        what: "--moe-dp-size that does not divide tensor parallel",
        why: "choose a size that divides --tp-size",
        source: "parallel_hook.py, older server_args.py",
        holds: |line, wanted| {
            line.number("--moe-dp-size")
                .is_some_and(|n| n > 0 && !tp(line, wanted).is_multiple_of(n))
        },
        ..ANY
    },
    Rule {
        what: "more tensor-parallel GPUs than experts",
        why: "choose a smaller --tp-size",
        source: "parallel_hook.py, older server_args.py",
        holds: |line, wanted| {
            wanted.model.experts.is_some_and(|experts| tp(line, wanted) > experts.count)
        },
        ..ANY
    },
    Rule {
        what: "FlashInfer's CUTLASS experts with --ep-size other than 1 and --tp-size",
        why: "give --ep-size 1, or as many as --tp-size",
        source: "parallel_hook.py, older server_args.py",
        holds: |line, wanted| {
            line.value("--moe-runner-backend") == Some("flashinfer_cutlass")
                && line.number("--ep-size").is_some_and(|n| n != 1 && n != tp(line, wanted))
        },
        ..ANY
    },
    Rule {
        what: "CUTLASS experts in FP8 with --ep-size above 1",
        why: "give --ep-size 1, or another --moe-runner-backend",
        source: "parallel_hook.py, older server_args.py",
        holds: |line, wanted| {
            line.value("--moe-runner-backend") == Some("cutlass")
                && wanted.model.weights.of(Part::Experts) == Precision::Fp8
                && line.number("--ep-size").is_some_and(|n| n > 1)
        },
        ..ANY
    },
    Rule {
        what: "--enable-two-batch-overlap without an all-to-all backend or attention data-parallel",
        why: "leave it out, or give --moe-a2a-backend",
        holds: |line, _| {
            line.has("--enable-two-batch-overlap")
                && line.value("--moe-a2a-backend").is_none_or(|word| word == "none")
                && !attention_dp(line)
        },
        ..ANY
    },
    Rule {
        what: "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE=1 without a proof of reads and writes by kernels",
        outcome: Outcome::Unsafe,
        since: V23,
        why: "these kernels wait for a peer's flag without a limit, and are wrong in silence over \
              damaged links: give --proof with a measurement that covers kernels, or leave it out",
        source: "pcie_ipc_ar.py",
        holds: |line, wanted| line.on("SGLANG_ENABLE_PCIE_IPC_ALLREDUCE") && !proved(wanted),
        ..ANY
    },
    Rule {
        engine: EngineName::Vllm,
        what: "VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC=1 without a proof of reads and writes by \
               kernels",
        outcome: Outcome::Unsafe,
        why: "these kernels wait for a peer's flag without a limit, and are wrong in silence over \
              damaged links: give --proof with a measurement that covers kernels, or leave it out",
        source: "flashinfer_pcie_ipc_all_reduce.py",
        holds: |line, wanted| line.on("VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC") && !proved(wanted),
        ..ANY
    },
    Rule {
        engine: EngineName::Vllm,
        what: "--decode-context-parallel-size where tensor parallel is not above the key and value \
               heads",
        why: "leave it out: it divides keys that would else be kept several times",
        source: "config/parallel.py, config/model.py",
        holds: |line, wanted| {
            let heads = match wanted.model.attention {
                Attention::Grouped { kv_heads, .. } => kv_heads,
                Attention::Latent { .. } => 1,
            };
            line.number("--decode-context-parallel-size").is_some_and(|n| n > 1)
                && tp(line, wanted) <= heads
        },
        ..ANY
    },
];
