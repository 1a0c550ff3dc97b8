//! Measurements in the view of a container that has a library of its own.

use peerway_gpu::{Measurement, Mode, Settings, Unmet, Verdict, View};

use crate::common::{Fake, quick};
use crate::container::{Container, field, is_root};

const PROGRAM: &str = env!("CARGO_BIN_EXE_peerway-gpu-measure");

/// When a process started.
fn start(pid: u32) -> u64 {
    #[expect(clippy::disallowed_methods, reason = "the test looks at its own host")]
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat.rsplit_once(')').unwrap().1.split_whitespace().nth(19).unwrap().parse().unwrap()
}

fn view(pid: u32, start: u64) -> Option<View> {
    Some(View { name: "a test".to_owned(), pid, start, arguments: vec!["enter".to_owned()] })
}

/// Processes of a container, by its own numbers.
fn processes(container: &Container) -> Vec<u32> {
    #[expect(clippy::disallowed_methods, reason = "the test looks into its container")]
    let entries = std::fs::read_dir(format!("/proc/{}/root/proc", container.first)).unwrap();
    let mut all: Vec<u32> =
        entries.filter_map(|entry| entry.unwrap().file_name().to_str()?.parse().ok()).collect();
    all.sort_unstable();
    all
}

/// Measures in a container, with the libraries that the loader finds in there.
fn check(container: &Container, change: impl FnOnce(&mut Settings)) -> Measurement {
    let fake = Fake::new("gpus=1");
    fake.measure(|settings| {
        quick(settings);
        settings.launch.environment.clear();
        settings.cuda = None;
        settings.nccl = None;
        settings.view = view(container.first, start(container.first));
        change(settings);
    })
}

#[test]
fn a_container_is_measured_with_its_own_library() {
    let container = Container::start(PROGRAM, Some("gpus=2 witness=/run/witness"), false);
    let result = check(&container, |settings| {
        settings.modes = vec![Mode::Peer, Mode::Ipc];
        settings.all_reduce_sizes = vec![1024];
    });
    assert!(result.preconditions.is_empty() && result.notes.is_empty(), "{result:#?}");
    assert_eq!(result.pairs.len(), 2 * 4);
    assert!(result.pairs.iter().all(|row| row.verdict == Verdict::Intact), "{result:#?}");
    assert!(result.all_reduce.iter().all(|row| row.verdict == Verdict::Intact), "{result:#?}");
    assert!(!result.all_reduce.is_empty());
    // What ran in there had no right beyond those of the container's user, and none of ours.
    let witness = container.read("/run/witness");
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapAmb:"] {
        assert_eq!(field(&witness, set), "0000000000000000", "{set}");
    }
    if is_root() {
        assert_eq!(field(&witness, "CapBnd:"), "0000000000000000");
    }
    assert_eq!((field(&witness, "NoNewPrivs:"), field(&witness, "Seccomp:")), ("1", "2"));
    let inner: u32 = field(&witness, "Pid:").parse().unwrap();
    assert!(inner < 1000, "numbers of its own process space, not {inner}");
    assert_eq!(field(&witness, "LD_LIBRARY_PATH="), "/opt/nothing");
    assert!(!witness.contains("\nHOME=") && !witness.contains("\nPATH="), "{witness}");
}

#[test]
fn users_of_its_own_are_the_containers() {
    let script = "gpus=2 fault=drop from=0 to=1 witness=/run/witness";
    let mut container = Container::start(PROGRAM, Some(script), true);
    let group = if is_root() { container.as_lxc().replace("lxc:", "/lxc/") } else { String::new() };
    let result = check(&container, |_| {});
    assert!(result.notes.is_empty(), "{result:#?}");
    let damaged = result.pairs.iter().filter(|row| row.verdict == Verdict::Damaged).count();
    assert_eq!(damaged, 2, "{result:#?}");
    let witness = container.read("/run/witness");
    assert_eq!(field(&witness, "CapEff:"), "0000000000000000");
    assert!(witness.contains(&group), "in its control group {group}: {witness}");
    assert_eq!(field(&witness, "Uid:"), "0\t0\t0\t0", "the container's root");
}

#[test]
fn a_hang_in_there_ends_and_leaves_nothing() {
    let container = Container::start(PROGRAM, Some("gpus=2 hang=cuInit"), false);
    let result = check(&container, |settings| {
        settings.step_limit = std::time::Duration::from_millis(300);
    });
    assert_eq!(result.preconditions[0].kind, Unmet::DriverHung, "{result:#?}");
    assert!(result.children.iter().all(|child| !child.still_there), "{result:#?}");
    let own = processes(&container);
    assert_eq!(own, [1], "only the container's own process is left");
}

#[test]
fn a_container_without_the_library_is_told() {
    let container = Container::start(PROGRAM, None, false);
    let result = check(&container, |_| {});
    assert_eq!(result.preconditions[0].kind, Unmet::NoLibrary, "{result:#?}");
    assert!(result.preconditions[0].message.contains("libcuda.so.1"), "{result:#?}");
}

#[test]
fn what_cannot_be_entered_is_told() {
    let container = Container::start(PROGRAM, None, false);
    // Its number, but not its start: another process.
    let result = check(&container, |settings| settings.view = view(container.first, 1));
    assert_eq!(result.preconditions[0].kind, Unmet::NoView, "{result:#?}");
    assert!(result.preconditions[0].message.contains("is gone"), "{result:#?}");
    assert_eq!(result.preconditions.len(), 1);
    // A container without the C library's loader.
    std::fs::remove_dir_all(format!("/proc/{}/root/lib64", container.first)).unwrap();
    let result = check(&container, |_| {});
    assert_eq!(result.preconditions[0].kind, Unmet::NoView, "{result:#?}");
    assert!(result.preconditions[0].message.contains("loader"), "{result:#?}");
}
