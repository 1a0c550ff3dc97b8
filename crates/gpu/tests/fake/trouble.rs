//! Hangs, dead contexts, faults that only show under load, and figures that can't be.

use std::time::Duration;

use peerway_gpu::{Arm, Damage, Engine, Measurement, Mode, Settings, Unmet, Verdict};
use peerway_gpu_fake::Script;

use crate::common::{Fake, quick, row};

fn check(script: &str, change: impl FnOnce(&mut Settings)) -> Measurement {
    Fake::new(script).measure(|settings| {
        quick(settings);
        change(settings);
    })
}

#[test]
fn a_transfer_that_hangs_ends_its_child_and_nothing_else() {
    let script = "gpus=2 fault=hang from=0 to=1 engine=sm";
    let result = check(script, |settings| settings.step_limit = Duration::from_millis(300));
    let parsed = Script::parse(script).unwrap();
    let hung = row(&result, &parsed, (0, 1), Mode::Peer, Engine::Sm);
    assert_eq!(hung.verdict, Verdict::Hung, "{hung:#?}");
    let other = row(&result, &parsed, (0, 1), Mode::Peer, Engine::Copy);
    assert_eq!(other.verdict, Verdict::NotRun, "{other:#?}");
    assert!(other.operations.iter().all(|part| part.steps > 0), "small ones ran: {other:#?}");
    let back = row(&result, &parsed, (1, 0), Mode::Peer, Engine::Sm);
    assert_eq!(back.verdict, Verdict::Intact, "{back:#?}");
    assert!(result.children.iter().all(|child| !child.still_there));
}

#[test]
fn a_call_that_never_returns_is_killed() {
    let result = check("gpus=2 hang=cuCtxEnablePeerAccess", |settings| {
        settings.step_limit = Duration::from_millis(100);
    });
    assert!(result.pairs.iter().all(|row| row.verdict == Verdict::Hung), "{:#?}", result.pairs);
    assert_eq!(result.children.len(), 2);
    for child in &result.children {
        assert!(child.end.contains("killed") && !child.still_there, "{child:?}");
        assert!(child.step.as_deref().unwrap_or_default().contains("open"), "{child:?}");
    }
    assert!(result.control.iter().all(|row| row.verdict == Verdict::Intact));
}

#[test]
fn a_driver_that_hangs_at_its_start_is_killed() {
    let result = check("gpus=2 hang=cuInit", |settings| {
        settings.step_limit = Duration::from_millis(100);
    });
    assert!(result.pairs.is_empty());
    assert_eq!(result.preconditions.len(), 1, "{:?}", result.preconditions);
    assert_eq!(result.preconditions[0].kind, Unmet::DriverHung);
    assert!(result.preconditions[0].message.contains("killed"), "{:?}", result.preconditions);
}

#[test]
fn a_dead_context_is_one_childs_loss() {
    let script = "gpus=2 fault=break:719 from=0 to=1 engine=copy";
    let result = check(script, |_| {});
    let parsed = Script::parse(script).unwrap();
    let dead = row(&result, &parsed, (0, 1), Mode::Peer, Engine::Copy);
    assert_eq!(dead.verdict, Verdict::Broken);
    let why = dead.detail.as_deref().unwrap_or_default();
    assert!(why.contains("719") && why.contains("CUDA_ERROR_LAUNCH_FAILED"), "{why}");
    let other = row(&result, &parsed, (0, 1), Mode::Peer, Engine::Sm);
    assert!(other.operations.iter().all(|part| part.steps > 0), "{other:#?}");
}

#[test]
fn promised_access_that_is_refused_is_no_access() {
    let result = check("gpus=2 fault=refuse:205", |_| {});
    assert!(result.claims.iter().all(|claim| claim.can_access), "the driver promises it");
    for row in &result.pairs {
        assert_eq!(row.verdict, Verdict::Refused);
        let why = row.detail.as_deref().unwrap_or_default();
        assert!(why.contains("cuCtxEnablePeerAccess") && why.contains("MAP_FAILED"), "{why}");
    }
}

#[test]
fn damage_under_load_only_is_damage() {
    let result = check("gpus=3 fault=loaded:100 from=0 to=2", |settings| settings.together = true);
    assert!(!result.together.is_empty());
    let parsed = Script::parse("gpus=3").unwrap();
    for engine in [Engine::Copy, Engine::Sm] {
        let hit = row(&result, &parsed, (0, 2), Mode::Peer, engine);
        assert_eq!((hit.verdict, hit.damage), (Verdict::Damaged, Some(Damage::Bits)));
        let detail = hit.detail.as_deref().unwrap_or_default();
        assert!(detail.contains("right alone"), "{detail}");
        let other = row(&result, &parsed, (2, 0), Mode::Peer, engine);
        assert_eq!(other.verdict, Verdict::Intact);
    }
}

