//! Many seeds of the stand-in library, honest and faulty ones: the verdict has to be right for each.

use peerway_gpu::{Damage, Engine, LineRate, Measurement, Mode, PairResult, Verdict};
use peerway_gpu_fake as fake;

use crate::common::{Fake, row};

/// What a fault must be called on the rows that it hits; none where alone it can't be seen.
fn expected(kind: fake::Kind) -> Option<(Verdict, Option<Damage>)> {
    let damaged = |damage| Some((Verdict::Damaged, Some(damage)));
    match kind {
        fake::Kind::Drop => damaged(Damage::Dropped),
        fake::Kind::Zeros => damaged(Damage::Zeros),
        fake::Kind::Ones => damaged(Damage::Ones),
        fake::Kind::Mirror => damaged(Damage::Mirrored),
        fake::Kind::Alias(_) => damaged(Damage::Aliased),
        fake::Kind::Rare(_) => damaged(Damage::Bits),
        fake::Kind::Reorder(_) | fake::Kind::Stale => damaged(Damage::Stale),
        fake::Kind::Misroute => damaged(Damage::Misrouted),
        fake::Kind::Hang => Some((Verdict::Hung, None)),
        fake::Kind::Refuse(_) => Some((Verdict::Refused, None)),
        fake::Kind::Break(_) => Some((Verdict::Broken, None)),
        fake::Kind::Loaded(_) | fake::Kind::Absurd => None,
    }
}

/// Larger transfers were left out because the other engine failed.
fn withheld(row: &PairResult) -> bool {
    let why = row.detail.as_deref().unwrap_or_default();
    row.verdict == Verdict::NotRun && why.contains("larger transfers")
}

/// One ordered pair in the result of a script: what is wrong with the verdicts on it.
fn pair_complaints(
    result: &Measurement,
    script: &fake::Script,
    pair: (usize, usize),
    mode: Mode,
) -> Vec<String> {
    let engines = [(Engine::Copy, fake::Engine::Copy), (Engine::Sm, fake::Engine::Sm)];
    let mut rows = Vec::new();
    for (engine, of_fake) in engines {
        let hit = script.fault.filter(|fault| match fault.kind {
            // Refused before an engine is chosen.
            fake::Kind::Refuse(_) => {
                fault.hits(pair.0, pair.1, fault.engine.unwrap_or(fake::Engine::Sm))
            }
            _ => fault.hits(pair.0, pair.1, of_fake),
        });
        let wanted = hit.and_then(|fault| expected(fault.kind));
        rows.push((row(result, script, pair, mode, engine), wanted));
    }
    let exact = |(row, wanted): &(&PairResult, Option<(Verdict, Option<Damage>)>)| {
        (row.verdict, row.damage) == wanted.unwrap_or((Verdict::Intact, None))
    };
    let found = rows.iter().any(|row| row.1.is_some() && exact(row));
    let wrong = rows.iter().filter(|row| !(exact(row) || found && withheld(row.0)));
    wrong.map(|(row, wanted)| format!("wanted {wanted:?}: {row:#?}")).collect()
}

/// One seed in one mode.
fn complaints(seed: u64, mode: Mode) -> Vec<String> {
    let script = fake::Script::from_seed(seed);
    let fake = Fake::new(&format!("seed={seed}"));
    let result = fake.measure(|settings| settings.modes = vec![mode]);
    let mut wrong = Vec::new();
    if result.gpus.len() != script.gpus || !result.preconditions.is_empty() {
        wrong.push(format!("{} GPUs, {:?}", result.gpus.len(), result.preconditions));
    }
    if !result.control.iter().all(|row| row.verdict == Verdict::Intact) {
        wrong.push(format!("control arm: {:#?}", result.control));
    }
    for from in 0..script.gpus {
        for to in (0..script.gpus).filter(|to| *to != from) {
            wrong.extend(pair_complaints(&result, &script, (from, to), mode));
        }
    }
    wrong.into_iter().map(|wrong| format!("seed {seed} {:?}: {wrong}", script.fault)).collect()
}

/// How many. `PEERWAY_SEEDS` in the environment asks for more of them, or fewer.
fn seeds() -> u64 {
    std::env::var_os("PEERWAY_SEEDS").map_or(10, |text| {
        text.to_str().and_then(|text| text.parse().ok()).expect("PEERWAY_SEEDS is a number")
    })
}

/// Seeds from `first` on.
fn check(first: u64, mode: Mode) {
    let wrong: Vec<String> =
        (first..first + seeds()).flat_map(|seed| complaints(seed, mode)).collect();
    assert!(wrong.is_empty(), "{} wrong verdicts\n{}", wrong.len(), wrong.join("\n"));
}

// Several tests, so that they run side by side and each stays short.

#[test]
fn peer_access() {
    check(0, Mode::Peer);
}

#[test]
fn peer_access_second() {
    check(10_000, Mode::Peer);
}

#[test]
fn peer_access_third() {
    check(20_000, Mode::Peer);
}

#[test]
fn peer_access_fourth() {
    check(30_000, Mode::Peer);
}

#[test]
fn virtual_memory() {
    check(40_000, Mode::Vmm);
}

