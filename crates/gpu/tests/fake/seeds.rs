//! Many seeds of the stand-in library, honest and faulty ones: the verdict has to be right for each.

use crate::common::{Fake, row};
use peerway_gpu::{Damage, Engine, Mode, Verdict};
use peerway_gpu_fake as fake;

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
        fake::Kind::Refuse(_) | fake::Kind::Break(_) => Some((Verdict::Refused, None)),
        fake::Kind::Loaded(_) | fake::Kind::Absurd => None,
    }
}

/// One seed in one mode.
fn check(seed: u64, mode: Mode) {
    let script = fake::Script::from_seed(seed);
    let fake = Fake::new(&format!("seed={seed}"));
    let result = fake.measure(|settings| settings.modes = vec![mode]);
    assert_eq!(result.gpus.len(), script.gpus, "seed {seed}: {:?}", result.preconditions);
    assert!(result.preconditions.is_empty(), "seed {seed}: {:?}", result.preconditions);
    for from in 0..script.gpus {
        for to in (0..script.gpus).filter(|to| *to != from) {
            for (engine, of_fake) in
                [(Engine::Copy, fake::Engine::Copy), (Engine::Sm, fake::Engine::Sm)]
            {
                let row = row(&result, &script, (from, to), mode, engine);
                let hit = script.fault.filter(|fault| match fault.kind {
                    // Refused before an engine is chosen.
                    fake::Kind::Refuse(_) => {
                        fault.hits(from, to, fault.engine.unwrap_or(fake::Engine::Sm))
                    }
                    _ => fault.hits(from, to, of_fake),
                });
                let wanted = hit.and_then(|fault| expected(fault.kind));
                match wanted {
                    Some(wanted) => {
                        assert_eq!((row.verdict, row.damage), wanted, "seed {seed}: {row:#?}");
                    }
                    // Another engine's fault on the same pair may keep large steps from running.
                    None if row.verdict == Verdict::NotRun => {
                        let why = row.detail.as_deref().unwrap_or_default();
                        assert!(script.fault.is_some(), "seed {seed}: {row:#?}");
                        assert!(why.contains("larger transfers"), "seed {seed}: {row:#?}");
                    }
                    None => assert_eq!(row.verdict, Verdict::Intact, "seed {seed}: {row:#?}"),
                }
            }
        }
    }
    let control = result.control.iter().all(|row| row.verdict == Verdict::Intact);
    assert!(control, "seed {seed}: {:#?}", result.control);
}

#[test]
fn verdicts_with_peer_access_are_right() {
    for seed in 0..60 {
        check(seed, Mode::Peer);
    }
}