#[test]
fn all_reduce_finds_wrong_sums_and_hangs() {
    let only_all_reduce = |settings: &mut Settings| {
        settings.modes.clear();
        settings.all_reduce_sizes = vec![1024, 65_536];
        settings.step_limit = Duration::from_millis(500);
    };
    let arm = |result: &Measurement, arm| {
        let rows: Vec<_> = result.all_reduce.iter().filter(|row| row.arm == arm).cloned().collect();
        assert!(!rows.is_empty());
        rows
    };
    let wrong = check("gpus=2 fault=zeros", only_all_reduce);
    assert!(arm(&wrong, Arm::Host).iter().all(|row| row.verdict == Verdict::Intact));
    let rows = arm(&wrong, Arm::P2p);
    assert_eq!((rows.len(), rows[0].verdict), (1, Verdict::Damaged), "{rows:#?}");
    assert!(rows[0].wrong_elements > 0);
    let hung = check("gpus=2 fault=hang", only_all_reduce);
    let rows = arm(&hung, Arm::P2p);
    assert_eq!((rows.len(), rows[0].verdict), (1, Verdict::Hung), "{rows:#?}");
    let stuck = check("gpus=2 hang=ncclCommInitAll", only_all_reduce);
    assert!(stuck.all_reduce.iter().all(|row| row.verdict == Verdict::Hung), "{stuck:#?}");
}

#[test]
fn all_reduce_between_processes_finds_the_same() {
    let apart = |settings: &mut Settings| {
        settings.modes.clear();
        settings.all_reduce_sizes = vec![1024, 65_536];
        settings.all_reduce_apart = true;
        settings.step_limit = Duration::from_millis(500);
    };
    let rows = |result: &Measurement, arm| {
        let rows = result.all_reduce.iter().filter(|row| (row.arm, row.processes) == (arm, 2));
        rows.cloned().collect::<Vec<_>>()
    };
    let wrong = check("gpus=2 fault=zeros", apart);
    assert!(rows(&wrong, Arm::Host).iter().all(|row| row.verdict == Verdict::Intact), "{wrong:#?}");
    let damaged = rows(&wrong, Arm::P2p);
    assert_eq!((damaged.len(), damaged[0].verdict), (1, Verdict::Damaged), "{damaged:#?}");
    assert!(damaged[0].wrong_elements > 0);
    let hung = check("gpus=2 fault=hang", apart);
    let hung = rows(&hung, Arm::P2p);
    assert_eq!((hung.len(), hung[0].verdict), (1, Verdict::Hung), "{hung:#?}");
    let stuck = check("gpus=2 hang=ncclCommInitRank", apart);
    let stuck = rows(&stuck, Arm::Host);
    assert_eq!((stuck.len(), stuck[0].verdict), (1, Verdict::Hung), "{stuck:#?}");
    let failed = check("gpus=2 error=ncclCommInitRank:3", apart);
    let failed = rows(&failed, Arm::Host);
    assert_eq!((failed.len(), failed[0].verdict), (1, Verdict::NotRun), "{failed:#?}");
    let why = failed[0].detail.as_deref().unwrap_or_default();
    assert!(why.contains("ncclInternalError"), "{why}");
}

#[test]
fn damage_keeps_nccl_from_using_the_pair() {
    let result = check("gpus=2 fault=drop", |settings| settings.all_reduce_sizes = vec![1024]);
    let p2p = result.all_reduce.iter().find(|row| row.arm == Arm::P2p).unwrap();
    assert_eq!(p2p.verdict, Verdict::NotRun, "{p2p:#?}");
}

#[test]
fn an_error_in_mid_transfer_is_no_refusal() {
    for script in ["gpus=2 error=cuLaunchKernel:719:300", "gpus=2 error=cuMemcpyDtoDAsync_v2:999:9"]
    {
        let result = check(script, |settings| settings.modes = vec![Mode::Peer, Mode::Vmm]);
        let broken = result.pairs.iter().filter(|row| row.verdict == Verdict::Broken).count();
        assert!(broken > 0, "{script}: {:#?}", result.pairs);
        assert!(result.pairs.iter().all(|row| row.verdict != Verdict::Refused), "{script}");
    }
}

#[test]
fn a_context_that_dies_while_speed_is_taken_is_broken() {
    let result = check("gpus=2 error=cuEventElapsedTime:719:5", |settings| {
        settings.speed = true;
        settings.speed_bytes = 1 << 20;
    });
    assert!(result.pairs.iter().any(|row| row.verdict == Verdict::Broken), "{:#?}", result.pairs);
}

