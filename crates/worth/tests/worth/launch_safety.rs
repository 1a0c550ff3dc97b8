//! No launch uses peer access that was not proved, whatever the layout.

use peerway_worth::launch::{Outcome, Proof, Wanted, render};
use peerway_worth::{Layout, hardware};
use serde_json::{Value, json};

use crate::launch::wanted;
use crate::workload::model;

fn laid_out(tp: u32, pp: u32, replicas: u32) -> Layout {
    Layout { pp, replicas, ..Layout::tensor(tp) }
}

/// In the safe mode: whether NCCL keeps off peers, and whether the engine's own sums do.
#[track_caller]
fn safe(engine: &str, layout: Layout, nccl: bool, sums: bool) {
    let wanted = Wanted { layout, draft_steps: 0, fused_sum: false, ..wanted(engine) };
    let line = render(&wanted).unwrap().shell();
    assert_eq!(line.contains("NCCL_P2P_DISABLE=1"), nccl, "{line}");
    assert_eq!(line.contains("--disable-custom-all-reduce"), sums, "{line}");
}

#[test]
fn every_layout_with_messages_is_safe() {
    for engine in ["sglang@0.5.9", "sglang@0.5.23", "vllm@0.33.0"] {
        safe(engine, laid_out(4, 1, 1), true, true);
        safe(engine, laid_out(1, 4, 1), true, false);
        safe(engine, laid_out(2, 2, 1), true, true);
        // Replicas say nothing to each other.
        safe(engine, laid_out(1, 1, 4), false, false);
    }
}

/// A measurement of so many GPUs in which all is right, with one thing changed.
fn measurement(gpus: usize, change: &str) -> String {
    let names: Vec<String> = (0..gpus).map(|at| format!("gpu{at}")).collect();
    let operation = |name: &str| json!({"operation": name, "verdict": "intact"});
    let mut pairs = Vec::new();
    for from in &names {
        for to in names.iter().filter(|to| *to != from) {
            for (mode, engine) in [("peer", "copy"), ("ipc", "sm")] {
                pairs.push(json!({"from": from, "to": to, "engine": engine, "mode": mode,
                    "verdict": "intact", "operations": [operation("write"), operation("read")]}));
            }
        }
    }
    let mut together = vec![
        json!({"pattern": "all_pairs", "engine": "copy", "verdict": "intact"}),
        json!({"pattern": "all_pairs", "engine": "sm", "verdict": "intact"}),
    ];
    let mut sums = vec![json!({"gpus": names, "arm": "p2p", "verdict": "intact",
        "transports": ["P2P/CUMEM"]})];
    let mut checks: Vec<Value> =
        names.iter().map(|name| json!({"gpu": name, "failed": []})).collect();
    let mut depth = "standard";
    let mut rates = vec![json!({"gpu": "gpu0", "damage": null})];
    let mut evidence = vec![json!({"work": "transfers at once", "evidence": {}})];
    match change {
        "damaged" => pairs[1]["verdict"] = json!("damaged"),
        "an operation damaged" => pairs[1]["operations"][1]["verdict"] = json!("damaged"),
        "copies only" => pairs.retain(|pair| pair["engine"] == "copy"),
        "too fast" => pairs[0]["above_line_rate"] = json!(true),
        "a fault" => pairs[2]["evidence"] = json!({"faults": [{"requester": "gpu0"}]}),
        "repaired errors" => {
            pairs[2]["evidence"] = json!({"bus_errors": [{"severity": "correctable"}]});
        }
        "no reads" => {
            for pair in &mut pairs {
                pair["operations"] = json!([operation("write")]);
            }
        }
        "a pair missing" => pairs.truncate(2 * (gpus * (gpus - 1) - 1)),
        "together damaged" => together[0]["verdict"] = json!("damaged"),
        "together hung" => together[1]["verdict"] = json!("hung"),
        "no kernels together" => together.truncate(1),
        "no sums" => sums.clear(),
        "sums of an unknown way" => sums[0]["transports"] = json!([]),
        "sums by two ways" => sums[0]["transports"] = json!(["P2P/IPC", "SHM/direct/direct"]),
        "sums through host memory" => sums[0]["transports"] = json!(["SHM/direct/direct"]),
        "narrow sums" => sums[0]["gpus"] = json!(["gpu0", "gpu1"]),
        "host damage" => rates[0]["damage"] = json!({"kind": "zeros"}),
        "a late Xid" => evidence[0]["evidence"] = json!({"xids": [{"number": 31}]}),
        "lanes lost" => {
            evidence[0]["evidence"] = json!({"links": [{"lanes_before": 16, "lanes_least": 8}]});
        }
        "a log that lost lines" => evidence[0]["evidence"] = json!({"lost": 3}),
        "a log that nobody read" => evidence[0]["evidence"] = json!({"gaps": ["no log"]}),
        "a quick test" => depth = "quick",
        "no check of one" => checks.truncate(1),
        "check failed" => checks[0]["failed"] = json!(["planted zeros not found"]),
        _ => assert_eq!(change, "", "an unknown change"),
    }
    json!({"depth": depth, "pairs": pairs, "together": together, "all_reduce": sums, "self_checks": checks,
        "host_rates": rates, "evidence": evidence})
    .to_string()
}

