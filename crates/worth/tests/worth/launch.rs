//! Launches by version, and what a version refuses.

use peerway_worth::launch::{Line, Outcome, Proof, Wanted, render};
use peerway_worth::{Layout, hardware};

use crate::workload::model;

pub(crate) fn wanted(engine: &str) -> Wanted {
    Wanted {
        engine: engine.parse().unwrap(),
        model: model("qwen3.5-122b-a10b"),
        path: "M".to_owned(),
        gpu: hardware::find("rtx-pro-6000").unwrap(),
        layout: Layout::tensor(4),
        concurrency: 32,
        draft_steps: 3,
        fused_sum: true,
        kernels: false,
        memory_fraction: 0.85,
        proof: None,
        own: Line::default(),
    }
}

fn proof(kernels: bool) -> Proof {
    let gpus = ["a", "b", "c", "d"].map(str::to_owned).to_vec();
    Proof { gpus, pairs: 12, kernels }
}

#[track_caller]
fn check(wanted: &Wanted, expected: &str) {
    let launch = render(wanted).unwrap();
    assert_eq!(launch.shell(), expected);
    assert!(
        launch.refusals.iter().all(|one| one.outcome != Outcome::Refused),
        "{:?}",
        launch.refusals
    );
    assert!(launch.environment.iter().chain(&launch.arguments).all(|piece| !piece.back.is_empty()));
}

const DRAFTS: &str = "--speculative-algorithm NEXTN --speculative-num-steps 3 \
                      --speculative-eagle-topk 1 --speculative-num-draft-tokens 4";

#[test]
fn sglang_by_version() {
    let start = "python -m sglang.launch_server --model-path M --tp-size 4 \
                 --disable-custom-all-reduce";
    check(
        &wanted("sglang@0.5.9"),
        &format!(
            "NCCL_P2P_DISABLE=1 SGLANG_ENABLE_SPEC_V2=1 {start} {DRAFTS} \
             --mamba-scheduler-strategy extra_buffer --max-running-requests 32 --cuda-graph-max-bs 32 \
             --enable-metrics"
        ),
    );
    check(
        &wanted("sglang@0.5.12.post1"),
        &format!(
            "NCCL_P2P_DISABLE=1 {start} {DRAFTS} --mamba-scheduler-strategy extra_buffer \
             --max-running-requests 32 --cuda-graph-max-bs 32 --enable-fused-moe-sum-all-reduce \
             --enable-metrics"
        ),
    );
    check(
        &wanted("sglang@0.5.23"),
        &format!(
            "NCCL_P2P_DISABLE=1 {start} {DRAFTS} --mamba-radix-cache-strategy extra_buffer \
             --max-running-requests 32 --cuda-graph-max-bs-decode 32 \
             --enable-fused-moe-sum-all-reduce --enable-metrics"
        ),
    );
}

#[test]
fn restored_only_as_far_as_proved() {
    let with = |engine: &str, kernels: bool, proved: bool| {
        let wanted = Wanted {
            draft_steps: 0,
            fused_sum: false,
            kernels,
            proof: Some(proof(proved)),
            ..wanted(engine)
        };
        let launch = render(&wanted).unwrap();
        assert!(launch.before.iter().any(|step| step.contains("these GPUs and of no others")));
        // Kernels of the engine's own stay off until a measurement covers kernels.
        let off = launch.shell().contains("--disable-custom-all-reduce");
        assert_eq!(off, !proved);
        (
            launch.environment.iter().map(|one| one.text.clone()).collect::<Vec<_>>().join(" "),
            launch.left.len(),
        )
    };
    let both = "NCCL_P2P_LEVEL=SYS SGLANG_ENABLE_PCIE_IPC_ALLREDUCE=1".to_owned();
    assert_eq!(with("sglang@0.5.23", true, true), (both, 0));
    assert_eq!(with("sglang@0.5.23", true, false), ("NCCL_P2P_LEVEL=SYS".to_owned(), 1));
    assert_eq!(with("sglang@0.5.18", true, true), ("NCCL_P2P_LEVEL=SYS".to_owned(), 1));
    assert_eq!(with("sglang@0.5.23", false, true), ("NCCL_P2P_LEVEL=SYS".to_owned(), 0));
    let vllm = "NCCL_P2P_LEVEL=SYS VLLM_ALLREDUCE_USE_FLASHINFER_PCIE_IPC=1".to_owned();
    assert_eq!(with("vllm@0.33.0", true, true), (vllm, 0));
    let copies = "NCCL_P2P_LEVEL=SYS VLLM_ALLREDUCE_USE_SYMM_MEM=0 VLLM_ALLREDUCE_USE_FLASHINFER=0";
    assert_eq!(with("vllm@0.33.0", true, false), (copies.to_owned(), 1));
}

#[test]
fn vllm_safe() {
    check(
        &Wanted { fused_sum: false, ..wanted("vllm@0.33.0") },
        "NCCL_P2P_DISABLE=1 VLLM_ALLREDUCE_USE_SYMM_MEM=0 VLLM_ALLREDUCE_USE_FLASHINFER=0 vllm serve \
         M --tensor-parallel-size 4 --disable-custom-all-reduce --speculative-config \
         '{\"method\":\"mtp\",\"num_speculative_tokens\":3}' --max-num-seqs 32",
    );
}

