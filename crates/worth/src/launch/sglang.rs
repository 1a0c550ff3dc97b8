//! SGLang.

use super::{Launch, Mode, Wanted, mode, spelling};
use crate::engine::{EngineName, Version};
use crate::precision::Precision;
use crate::state::{Keeping, StateSetup, running};

pub(super) fn render(wanted: &Wanted, version: Version) -> Launch {
    let read_as = spelling::read_as(EngineName::Sglang, version);
    let program = format!("python -m sglang.launch_server --model-path {}", wanted.path);
    let mut launch = Launch::new(wanted.engine, read_as, mode(wanted), program);
    let layout = wanted.layout;
    launch.argument(
        format!("--tp-size {}", layout.tp),
        "every layer cut over these GPUs",
        "--tp-size 1",
    );
    if layout.pp > 1 {
        launch.argument(format!("--pp-size {}", layout.pp), "pipeline stages", "leave it out");
    }
    if layout.expert_parallel {
        launch.argument(
            format!("--ep-size {}", layout.tp),
            "experts placed and not cut",
            "leave it out",
        );
    }
    if layout.attention_dp {
        attention_dp(&mut launch, layout.tp, version);
    }
    match launch.mode {
        Mode::Safe => safe(&mut launch, layout.tp),
        Mode::Restored => restored(&mut launch, wanted, version),
    }
    speculation(&mut launch, wanted, version);
    running_requests(&mut launch, wanted, version);
    if wanted.fused_sum {
        fused_sum(&mut launch, wanted, version);
    }
    launch.argument(
        "--enable-metrics",
        "running requests, acceptance and cache use can be read",
        "leave it out",
    );
    launch.after.push(
        "GET /server_info: the resolved arguments and effective_max_running_requests_per_dp"
            .to_owned(),
    );
    launch
}

fn attention_dp(launch: &mut Launch, tp: u32, version: Version) {
    let text = match spelling::of("attention data-parallel", version) {
        Some("--attn-dp-size") => format!("--attn-dp-size {tp}"),
        _ => format!("--enable-dp-attention --dp-size {tp}"),
    };
    launch.argument(text, "attention data-parallel over these GPUs", "leave it out");
}

fn safe(launch: &mut Launch, tp: u32) {
    if tp < 2 {
        return;
    }
    launch.variable("NCCL_P2P_DISABLE=1", "NCCL goes through host memory");
    launch.argument(
        "--disable-custom-all-reduce",
        "the engine's own sums use peer access whatever NCCL does",
        "leave it out, once peer access is proved",
    );
    launch.unset.push("SGLANG_ENABLE_PCIE_IPC_ALLREDUCE".to_owned());
    launch.leave(
        "--enable-symm-mem, --enable-torch-symm-mem, --enable-mscclpp",
        "each of them uses peer access by itself",
    );
}

fn restored(launch: &mut Launch, wanted: &Wanted, version: Version) {
    if wanted.layout.tp < 2 {
        return;
    }
    launch.variable(
        "NCCL_P2P_LEVEL=SYS",
        "NCCL uses peer access between all GPUs of the set, as measured; without it, it keeps off \
         across root ports of AMD hosts above two GPUs",
    );
    launch.unset.push("NCCL_P2P_DISABLE".to_owned());
    if wanted.layout.tp == 2 {
        launch.argument(
            "--enable-p2p-check",
            "the engine tests peer access at start instead of believing in it",
            "leave it out",
        );
    }
    if !wanted.kernels {
        return;
    }
    let proved = wanted.proof.as_ref().is_some_and(|proof| proof.kernels);
    match spelling::of("one-shot kernels on PCIe", version) {
        _ if !proved => launch.leave(
            "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE=1",
            "the measurement has no reads and writes by kernels over shared memory (mode ipc, engine \
             sm) for every pair, and these kernels wait for ever where one fails",
        ),
        None => launch.leave(
            "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE=1",
            format!("SGLang {version} has no such kernels; 0.5.23 is the first that does"),
        ),
        Some(_) if ![2, 4, 8].contains(&wanted.layout.tp) => launch.leave(
            "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE=1",
            "the kernels are there for 2, 4 and 8 GPUs",
        ),
        Some(name) => {
            launch.variable(
                &format!("{name}=1"),
                "one-shot sums over peer access in decode; run once without it first",
            );
            launch.before.push(
                "the first start without SGLANG_ENABLE_PCIE_IPC_ALLREDUCE, the second with it: a \
                 hang then has one cause"
                    .to_owned(),
            );
        }
    }
}

