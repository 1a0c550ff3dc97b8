//! SGLang.

use super::{Launch, Mode, Wanted, common, mode, quoted, spelling};
use crate::engine::{EngineName, Version};
use crate::precision::Precision;
use crate::state::StateHost;

pub(super) fn render(wanted: &Wanted, version: Version) -> Launch {
    let read_as = spelling::read_as(EngineName::Sglang, version);
    let program = format!("python -m sglang.launch_server --model-path {}", quoted(&wanted.path));
    let mut launch = Launch::new(wanted.engine, read_as, mode(wanted), program);
    let layout = wanted.layout;
    launch.argument(
        format!("--tp-size {}", layout.tp),
        "every layer cut over these GPUs",
        "another size, where the model fits",
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
        Mode::Safe => safe(&mut launch, wanted),
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

fn safe(launch: &mut Launch, wanted: &Wanted) {
    if wanted.layout.together() < 2 {
        return;
    }
    launch.variable("NCCL_P2P_DISABLE=1", "NCCL goes through host memory");
    if wanted.layout.tp > 1 {
        launch.argument(
            "--disable-custom-all-reduce",
            "the engine's own sums use peer access whatever NCCL does",
            "leave it out, once peer access is proved",
        );
    }
    launch.unset.push("SGLANG_ENABLE_PCIE_IPC_ALLREDUCE".to_owned());
    launch.leave(
        "--enable-symm-mem, --enable-torch-symm-mem, --enable-mscclpp",
        "each of them uses peer access by itself",
    );
}

/// The variable that switches one-shot kernels on.
const NAME: &str = "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE";

fn restored(launch: &mut Launch, wanted: &Wanted, version: Version) {
    if wanted.layout.together() < 2 {
        return;
    }
    common::level(launch, wanted);
    if wanted.layout.tp < 2 {
        return;
    }
    let proved = wanted.proof.as_ref().is_some_and(|proof| proof.kernels);
    if !proved {
        common::unproved(launch);
        launch.unset.push("SGLANG_ENABLE_PCIE_IPC_ALLREDUCE".to_owned());
    } else if wanted.layout.tp == 2 {
        launch.argument(
            "--enable-p2p-check",
            "the engine tests peer access at start instead of believing in it",
            "leave it out",
        );
    }
    if !wanted.kernels {
        return;
    }
    let what = format!("{NAME}=1");
    if !proved {
        launch.leave(&what, common::NO_KERNELS);
    } else if spelling::of("one-shot kernels on PCIe", version).is_none() {
        let why = format!("SGLang {version} has no such kernels; 0.5.23 is the first that does");
        launch.leave(&what, why);
    } else if ![2, 4, 8].contains(&wanted.layout.tp) {
        launch.leave(&what, "the kernels are there for 2, 4 and 8 GPUs");
    } else if wanted.model.weights.base() == Precision::Float16 {
        launch.leave(&what, "the kernels take bfloat16, and the model is in float16");
    } else {
        launch
            .variable(&what, "one-shot sums over peer access in decode; run once without it first");
        launch.before.push(format!(
            "the first start without {NAME}, the second with it: a hang then has one cause"
        ));
    }
}

/// Draft steps that are rendered.
const fn drafted(wanted: &Wanted) -> u32 {
    if wanted.layout.pp > 1 { 0 } else { wanted.draft_steps }
}

fn speculation(launch: &mut Launch, wanted: &Wanted, version: Version) {
    let keeping = spelling::of("keeping states", version).unwrap_or("--mamba-radix-cache-strategy");
    if wanted.draft_steps > 0 && wanted.layout.pp > 1 {
        launch.leave(
            "--speculative-algorithm NEXTN",
            "over pipeline stages the engine refuses it unless SGLANG_ENABLE_PP_SPEC=1 is set, whose \
             effect was not seen",
        );
    }
    let steps = drafted(wanted);
    if steps == 0 {
        return;
    }
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
            "leave it out together with all --speculative- options",
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
    let asked = wanted.of_a_replica();
    let steps = drafted(wanted);
    let (why, back) = if steps > 0 {
        ("with speculation 48 if left out", "leave it out; then 48 run")
    } else {
        ("as many as are to run", "leave it out")
    };
    launch.argument(format!("--max-running-requests {asked}"), why, back);
    if let Some(graphs) = spelling::of("largest batch with a graph", version) {
        launch.argument(
            format!("{graphs} {asked}"),
            "every batch is replayed as a graph",
            "leave it out",
        );
    }
    states(launch, wanted, version, asked, steps);
}

fn states(launch: &mut Launch, wanted: &Wanted, version: Version, asked: u32, steps: u32) {
    let Some(linear) = wanted.model.linear else { return };
    let drafts = if steps > 0 { steps + 1 } else { 0 };
    let host = StateHost {
        model: &wanted.model,
        gpu: &wanted.gpu,
        layout: wanted.layout,
        memory_fraction: wanted.memory_fraction,
        version: Some(version),
    };
    let run = |format: Precision, ratio: f64| host.running(format, ratio, asked, drafts);
    let now = run(linear.state, 0.9);
    if now >= asked {
        return;
    }
    let larger = run(linear.state, 4.0);
    let smaller = run(Precision::Bfloat16, 4.0);
    launch.notes.push(format!(
        "beside their states {now} of {asked} requests will run; {larger} with \
         --mamba-full-memory-ratio 4, {smaller} with --mamba-ssm-dtype bfloat16 too (its effect \
         on answers is not known)"
    ));
    if drafts > 0 {
        launch.notes.push(
            if version >= Version(0, 5, 15) {
                "--enable-linear-replayssm-spec keeps no state for drafted tokens; whether it goes \
                 with all of the above was not tested"
            } else {
                "in this version a larger --max-running-requests reserves more for drafted tokens, \
                 and fewer requests run"
            }
            .to_owned(),
        );
    }
}
