//! What keeps a measurement from running, and the words for it.

use std::path::PathBuf;

use peerway_gpu::{Damage, InUse, Measurement, Settings, Unmet};

use crate::common::{Fake, quick};

/// Measures and gives the kinds of unmet conditions with their messages.
fn check(script: &str, change: impl FnOnce(&mut Settings)) -> (Measurement, Vec<Unmet>, String) {
    let result = Fake::new(script).measure(|settings| {
        quick(settings);
        change(settings);
    });
    let kinds = result.preconditions.iter().map(|unmet| unmet.kind).collect();
    let messages: Vec<&str> =
        result.preconditions.iter().map(|unmet| unmet.message.as_str()).collect();
    let messages = messages.join("\n");
    (result, kinds, messages)
}

#[test]
fn a_missing_library_is_named() {
    let (result, kinds, text) =
        check("gpus=2", |settings| settings.cuda = Some(PathBuf::from("/nowhere/libcuda.so.1")));
    assert_eq!(kinds, [Unmet::NoLibrary]);
    assert!(text.contains("/nowhere/libcuda.so.1"), "{text}");
    assert!(result.pairs.is_empty() && result.children.is_empty());
}

#[test]
fn a_library_that_is_something_else_is_named() {
    let (_, kinds, text) =
        check("gpus=2", |settings| settings.cuda = Some(PathBuf::from("libc.so.6")));
    assert_eq!(kinds, [Unmet::NoLibrary]);
    assert!(text.contains("no symbol cuInit"), "{text}");
}

#[test]
fn codes_of_the_start_are_explained() {
    for (code, kind, words) in [
        (100, Unmet::NoDevice, "CUDA_ERROR_NO_DEVICE"),
        (802, Unmet::NoDriver, "fabric manager"),
        (803, Unmet::NoDriver, "different versions"),
        (804, Unmet::NoDriver, "compatibility library"),
        (999, Unmet::NoDriver, "/dev/nvidia-uvm"),
    ] {
        let (_, kinds, text) = check(&format!("gpus=2 error=cuInit:{code}"), |_| {});
        assert_eq!(kinds, [kind], "{text}");
        assert!(text.contains(words), "{text}");
    }
}

#[test]
fn gpus_that_take_no_work_are_left_out() {
    let (_, kinds, text) = check("gpus=2 compute-mode=2", |_| {});
    assert_eq!(kinds, [Unmet::ComputeProhibited, Unmet::ComputeProhibited]);
    assert!(text.contains("prohibited"), "{text}");
    let (_, kinds, text) = check("gpus=2 error=cuDevicePrimaryCtxRetain:46", |_| {});
    assert_eq!(kinds, [Unmet::ExclusiveBusy, Unmet::ExclusiveBusy]);
    assert!(text.contains("one process"), "{text}");
    let (result, kinds, _) = check("gpus=3 mig=1", |_| {});
    assert_eq!(kinds, [Unmet::Mig]);
    assert_eq!(result.pairs.len(), 2 * 2, "the other two GPUs are measured");
}

#[test]
fn too_little_memory_is_told() {
    let (_, kinds, text) = check("gpus=2 memory=8m", |_| {});
    assert_eq!(kinds, [Unmet::NoMemory, Unmet::NoMemory]);
    assert!(text.contains("8388608 bytes free"), "{text}");
}

#[test]
fn hidden_and_absent_gpus_are_told() {
    let absent = "0000:99:00.0".parse().unwrap();
    let (_, kinds, text) = check("gpus=2", |settings| {
        settings.gpus = vec!["0000:21:00.0".parse().unwrap(), absent];
        settings.launch.unset.clear();
        let visible = ("CUDA_VISIBLE_DEVICES".to_owned(), "0".to_owned());
        settings.launch.environment.push(visible);
    });
    assert_eq!(kinds, [Unmet::VisibleDevices, Unmet::NotVisible]);
    assert!(text.contains("0000:99:00.0") && text.contains("CUDA_VISIBLE_DEVICES=0"), "{text}");
}

