//! Figures of honest GPUs, and of a clock that lies; the probe.

use std::time::Duration;

use peerway_gpu::{Arm, LineRate, Measurement, Mode, ProbeQuestion, Settings, Verdict, probe};
use peerway_gpu_fake::Script;

use crate::common::{Fake, quick};

fn with_speed(settings: &mut Settings) {
    quick(settings);
    settings.speed = true;
    settings.speed_bytes = 1 << 20;
    settings.together = true;
    settings.all_reduce_sizes = vec![1024, 16_384];
    settings.all_reduce_iterations = 3;
}

/// A PCIe 5.0 x16 link.
fn line_rates(script: &Script) -> Vec<LineRate> {
    let address = |gpu| script.address(gpu).parse().unwrap();
    let pair =
        |from, to| LineRate { from: address(from), to: address(to), bytes_per_second: 63.0e9 };
    vec![pair(0, 1), pair(1, 0)]
}

#[test]
fn honest_gpus_give_figures_of_their_link() {
    let fake = Fake::new("gpus=2");
    let script = Script::parse("gpus=2").unwrap();
    let result = fake.measure(|settings| {
        with_speed(settings);
        settings.line_rates = line_rates(&script);
    });
    assert!(result.preconditions.is_empty() && result.children.is_empty());
    assert_eq!(result.pairs.len(), 4);
    for row in &result.pairs {
        assert_eq!(row.verdict, Verdict::Intact, "{row:#?}");
        assert!(!row.above_line_rate, "{row:#?}");
        for rate in [row.bandwidth_bytes_per_second, row.read_bytes_per_second] {
            assert!(rate.is_some_and(|rate| (30.0e9..51.0e9).contains(&rate)), "{row:#?}");
        }
        let both = row.both_ways_bytes_per_second;
        assert!(both.is_some_and(|rate| (60.0e9..102.0e9).contains(&rate)), "{row:#?}");
        let latency = row.latency_seconds;
        assert!(latency.is_some_and(|time| (0.1e-6..10.0e-6).contains(&time)), "{row:#?}");
    }
    assert!(result.pairs.iter().any(|row| row.load_seconds.is_some()));
    assert_eq!(result.host.len(), 2);
    assert!(result.together.iter().all(|many| many.bandwidth_bytes_per_second.is_some()));
    for (arm, via) in [(Arm::P2p, "P2P/CUMEM"), (Arm::Host, "SHM/direct")] {
        let rows: Vec<_> = result.all_reduce.iter().filter(|row| row.arm == arm).collect();
        assert_eq!(rows.len(), 2);
        for row in rows {
            assert_eq!(row.verdict, Verdict::Intact);
            assert_eq!(row.transports, [via]);
            assert_eq!(row.nccl_version, Some(23_007));
            // For two ranks the link carries as much as the algorithm says.
            assert_eq!(row.bus_bytes_per_second, row.algorithm_bytes_per_second);
        }
    }
}

#[test]
fn a_process_for_each_gpu_sums_up_too() {
    let result = Fake::new("gpus=3").measure(|settings| {
        quick(settings);
        settings.all_reduce_sizes = vec![1024, 65_536];
        settings.all_reduce_iterations = 2;
        settings.all_reduce_apart = true;
    });
    assert!(result.preconditions.is_empty() && result.children.is_empty(), "{result:#?}");
    for (arm, via) in [(Arm::P2p, "P2P/IPC"), (Arm::Host, "SHM/direct")] {
        let rows: Vec<_> =
            result.all_reduce.iter().filter(|row| (row.arm, row.processes) == (arm, 3)).collect();
        assert_eq!(rows.len(), 2, "{:#?}", result.all_reduce);
        for row in rows {
            assert_eq!(row.verdict, Verdict::Intact, "{row:#?}");
            assert_eq!(row.transports, [via]);
            assert_eq!(row.nccl_version, Some(23_007));
            assert!(row.seconds.is_some_and(|seconds| seconds > 0.0));
        }
    }
}

#[test]
fn one_gpu_can_at_least_reach_itself() {
    let result = Fake::new("gpus=1").measure(|settings| {
        with_speed(settings);
        settings.modes = vec![Mode::Peer, Mode::Vmm, Mode::Ipc];
        settings.sample = Some(true);
        settings.loopback = true;
    });
    assert_eq!(result.loopback.len(), 6);
    for row in &result.loopback {
        assert_eq!(row.verdict, Verdict::Intact, "{row:#?}");
        assert!(row.operations.iter().all(|part| part.sampled_bytes > 0), "{row:#?}");
        let rate = row.bandwidth_bytes_per_second;
        assert_eq!(rate.is_some(), row.mode == Mode::Peer, "{row:#?}");
    }
    assert!(result.pairs.is_empty());
    assert_eq!(result.all_reduce.len(), 4, "a sum over one rank is checked too");
}

#[test]
fn the_document_fits_its_schema() {
    let schema = serde_json::to_value(schemars::schema_for!(Measurement)).unwrap();
    let validator = jsonschema::validator_for(&schema).unwrap();
    for script in ["gpus=2", "gpus=2 fault=alias:2m", "gpus=1 error=cuInit:803"] {
        let result = Fake::new(script).measure(with_speed);
        let document = serde_json::to_value(&result).unwrap();
        let errors: Vec<String> =
            validator.iter_errors(&document).map(|error| error.to_string()).collect();
        assert!(errors.is_empty(), "{script}: {errors:?}");
        let back: Measurement = serde_json::from_value(document).unwrap();
        assert_eq!(back, result);
    }
}

#[test]
fn rates_above_the_line_rate_are_told() {
    let text = "gpus=2 fault=absurd from=0 to=1";
    let script = Script::parse(text).unwrap();
    let result = Fake::new(text).measure(|settings| {
        with_speed(settings);
        settings.line_rates = line_rates(&script);
    });
    let first = script.address(0).parse().unwrap();
    for row in &result.pairs {
        assert_eq!(row.verdict, Verdict::Intact, "the data itself is right");
        // Both directions together count for the other direction too.
        assert!(row.above_line_rate || row.from != first, "{row:#?}");
    }
}

#[test]
fn a_probe_answers_in_one_line() {
    let question = |bytes| ProbeQuestion {
        from: "0000:21:00.0".parse().unwrap(),
        to: "0000:41:00.0".parse().unwrap(),
        bytes,
        deadline: Duration::from_secs(30),
    };
    let ask = |script: &str| {
        let fake = Fake::new(script);
        probe(question(65_536), &fake.settings, &mut |_| {})
    };
    let right = ask("gpus=3");
    assert_eq!((right.protocol, right.verdict), (1, Verdict::Intact), "{right:?}");
    assert!(right.bytes > 65_536 && right.first_bad_offset.is_none());
    let line = serde_json::to_string(&ask("gpus=2 fault=ones from=0")).unwrap();
    for part in [
        r#""protocol":1"#,
        r#""from":"0000:21:00.0""#,
        r#""verdict":"damaged""#,
        r#""damage":"ones""#,
        r#""first_bad_offset":16"#,
    ] {
        assert!(line.contains(part), "{line}");
    }
    let absent = ask("gpus=1");
    assert_eq!(absent.verdict, Verdict::NotRun);
    assert!(absent.detail.unwrap_or_default().contains("0000:41:00.0"));
}
