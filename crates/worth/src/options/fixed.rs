//! Options whose gain the model does not give: reports by others, and what cannot be had at all.

use super::{Available, Basis, Interaction, OptionRow, several};
use crate::engine::{EngineName, Version};
use crate::estimate::Context;
use crate::interval::Interval;

pub(super) fn rows(context: &Context<'_>) -> Vec<OptionRow> {
    let mut rows = Vec::new();
    if context.request.model.moe().is_some() {
        rows.push(fused_sum(context));
        rows.push(kernel_table());
    }
    if several(context) {
        rows.push(host_tuning(context));
        rows.extend(not_here(context));
    }
    rows
}

fn reported(
    id: &'static str,
    title: &str,
    gain: Interval,
    note: &str,
    source: &'static str,
) -> OptionRow {
    OptionRow {
        id,
        title: title.to_owned(),
        available: Available::Yes,
        gain_percent: Some(gain),
        gain_with_p2p_percent: Some(gain),
        basis: Basis::Reported,
        interaction: Interaction::Independent,
        note: note.to_owned(),
        source,
        sums_assumed: false,
    }
}

/// SGLang has it from 0.5.10 on; it is active with more than two experts a token.
fn fused_sum(context: &Context<'_>) -> OptionRow {
    let since = Version(0, 5, 10);
    let chosen = context.request.model.moe().map_or(0, |experts| experts.chosen);
    let engine = context.request.engine;
    let (available, note) = match (engine.name, engine.version) {
        (EngineName::Vllm, _) => (Available::No, "an option of SGLang".to_owned()),
        (EngineName::Sglang, _) if chosen <= 2 => {
            (Available::No, format!("active above two experts a token; the model has {chosen}"))
        }
        (EngineName::Sglang, Some(version)) if version < since => {
            (Available::No, format!("from {since} on, and this is {version}"))
        }
        (EngineName::Sglang, version) => (
            if version.is_some() { Available::Yes } else { Available::Unknown },
            "folds the sum over experts into a kernel; in spite of its name it removes no message \
             between GPUs; Triton runner only"
                .to_owned(),
        ),
    };
    OptionRow {
        available,
        note,
        ..reported(
            "fused-moe-sum",
            "--enable-fused-moe-sum-all-reduce",
            Interval::new(0.0, 1.0, 3.0),
            "",
            "read in the engine's source; no measurement was found, a few per cent at most is a guess",
        )
    }
}

fn kernel_table() -> OptionRow {
    reported(
        "moe-kernel-table",
        "tune the engine's table of MoE kernels for this GPU",
        Interval::new(0.0, 8.0, 20.0),
        "an hour offline; only where the engine says at start that it found no table",
        "20 % on another model (vllm PR 32928); complaints about missing tables in sglang 18870, \
         10521 and vllm 44688",
    )
}

fn host_tuning(context: &Context<'_>) -> OptionRow {
    let gain = if context.request.concurrency < 16 {
        Interval::new(0.0, 3.0, 10.0)
    } else {
        Interval::new(0.0, 8.0, 20.0)
    };
    OptionRow {
        gain_with_p2p_percent: None,
        interaction: Interaction::Substitutes,
        ..reported(
            "host-path-tuning",
            "tune NCCL through host memory: NCCL_PROTO=LL, channels, buffers, NUMA pinning",
            gain,
            "no change on the host; measure with nccl-tests and CUDA graphs; nothing left to gain \
             once peer access works",
            "guess from anecdotes, one of them of a factor of two",
        )
    }
}

/// What people ask for and cannot have on these GPUs.
fn not_here(context: &Context<'_>) -> Vec<OptionRow> {
    let request = context.request;
    let no = |id, title: &str, note: String, source| OptionRow {
        id,
        title: title.to_owned(),
        available: Available::No,
        gain_percent: None,
        gain_with_p2p_percent: None,
        basis: Basis::None,
        interaction: Interaction::Unknown,
        note,
        source,
        sums_assumed: false,
    };
    let mut rows = Vec::new();
    if !request.gpu.link.is_nvlink() {
        if request.layout.tp > 2 {
            rows.push(no(
                "custom-all-reduce",
                "the engine's ordinary custom all-reduce",
                "off by itself for more than two GPUs without NVLink between all of them"
                    .to_owned(),
                "custom_all_reduce.py of both engines",
            ));
        }
        rows.push(no(
            "nvls",
            "NVLink SHARP, and FlashInfer's fused all-reduce",
            "need NVLink".to_owned(),
            "arguments of both engines",
        ));
    }
    if ![90, 100].contains(&request.gpu.capability) {
        rows.push(no(
            "torch-symm-mem",
            "all-reduce in torch's symmetric memory",
            format!(
                "has no entry for compute capability {}.{}",
                request.gpu.capability / 10,
                request.gpu.capability % 10
            ),
            "size table of the engine's torch_symm_mem.py",
        ));
    }
    rows
}
