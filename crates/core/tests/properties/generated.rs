//! Symmetry, numbering, redirect: over generated machines.

use std::collections::BTreeSet;

use peerway_core::judge::{Pair, Verdict};
use peerway_sim::build::function::{ACS_CLEAR, ACS_REDIRECT};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

use crate::facts::arrives;
use crate::machine::{PLAIN, machines, matrix, numberings};

/// The machines are no use if they all get the same answer.
#[test]
fn every_verdict_occurs() {
    let mut runner = TestRunner::deterministic();
    let mut seen = BTreeSet::new();
    for _ in 0..96 {
        let machine = machines().new_tree(&mut runner).unwrap().current();
        seen.extend(
            matrix(&machine, PLAIN).into_iter().flatten().flatten().map(|pair| pair.verdict),
        );
    }
    let all = [Verdict::Works, Verdict::Broken, Verdict::Impaired, Verdict::Unknown];
    assert_eq!(seen, BTreeSet::from(all));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Buses, PCI domains, device and group numbers, and the order in which the machine is
    /// described are names: no verdict hangs on them.
    #[test]
    fn numbers_are_names(machine in machines(), numbering in numberings()) {
        let plain = matrix(&machine, PLAIN);
        let other = matrix(&machine, numbering);
        for (plain, other) in plain.iter().flatten().zip(other.iter().flatten()) {
            let said = |pair: &Option<Pair>| {
                pair.as_ref().map(|pair| (pair.verdict, pair.confidence, pair.codes.clone()))
            };
            prop_assert_eq!(said(plain), said(other), "{:?} {:?}", plain, other);
        }
    }

    /// Between two GPUs that nothing tells apart but their places, both directions are alike.
    #[test]
    fn likes_are_symmetric(machine in machines()) {
        let gpus = machine.gpus();
        let pairs = matrix(&machine, PLAIN);
        for (one, row) in pairs.iter().enumerate() {
            for (other, pair) in row.iter().enumerate() {
                if gpus[one].is_like(&gpus[other]) {
                    let back = &pairs[other][one];
                    prop_assert_eq!(
                        pair.as_ref().map(|pair| (pair.verdict, pair.codes.clone())),
                        back.as_ref().map(|pair| (pair.verdict, pair.codes.clone()))
                    );
                }
            }
        }
    }

    /// The requester's domain decides, and the target's does not: what is symmetric stops being so
    /// where the domains differ, and nowhere else.
    #[test]
    fn the_domain_of_the_target_decides_nothing(
        machine in machines(),
        number in 0_usize..8,
        domain in select(vec!["DMA-FQ", "identity", "blocked"]),
    ) {
        let number = number % machine.gpus().len();
        let before = matrix(&machine, PLAIN);
        let after = matrix(&machine.with_gpu(number, |gpu| gpu.domain = domain), PLAIN);
        for (from, (before, after)) in before.iter().zip(&after).enumerate() {
            if from != number {
                prop_assert_eq!(&before[number], &after[number]);
            }
        }
    }

    /// Redirect sends requests where they may fail, and never where they succeed instead.
    #[test]
    fn redirect_never_helps(machine in machines()) {
        let clear = matrix(&machine.with_redirect(ACS_CLEAR), PLAIN);
        let redirected = matrix(&machine.with_redirect(ACS_REDIRECT), PLAIN);
        for (clear, redirected) in clear.iter().flatten().zip(redirected.iter().flatten()) {
            let (Some(clear), Some(redirected)) = (clear, redirected) else { continue };
            let helped = clear.verdict == Verdict::Broken && arrives(redirected.verdict);
            prop_assert!(!helped, "{:?} {:?}", clear, redirected);
        }
    }
}