#[test]
fn a_gpu_in_use_is_only_measured_if_told() {
    let used = InUse { gpu: "0000:41:00.0".parse().unwrap(), by: "python3 (4711)".to_owned() };
    let (result, kinds, text) = check("gpus=3", |settings| settings.in_use = vec![used.clone()]);
    assert_eq!(kinds, [Unmet::InUse]);
    assert!(text.contains("python3 (4711)"), "{text}");
    assert!(result.pairs.iter().all(|row| row.from != used.gpu && row.to != used.gpu));
    assert_eq!(result.pairs.len(), 2 * 2);
    let (result, kinds, _) = check("gpus=3", |settings| {
        settings.in_use = vec![used.clone()];
        settings.allow_in_use = true;
    });
    assert!(kinds.is_empty());
    assert_eq!(result.pairs.len(), 6 * 2);
}

#[test]
fn gpus_that_the_driver_hides_are_told() {
    let there = |text: &str| text.parse().unwrap();
    let (result, kinds, text) = check("gpus=2", |settings| {
        settings.expected =
            vec![there("0000:21:00.0"), there("0000:41:00.0"), there("0000:61:00.0")];
    });
    assert_eq!(kinds, [Unmet::SomeGpus]);
    assert!(text.contains("0000:61:00.0") && !text.contains("0000:41:00.0"), "{text}");
    assert_eq!(result.pairs.len(), 2 * 2);
}

#[test]
fn one_gpu_makes_no_pair() {
    let (result, kinds, _) = check("gpus=1", |_| {});
    assert_eq!(kinds, [Unmet::TooFewGpus]);
    assert_eq!(result.gpus.len(), 1);
}

#[test]
fn a_check_that_finds_nothing_is_not_believed() {
    let (result, kinds, text) = check("gpus=2 blind", |_| {});
    assert_eq!(kinds, [Unmet::CheckBroken, Unmet::CheckBroken]);
    assert!(text.contains("planted"), "{text}");
    assert!(result.pairs.is_empty());
}

#[test]
fn without_nccl_only_the_all_reduce_is_left_out() {
    let (result, kinds, text) = check("gpus=2", |settings| {
        settings.nccl = Some(PathBuf::from("/nowhere/libnccl.so.2"));
        settings.all_reduce_sizes = vec![1024];
    });
    assert_eq!(kinds, [Unmet::NoNccl]);
    assert!(text.contains("/nowhere/libnccl.so.2"), "{text}");
    assert!(result.all_reduce.is_empty());
    assert_eq!(result.pairs.len(), 2 * 2);
}

#[test]
fn gpus_of_which_nothing_is_known_are_not_free() {
    let (result, kinds, text) = check("gpus=2", |settings| {
        settings.in_use_unknown = Some("/proc/PID/fd: denied".to_owned());
    });
    assert_eq!(kinds, [Unmet::InUse]);
    assert!(text.contains("/proc/PID/fd: denied"), "{text}");
    assert!(result.gpus.is_empty() && result.pairs.is_empty(), "nothing was opened");
    let (result, kinds, _) = check("gpus=2", |settings| {
        settings.in_use_unknown = Some("/proc/PID/fd: denied".to_owned());
        settings.allow_in_use = true;
    });
    assert!(kinds.is_empty());
    assert_eq!(result.pairs.len(), 2 * 2);
}

#[test]
fn memory_that_is_taken_speaks_of_a_user() {
    let (result, kinds, text) = check("gpus=2 memory=8g taken=3g", |_| {});
    assert_eq!(kinds, [Unmet::InUse, Unmet::InUse]);
    assert!(text.contains("of its memory taken"), "{text}");
    assert!(result.pairs.is_empty());
    let (_, kinds, _) = check("gpus=2 memory=8g taken=1g", |_| {});
    assert!(kinds.is_empty());
}

/// Data that goes astray is looked for in the memory of GPUs of the test, and of no other.
#[test]
fn only_gpus_of_the_test_are_witnesses() {
    let misrouted = |third_in_use: bool| {
        let (result, _, _) = check("gpus=3 fault=misroute from=0 to=1", |settings| {
            if third_in_use {
                settings.in_use =
                    vec![InUse { gpu: "0000:61:00.0".parse().unwrap(), by: "python3".to_owned() }];
            }
        });
        let from = "0000:21:00.0".parse().unwrap();
        let mut rows = result.pairs.iter().filter(|row| row.from == from && row.damage.is_some());
        rows.next().and_then(|row| row.damage)
    };
    assert_eq!(misrouted(false), Some(Damage::Misrouted));
    assert!(misrouted(true).is_some_and(|damage| damage != Damage::Misrouted));
}