#[track_caller]
fn own(engine: &str, line: &str, expected: &[(&str, Outcome)]) {
    let wanted =
        Wanted { draft_steps: 0, fused_sum: false, own: Line::parse(line), ..wanted(engine) };
    let launch = render(&wanted).unwrap();
    let seen: Vec<(&str, Outcome)> =
        launch.refusals.iter().map(|one| (one.what.as_str(), one.outcome)).collect();
    assert_eq!(seen, expected);
}

#[test]
fn lines_that_a_version_refuses() {
    use Outcome::{Changed, Refused};
    own(
        "sglang@0.5.23",
        "--mamba-scheduler-strategy extra_buffer",
        &[("--mamba-scheduler-strategy", Refused)],
    );
    own(
        "sglang@0.5.18",
        "--mamba-scheduler-strategy extra_buffer",
        &[("--mamba-scheduler-strategy", Changed)],
    );
    own("sglang@0.5.12", "--mamba-scheduler-strategy extra_buffer", &[]);
    own(
        "sglang@0.5.12",
        "--mamba-radix-cache-strategy extra_buffer",
        &[("--mamba-radix-cache-strategy", Refused)],
    );
    own(
        "sglang@0.5.9",
        "--speculative-algorithm NEXTN --max-running-requests 8",
        &[("speculation with states kept as no_buffer and the prefix cache on", Refused)],
    );
    own(
        "sglang@0.5.23",
        "--speculative-algorithm NEXTN",
        &[("speculation without --max-running-requests", Changed)],
    );
    own(
        "sglang@0.5.23",
        "--tp 4 --speculative-num-steps 3 --speculative-eagle-topk 1 --speculative-num-draft-tokens 6",
        &[("--speculative-num-draft-tokens other than steps + 1 with top-k 1", Changed)],
    );
    own(
        "sglang@0.5.9",
        "--enable-fused-moe-sum-all-reduce",
        &[("--enable-fused-moe-sum-all-reduce", Refused)],
    );
    own("sglang@0.5.18", "SGLANG_ENABLE_SPEC_V2=1 python", &[("SGLANG_ENABLE_SPEC_V2", Changed)]);
    own(
        "sglang@0.5.23",
        "NCCL_P2P_DISABLE=1 python --tp 4",
        &[(
            "--enable-custom-all-reduce paths that use peer access beside NCCL_P2P_DISABLE=1",
            Changed,
        )],
    );
    let pcie = "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE=1 without a proof of reads and writes by kernels";
    own(
        "sglang@0.5.23",
        "SGLANG_ENABLE_PCIE_IPC_ALLREDUCE=1 python --tp 4",
        &[(pcie, Outcome::Unsafe)],
    );
    own(
        "sglang@0.5.12",
        "--speculative-algorithm NEXTN --speculative-num-steps 3 --speculative-eagle-topk 4 \
         --speculative-num-draft-tokens 8 --max-running-requests 8 --mamba-scheduler-strategy \
         extra_buffer",
        &[("top-k above 1, with speculation of the second form as the default", Refused)],
    );
    own(
        "sglang@0.5.12",
        "--mamba-scheduler-strategy extra_buffer_lazy",
        &[("extra_buffer_lazy", Refused)],
    );
    own(
        "sglang@0.5.23",
        "--tp 4 --ep-size 2 --moe-runner-backend flashinfer_cutlass",
        &[("FlashInfer's CUTLASS experts with --ep-size other than 1 and --tp-size", Refused)],
    );
    own(
        "sglang@0.5.23",
        "--tp 4 --ep-size 8",
        &[("experts placed on more GPUs than are tensor-parallel", Refused)],
    );
    own("sglang@0.5.23", "--tp 512", &[("more tensor-parallel GPUs than experts", Refused)]);
    own(
        "sglang@0.5.23",
        "--tp 4 --moe-dp-size 3",
        &[("--moe-dp-size that does not divide tensor parallel", Refused)],
    );
    own(
        "sglang@0.5.23",
        "--enable-two-batch-overlap",
        &[(
            "--enable-two-batch-overlap without an all-to-all backend or attention data-parallel",
            Refused,
        )],
    );
    own(
        "sglang@0.5.23",
        "--linear-attn-decode-backend flashinfer --mamba-radix-cache-strategy no_buffer",
        &[
            ("states kept as no_buffer", Changed),
            ("FlashInfer's decode of linear attention with states kept as no_buffer", Refused),
        ],
    );
    own(
        "vllm@0.33.0",
        "--tensor-parallel-size 2 --decode-context-parallel-size 2",
        &[(
            "--decode-context-parallel-size where tensor parallel is not above the key and value \
             heads",
            Refused,
        )],
    );
    own(
        "sglang@0.5.23",
        "--tp 4 --dp-size 2 --attn-dp-size 3",
        &[
            ("--dp-size above 1 with --attn-dp-size above 1", Refused),
            ("attention data-parallel that does not divide tensor parallel", Refused),
        ],
    );
}

#[test]
fn versions_that_are_not_known() {
    let error = |engine: &str| render(&wanted(engine)).unwrap_err().to_string();
    assert!(error("sglang").starts_with("which version of SGLang?"));
    assert_eq!(
        error("sglang@0.4.1"),
        "SGLang 0.4.1 is older than 0.5.9, the oldest version whose options are known"
    );
    let between = render(&wanted("sglang@0.5.11")).unwrap();
    assert_eq!(between.read_as, "0.5.10");
    assert!(between.notes.iter().any(|note| note.contains("were not read")));
}