#[test]
fn a_load_that_gives_wrong_data_is_damage() {
    let script = "gpus=2 fault=zeros from=0 to=1 kernel=pw_chase";
    let result = check(script, |settings| {
        settings.speed = true;
        settings.speed_bytes = 1 << 20;
    });
    let parsed = Script::parse(script).unwrap();
    let hit = row(&result, &parsed, (0, 1), Mode::Peer, Engine::Sm);
    assert_eq!(hit.verdict, Verdict::Damaged, "{hit:#?}");
    assert!(hit.load_seconds.is_none(), "{hit:#?}");
    let back = row(&result, &parsed, (1, 0), Mode::Peer, Engine::Sm);
    assert_eq!(back.verdict, Verdict::Intact, "{back:#?}");
}

#[test]
fn what_fails_only_in_nccl_is_no_sound_pair() {
    let script = "gpus=2 fault=zeros kernel=nccl";
    let result = check(script, |settings| settings.all_reduce_sizes = vec![1024]);
    let parsed = Script::parse(script).unwrap();
    let hit = row(&result, &parsed, (0, 1), Mode::Peer, Engine::Sm);
    assert_eq!(hit.verdict, Verdict::Damaged, "{hit:#?}");
    assert!(hit.detail.as_deref().unwrap_or_default().contains("NCCL"), "{hit:#?}");
}

#[test]
fn a_child_that_breaks_down_under_load_is_told() {
    // Enough calls for all that is alone, and too few for all that comes at once.
    let counted = |what: &str| {
        check(&format!("gpus=2 error=cuEventRecord:{what}"), |settings| {
            settings.together = true;
        })
    };
    let result = counted("719:5");
    let broken = result.together.iter().filter(|row| row.verdict == Verdict::Broken);
    assert_eq!(broken.count(), 2, "{:#?}", result.together);
    assert!(result.pairs.iter().all(|row| row.verdict == Verdict::Broken), "{:#?}", result.pairs);
    // The process dies in the second pattern, when the first one's row is out.
    let result = counted("-1:40");
    let verdicts: Vec<_> = result.together.iter().map(|row| row.verdict).collect();
    assert_eq!(verdicts.iter().filter(|one| **one == Verdict::Intact).count(), 2, "{verdicts:?}");
    assert_eq!(verdicts.iter().filter(|one| **one == Verdict::Broken).count(), 2, "{verdicts:?}");
    assert!(result.pairs.iter().all(|row| row.verdict == Verdict::Broken), "{:#?}", result.pairs);
}

#[test]
fn an_arm_counts_as_what_nccl_used() {
    let result = check("gpus=2 nccl-shm", |settings| {
        settings.all_reduce_sizes = vec![1024];
        settings.all_reduce_apart = true;
    });
    for row in &result.all_reduce {
        let wanted = if row.arm == Arm::P2p { Verdict::NotRun } else { Verdict::Intact };
        assert_eq!(row.verdict, wanted, "{row:#?}");
    }
    let p2p = result.all_reduce.iter().find(|row| row.arm == Arm::P2p).unwrap();
    assert!(p2p.detail.as_deref().unwrap_or_default().contains("SHM/direct"), "{p2p:#?}");
}

#[test]
fn damage_keeps_the_next_mode_small() {
    let script = "gpus=2 fault=drop from=0 to=1 kernel=pw_copy_u32";
    let result = check(script, |settings| {
        settings.modes = vec![Mode::Peer, Mode::Vmm];
        settings.speed = true;
        settings.speed_bytes = 1 << 20;
    });
    let parsed = Script::parse(script).unwrap();
    let next = row(&result, &parsed, (0, 1), Mode::Vmm, Engine::Copy);
    let why = next.detail.as_deref().unwrap_or_default();
    assert!(why.contains("another mode failed"), "{next:#?}");
    assert!(result.pairs.iter().all(|row| row.bandwidth_bytes_per_second.is_none()), "no speed");
    let back = row(&result, &parsed, (1, 0), Mode::Vmm, Engine::Copy);
    assert_eq!(back.verdict, Verdict::Intact, "{back:#?}");
}

#[test]
fn wrong_data_on_the_way_to_the_host_is_told() {
    let with_speed = |settings: &mut Settings| {
        settings.modes.clear();
        settings.speed = true;
        settings.speed_bytes = 1 << 20;
    };
    let wrong = check("gpus=2 host-bits", with_speed);
    assert_eq!(wrong.host.len(), 2);
    for row in &wrong.host {
        let report = row.damage.as_ref().unwrap();
        assert_eq!((report.first_bad_offset, report.damage), (20, Damage::Bits), "{row:#?}");
    }
    assert!(check("gpus=2", with_speed).host.iter().all(|row| row.damage.is_none()));
}
