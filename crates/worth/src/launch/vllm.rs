//! vLLM.

use super::{Launch, Mode, Wanted, common, mode, quoted, spelling};
use crate::engine::{EngineName, Version};

const KERNELS: &str = "VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC";

pub(super) fn render(wanted: &Wanted, version: Version) -> Launch {
    let read_as = spelling::read_as(EngineName::Vllm, version);
    let program = format!("vllm serve {}", quoted(&wanted.path));
    let mut launch = Launch::new(wanted.engine, read_as, mode(wanted), program);
    let layout = wanted.layout;
    launch.argument(
        format!("--tensor-parallel-size {}", layout.tp),
        "every layer cut over these GPUs",
        "another size, where the model fits",
    );
    if layout.pp > 1 {
        launch.argument(
            format!("--pipeline-parallel-size {}", layout.pp),
            "pipeline stages; the model's class has to support them",
            "leave it out",
        );
    }
    if layout.expert_parallel {
        launch.argument("--enable-expert-parallel", "experts placed and not cut", "leave it out");
    }
    if layout.attention_dp {
        launch.leave("attention data-parallel", "vLLM has it only as whole data-parallel ranks");
    }
    if layout.together() > 1 {
        match launch.mode {
            Mode::Safe => safe(&mut launch, wanted),
            Mode::Restored => restored(&mut launch, wanted),
        }
    }
    if wanted.draft_steps > 0 {
        launch.argument(
            format!(
                "--speculative-config '{{\"method\":\"mtp\",\"num_speculative_tokens\":{}}}'",
                wanted.draft_steps
            ),
            "drafts with the model's own layer",
            "leave it out",
        );
        launch.notes.push(
            "\"use_local_argmax_reduction\":true in --speculative-config spares the gather of draft \
             logits, where drafts are greedy"
                .to_owned(),
        );
    }
    launch.argument(
        format!("--max-num-seqs {}", wanted.of_a_replica()),
        "as many as are to run",
        "leave it out",
    );
    if wanted.fused_sum {
        launch.leave("--enable-fused-moe-sum-all-reduce", "an option of SGLang");
    }
    launch.after.push(
        "the line \"Using [...] all-reduce backends\" of the log, and vllm:num_requests_running"
            .to_owned(),
    );
    launch
}

fn safe(launch: &mut Launch, wanted: &Wanted) {
    launch.variable("NCCL_P2P_DISABLE=1", "NCCL goes through host memory");
    other_ways(launch);
    if wanted.layout.tp > 1 {
        launch.argument(
            "--disable-custom-all-reduce",
            "the engine's own sums use peer access whatever NCCL does",
            "leave it out, once peer access is proved",
        );
    }
    launch.unset.extend([KERNELS.to_owned(), "VLLM_USE_NCCL_SYMM_MEM".to_owned()]);
}

/// Ways to use peer access that NCCL's variables do not cover.
fn other_ways(launch: &mut Launch) {
    launch.variable("VLLM_ALLREDUCE_USE_SYMM_MEM=0", "symmetric memory uses peer access by itself");
    launch.variable("VLLM_ALLREDUCE_USE_FLASHINFER=0", "so does FlashInfer's all-reduce");
}

fn restored(launch: &mut Launch, wanted: &Wanted) {
    common::level(launch, wanted);
    if wanted.layout.tp < 2 {
        return;
    }
    let proved = wanted.proof.as_ref().is_some_and(|proof| proof.kernels);
    if !proved {
        other_ways(launch);
        common::unproved(launch);
        launch.unset.extend([KERNELS.to_owned(), "VLLM_USE_NCCL_SYMM_MEM".to_owned()]);
    } else if wanted.layout.tp == 2 {
        launch.variable(
            "VLLM_SKIP_P2P_CHECK=0",
            "the engine tests peer access at start instead of believing the driver",
        );
    }
    if !wanted.kernels {
        return;
    }
    let what = format!("{KERNELS}=1");
    if !proved {
        launch.leave(&what, common::NO_KERNELS);
    } else if ![2, 4, 8].contains(&wanted.layout.tp) {
        launch.leave(&what, "the kernels are there for 2, 4 and 8 GPUs");
    } else {
        launch.variable(
            &what,
            "one-shot sums over peer access; needs a tuned policy, and may be behind NCCL without",
        );
        launch.before.push(format!(
            "the first start without {KERNELS}, the second with it: a hang then has one cause"
        ));
    }
}