#[track_caller]
fn proves(gpus: usize, layout: Layout, change: &str, expected: &str) {
    let seen = match Proof::from_test(&measurement(gpus, change), &layout) {
        Ok(proof) => {
            assert_eq!(proof.gpus.len(), gpus);
            format!("{} pairs, kernels {}", proof.pairs, proof.kernels)
        }
        Err(error) => error.to_string(),
    };
    assert!(seen.starts_with(expected), "{change}: {seen}");
}

#[test]
fn measurements_that_prove() {
    let two = laid_out(2, 1, 1);
    proves(2, two, "", "2 pairs, kernels true");
    proves(2, two, "copies only", "2 pairs, kernels false");
    proves(2, two, "no reads", "2 pairs, kernels false");
    proves(2, two, "no kernels together", "2 pairs, kernels false");
    proves(2, two, "damaged", "gpu0 to gpu1 (ipc, sm) was damaged");
    proves(2, two, "an operation damaged", "gpu0 to gpu1 (ipc, sm, read) was damaged");
    proves(2, two, "together damaged", "several transfers at once (all_pairs, copy) were damaged");
    proves(2, two, "together hung", "several transfers at once (all_pairs, sm) were hung");
    proves(2, two, "a pair missing", "it covers 1 ordered pairs of 2 GPUs");
    proves(2, two, "no sums", "all-reduce of 2 GPUs over peer access was not measured right");
    proves(2, two, "sums through host memory", "all-reduce of 2 GPUs over peer access");
    proves(2, two, "sums of an unknown way", "all-reduce of 2 GPUs over peer access");
    proves(2, two, "sums by two ways", "all-reduce of 2 GPUs over peer access");
    proves(2, two, "too fast", "gpu0 to gpu1 (peer, copy) was above the line rate");
    proves(2, two, "a fault", "requests were refused meanwhile (gpu1 to gpu0)");
    proves(2, two, "repaired errors", "2 pairs, kernels true");
    proves(2, two, "host damage", "data was wrong on the way between the host and gpu0");
    proves(2, two, "a late Xid", "the driver reported errors meanwhile (transfers at once)");
    proves(2, two, "lanes lost", "a link lost lanes meanwhile (transfers at once)");
    for change in ["a log that lost lines", "a log that nobody read"] {
        proves(2, two, change, "what the host recorded could not be seen whole meanwhile");
    }
    proves(2, two, "a quick test", "the test's depth is \"quick\"");
    proves(2, two, "no check of one", "the check itself failed on gpu1, or was not tried");
    proves(2, two, "check failed", "the check itself failed on gpu0");
}

#[test]
fn a_proof_covers_the_whole_layout() {
    proves(4, laid_out(4, 1, 1), "narrow sums", "all-reduce of 4 GPUs");
    proves(4, laid_out(2, 2, 1), "narrow sums", "12 pairs, kernels true");
    // Stages hand on by peer access, without any sum.
    proves(4, laid_out(1, 4, 1), "no sums", "12 pairs, kernels true");
    for layout in [laid_out(2, 2, 1), laid_out(1, 4, 1), laid_out(2, 1, 2), laid_out(4, 1, 1)] {
        let few = "it covers 2 ordered pairs of 2 GPUs; the 4 GPUs of the layout have 12";
        proves(2, layout, "", few);
    }
}