fn speculation(launch: &mut Launch, wanted: &Wanted, version: Version) {
    let keeping = spelling::of("keeping states", version).unwrap_or("--mamba-radix-cache-strategy");
    if wanted.draft_steps == 0 {
        return;
    }
    let steps = wanted.draft_steps;
    launch.argument(
        "--speculative-algorithm NEXTN",
        "drafts with the model's own layer",
        "leave out all --speculative- options",
    );
    launch.argument(
        format!(
            "--speculative-num-steps {steps} --speculative-eagle-topk 1 \
             --speculative-num-draft-tokens {}",
            steps + 1
        ),
        "top-k 1 forces steps + 1 drafted tokens",
        "leave out all --speculative- options",
    );
    if wanted.model.linear.is_some() {
        launch.argument(
            format!("{keeping} extra_buffer"),
            "no_buffer does not go with speculation and the prefix cache",
            &format!("{keeping} no_buffer"),
        );
        if version < Version(0, 5, 12) {
            launch.variable(
                "SGLANG_ENABLE_SPEC_V2=1",
                "speculation of the second form, which extra_buffer needs; the default from 0.5.12",
            );
        }
    }
}

fn fused_sum(launch: &mut Launch, wanted: &Wanted, version: Version) {
    let chosen = wanted.model.moe().map_or(0, |experts| experts.chosen);
    match spelling::of("sum over experts in a kernel", version) {
        None => launch.leave(
            "--enable-fused-moe-sum-all-reduce",
            format!("SGLang {version} does not know it; 0.5.10 is the first that does"),
        ),
        Some(_) if chosen <= 2 => launch.leave(
            "--enable-fused-moe-sum-all-reduce",
            format!("active above two experts a token; the model has {chosen}"),
        ),
        Some(name) => launch.argument(
            name,
            "sums experts within a kernel; in spite of its name it removes no message",
            "leave it out",
        ),
    }
}

/// What runs beside the states of a hybrid model, and graphs for it.
fn running_requests(launch: &mut Launch, wanted: &Wanted, version: Version) {
    let asked = wanted.concurrency;
    launch.argument(
        format!("--max-running-requests {asked}"),
        if wanted.draft_steps > 0 {
            "with speculation 48 if left out"
        } else {
            "as many as are to run"
        },
        "leave it out",
    );
    if let Some(graphs) = spelling::of("largest batch with a graph", version) {
        launch.argument(
            format!("{graphs} {asked}"),
            "every batch is replayed as a graph",
            "leave it out",
        );
    }
    let Some(linear) = wanted.model.linear else { return };
    let cut = f64::from(wanted.layout.tp) * f64::from(wanted.layout.pp);
    let drafts = if wanted.draft_steps > 0 { wanted.draft_steps + 1 } else { 0 };
    let weights = wanted.model.weight_bytes(drafts > 0) / cut;
    let run = |format: Precision, ratio: f64| {
        running(&StateSetup {
            free: (wanted.gpu.memory_bytes * wanted.memory_fraction - weights).max(0.0),
            state: wanted.model.state_bytes(Some(format)) / cut,
            ratio,
            most: asked,
            draft_tokens: drafts,
            keeping: if drafts > 0 { Keeping::ExtraBuffer } else { Keeping::NoBuffer },
            jointly: version >= Version(0, 5, 15),
        })
    };
    let now = run(linear.state, 0.9);
    if now < asked {
        let larger = run(linear.state, 4.0);
        let smaller = run(Precision::Bfloat16, 4.0);
        launch.notes.push(format!(
            "beside their states {now} of {asked} requests will run; {larger} with \
             --mamba-full-memory-ratio 4, {smaller} with --mamba-ssm-dtype bfloat16 too (its effect \
             on answers is not known)"
        ));
        if drafts > 0 && version >= Version(0, 5, 15) {
            launch.notes.push(
                "--enable-linear-replayssm-spec keeps no state for drafted tokens; whether it goes \
                 with all of the above was not tested"
                    .to_owned(),
            );
        }
        if drafts > 0 && version < Version(0, 5, 15) {
            launch.notes.push(
                "in this version a larger --max-running-requests reserves more for drafted tokens, \
                 and fewer requests run"
                    .to_owned(),
            );
        }
    }
}