#[test]
fn virtual_memory_second() {
    check(50_000, Mode::Vmm);
}

#[test]
fn second_process() {
    check(60_000, Mode::Ipc);
}

#[test]
fn second_process_again() {
    check(70_000, Mode::Ipc);
}

/// One seed with transfers at once, speed and sums: whether anything is wrong is told, and of no pair
/// that is sound. Two of the faults show only here.
fn whole_complaints(seed: u64) -> Vec<String> {
    let script = fake::Script::from_seed(seed);
    let address = |gpu: usize| script.address(gpu).parse().unwrap();
    let pairs: Vec<(usize, usize)> = (0..script.gpus)
        .flat_map(|from| (0..script.gpus).map(move |to| (from, to)))
        .filter(|(from, to)| from != to)
        .collect();
    let result = Fake::new(&format!("seed={seed}")).measure(|settings| {
        settings.modes = vec![Mode::Peer];
        settings.together = true;
        settings.together_bytes = 1 << 20;
        settings.speed = true;
        settings.speed_bytes = 1 << 20;
        settings.all_reduce_sizes = vec![1024, 65_536];
        settings.all_reduce_iterations = 2;
        let rate = |(from, to)| LineRate {
            from: address(from),
            to: address(to),
            bytes_per_second: 63.0e9,
        };
        settings.line_rates = pairs.iter().copied().map(rate).collect();
    });
    let mut wrong = Vec::new();
    let mut told = false;
    for pair in &pairs {
        for engine in [Engine::Copy, Engine::Sm] {
            let row = row(&result, &script, *pair, Mode::Peer, engine);
            let alarm = row.above_line_rate || row.verdict != Verdict::Intact;
            told |= alarm;
            let hit = |from, to| {
                let engines = [fake::Engine::Copy, fake::Engine::Sm];
                let by = |fault: fake::Fault| engines.iter().any(|one| fault.hits(from, to, *one));
                script.fault.is_some_and(by)
            };
            // The rate both ways is of both.
            let both = row.above_line_rate && hit(pair.1, pair.0);
            if alarm && !hit(pair.0, pair.1) && !both {
                wrong.push(format!("a sound pair: {row:#?}"));
            }
        }
    }
    let groups = result.together.iter().map(|row| row.verdict);
    let groups: Vec<Verdict> =
        groups.chain(result.all_reduce.iter().map(|row| row.verdict)).collect();
    told |= groups.iter().any(|verdict| *verdict != Verdict::Intact);
    if groups.is_empty() || told != script.fault.is_some() {
        wrong.push(format!("told {told}: {result:#?}"));
    }
    wrong.into_iter().map(|wrong| format!("seed {seed} {:?}: {wrong}", script.fault)).collect()
}

fn check_whole(first: u64) {
    let wrong: Vec<String> =
        (first..first + seeds().div_ceil(2)).flat_map(whole_complaints).collect();
    assert!(wrong.is_empty(), "{} wrong\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn everything_at_once() {
    check_whole(80_000);
}

#[test]
fn everything_at_once_again() {
    check_whole(90_000);
}

/// Each kind of fault in each mode, beside the seeds, which are few: every row that it hits has its
/// name, and every other one is right.
#[track_caller]
fn check_kind(fault: &str) {
    // A third one only where it is needed.
    let gpus = if fault == "misroute" { 3 } else { 2 };
    let text = format!("gpus={gpus} fault={fault} from=0 to=1");
    let script = fake::Script::parse(&text).unwrap();
    let mut wrong = Vec::new();
    for mode in [Mode::Peer, Mode::Vmm, Mode::Ipc] {
        let result = Fake::new(&text).measure(|settings| {
            settings.modes = vec![mode];
        });
        for pair in [(0, 1), (1, 0)] {
            wrong.extend(pair_complaints(&result, &script, pair, mode));
        }
    }
    assert!(wrong.is_empty(), "{fault}: {}", wrong.join("\n"));
}

#[test]
fn kinds_of_missing_data() {
    for kind in ["drop", "zeros", "ones"] {
        check_kind(kind);
    }
}

#[test]
fn kinds_of_misplaced_data() {
    for kind in ["mirror", "alias:2m", "misroute"] {
        check_kind(kind);
    }
}

#[test]
fn kinds_of_wrong_data_and_of_errors() {
    for kind in ["rare:5", "stale", "reorder:7 engine=sm", "refuse:205", "break:719"] {
        check_kind(kind);
    }
}

/// A fault only in memory that no range reaches: samples find it, and nothing else can.
#[test]
fn memory_beyond_a_window() {
    for (sample, verdict) in [(true, Verdict::Damaged), (false, Verdict::Intact)] {
        let script = "gpus=2 memory=256m fault=drop from=0 to=1 above=160m";
        let result = Fake::new(script).measure(|settings| {
            settings.modes = vec![Mode::Peer];
            settings.sample = Some(sample);
            settings.spare_bytes = 16 << 20;
        });
        let script = fake::Script::parse(script).unwrap();
        let hit = row(&result, &script, (0, 1), Mode::Peer, Engine::Copy);
        assert_eq!(hit.verdict, verdict, "{hit:#?}");
    }
}