#[track_caller]
fn refused(change: impl Fn(&mut Wanted), expected: &str) {
    let mut wanted = wanted("sglang@0.5.23");
    change(&mut wanted);
    let seen = render(&wanted).unwrap_err().to_string();
    assert!(seen.contains(expected), "{seen}");
}

#[test]
fn numbers_that_cannot_be() {
    refused(|one| one.concurrency = 0, "the concurrency is 0; expected 1 to 65536");
    refused(|one| one.draft_steps = 200, "the number of draft steps is 200");
    refused(|one| one.memory_fraction = f64::NAN, "the share of memory is NaN");
}

#[track_caller]
fn line(change: impl Fn(&mut Wanted), has: &[&str], lacks: &[&str]) {
    let mut wanted = wanted("sglang@0.5.23");
    change(&mut wanted);
    let launch = render(&wanted).unwrap();
    let shell = launch.shell();
    for word in has {
        assert!(
            shell.contains(word) || launch.notes.iter().any(|note| note.contains(word)),
            "{word}: {shell} {:?}",
            launch.notes
        );
    }
    for word in lacks {
        assert!(!shell.contains(word), "{word}: {shell}");
    }
    let refused = launch.refusals.iter().any(|one| one.outcome == Outcome::Refused);
    assert!(!refused, "{:?}", launch.refusals);
    for piece in &launch.environment {
        assert_eq!(piece.back, "leave it out of the line");
    }
}

#[test]
fn lines_as_a_shell_and_the_engine_take_them() {
    line(|one| one.path = "/models/a b; id".to_owned(), &["'/models/a b; id'"], &[]);
    line(|one| one.path = "it's".to_owned(), &["'it'\\''s'"], &[]);
    line(|one| one.path = "Qwen/Qwen3.5-122B".to_owned(), &[" Qwen/Qwen3.5-122B "], &["'"]);
    // Over stages the engine refuses what the line would else ask for.
    line(|one| one.layout = laid_out(2, 2, 1), &["--pp-size 2"], &["--speculative"]);
    let replicas = |one: &mut Wanted| {
        one.layout = laid_out(4, 1, 2);
        one.concurrency = 9;
    };
    line(replicas, &["--max-running-requests 5", "5 of the 9 requests for each"], &[]);
    line(|one| one.layout = laid_out(2, 1, 1), &["this will not start"], &[]);
}

#[test]
fn kernels_take_the_format_of_the_model() {
    let mut wanted = wanted("sglang@0.5.23");
    let mut config: Value =
        serde_json::from_str(peerway_worth::known::text("qwen3-30b-a3b").unwrap()).unwrap();
    config["torch_dtype"] = json!("float16");
    wanted.model = peerway_worth::ModelConfig::parse(&config.to_string()).unwrap();
    wanted.draft_steps = 0;
    wanted.kernels = true;
    wanted.proof = Some(Proof::from_test(&measurement(4, ""), &wanted.layout).unwrap());
    let launch = render(&wanted).unwrap();
    assert!(!launch.shell().contains("SGLANG_ENABLE_PCIE_IPC_ALLREDUCE"));
    assert!(launch.left.iter().any(|left| left.why.contains("float16")));
    wanted.model = model("qwen3-30b-a3b");
    assert!(render(&wanted).unwrap().shell().contains("SGLANG_ENABLE_PCIE_IPC_ALLREDUCE=1"));
}

#[test]
fn links_with_a_switch_are_no_proof() {
    let gpu = hardware::find("h200").unwrap();
    let wanted = Wanted {
        gpu,
        draft_steps: 0,
        proof: Some(Proof::from_test(&measurement(4, "copies only"), &laid_out(4, 1, 1)).unwrap()),
        ..wanted("sglang@0.5.23")
    };
    assert!(render(&wanted).unwrap().shell().contains("--disable-custom-all-reduce"));
}
