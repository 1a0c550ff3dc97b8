//! A measurement against a prediction: which of the two is to be believed.

use super::{Basis, Confidence, Pair, Verdict};
use crate::snapshot::measured::{Measured, Outcome, TestedPair};

/// What a prediction rests on: a domain that was switched, a map that was lost, a register that was
/// written or a fault that was logged changes it, without any driver being bound anew.
pub fn grounds(pair: &Pair) -> String {
    let codes: Vec<&str> = pair.codes.iter().map(|code| code.text()).collect();
    format!("{:?} {}: {}", pair.verdict, codes.join(" "), pair.reason).to_lowercase()
}

/// Puts what was measured in the place of a prediction, where the prediction is still the one
/// that was made when it was measured.
pub(crate) fn correct(measured: &Measured, pair: &mut Pair) {
    if measured.old.is_some() {
        return;
    }
    let of = |tested: &&TestedPair| (tested.from, tested.to) == (pair.from, pair.to);
    let Some(tested) = measured.test.pairs.iter().find(of) else { return };
    if tested.grounds.as_deref() != Some(grounds(pair).as_str()) {
        return doubt(measured, tested, pair);
    }
    // What could not be seen then cannot be seen to change, and one of two that contradict each
    // other is wrong.
    let agreed = matches!(pair.verdict, Verdict::Works | Verdict::Impaired);
    // A container's own programs said it.
    let elsewhere = measured.test.view.is_some();
    let verdict = match tested.outcome {
        // Data may be right because what was refused on the way was sent again.
        Outcome::Intact
            if pair.verdict == Verdict::Impaired
                || tested.is_slow()
                || !tested.recorded.is_empty() =>
        {
            Verdict::Impaired
        }
        Outcome::Intact => Verdict::Works,
        Outcome::Damaged | Outcome::Hung | Outcome::Broken => Verdict::Broken,
        // Whatever the route is like, nothing goes over it.
        Outcome::Refused if matches!(pair.verdict, Verdict::Works | Verdict::Impaired) => {
            Verdict::Unknown
        }
        Outcome::Refused | Outcome::NotRun => return,
    };
    if verdict != pair.verdict {
        // What explains the prediction does not explain what was measured.
        pair.codes.clear();
    }
    pair.reason = format!("measured at {}: {}", measured.test.measured_at, tested.describe());
    pair.verdict = verdict;
    pair.basis = Basis::Measured;
    pair.confidence = match tested.outcome {
        Outcome::Intact if !tested.is_sampled() => Confidence::Possible,
        Outcome::Intact if !agreed || tested.watched != Some(true) => Confidence::Probable,
        // That it refused is sure; what it would have come to is not.
        Outcome::Refused => Confidence::Possible,
        _ if elsewhere => Confidence::Probable,
        _ => Confidence::Certain,
    };
}

/// Other grounds, and no measurement on them: what was right says nothing, and what was wrong
/// is not right because a prediction says so.
fn doubt(measured: &Measured, tested: &TestedPair, pair: &mut Pair) {
    let wrong = matches!(tested.outcome, Outcome::Damaged | Outcome::Hung | Outcome::Broken);
    if wrong && matches!(pair.verdict, Verdict::Works | Verdict::Impaired) {
        pair.reason = format!(
            "measured at {}: {}; what decides about the pair has changed since: run peerway test",
            measured.test.measured_at,
            tested.describe()
        );
        pair.verdict = Verdict::Unknown;
        pair.confidence = Confidence::Possible;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::PciAddress;
    use crate::code;
    use crate::route::{Route, Turn};
    use crate::snapshot::measured::{LAST_TEST_SCHEMA, LastTest, TestedGpu};

    fn gpu(text: &str) -> PciAddress {
        text.parse().unwrap()
    }

    fn kept(outcome: Outcome, rate: f64, before: Verdict) -> LastTest {
        let (from, to) = (gpu("0000:21:00.0"), gpu("0000:41:00.0"));
        LastTest {
            schema: LAST_TEST_SCHEMA.to_owned(),
            boot_id: "boot-1".to_owned(),
            measured_at: "2026-11-30T10:00:00Z".to_owned(),
            view: None,
            depth: None,
            gpus: [from, to]
                .map(|address| TestedGpu { address, uuid: String::new(), binding: Some(7) })
                .to_vec(),
            pairs: vec![TestedPair {
                from,
                to,
                outcome,
                damage: None,
                sampled_bytes: Some(1 << 34),
                bandwidth_bytes_per_second: Some(rate),
                latency_seconds: None,
                line_rate_bytes_per_second: Some(60e9),
                recorded: Vec::new(),
                watched: Some(true),
                grounds: Some(grounds(&pair(before))),
            }],
            all_reduce: Vec::new(),
        }
    }

    fn pair(verdict: Verdict) -> Pair {
        Pair {
            from: gpu("0000:21:00.0"),
            to: gpu("0000:41:00.0"),
            verdict,
            basis: Basis::Predicted,
            confidence: Confidence::Possible,
            codes: vec![code::ROUTE_UNKNOWN],
            reason: String::new(),
            route: Route {
                from: gpu("0000:21:00.0"),
                to: gpu("0000:41:00.0"),
                up: Vec::new(),
                down: Vec::new(),
                above: Vec::new(),
                turn: Turn::HostBridges,
            },
        }
    }

    #[track_caller]
    fn check(outcome: Outcome, rate: f64, before: Verdict, after: Verdict, basis: Basis) {
        let measured = Measured::new(kept(outcome, rate, before), Some("boot-1"), |_| Some(7));
        let mut pair = pair(before);
        correct(&measured, &mut pair);
        assert_eq!((pair.verdict, pair.basis), (after, basis));
        let sure = pair.confidence == Confidence::Certain;
        assert!(!(sure && pair.verdict == Verdict::Unknown), "{}", pair.reason);
        assert_eq!(pair.codes.is_empty(), before != after);
    }

    #[test]
    fn what_was_measured_replaces_a_prediction() {
        use Verdict::{Broken, Impaired, Unknown, Works};
        check(Outcome::Intact, 50e9, Unknown, Works, Basis::Measured);
        check(Outcome::Intact, 50e9, Broken, Works, Basis::Measured);
        check(Outcome::Intact, 50e9, Impaired, Impaired, Basis::Measured);
        check(Outcome::Intact, 20e9, Works, Impaired, Basis::Measured);
        check(Outcome::Damaged, 50e9, Works, Broken, Basis::Measured);
        check(Outcome::Hung, 50e9, Broken, Broken, Basis::Measured);
        check(Outcome::Broken, 50e9, Works, Broken, Basis::Measured);
        check(Outcome::Refused, 50e9, Unknown, Unknown, Basis::Predicted);
        check(Outcome::Refused, 50e9, Works, Unknown, Basis::Measured);
        check(Outcome::Refused, 50e9, Broken, Broken, Basis::Predicted);
        check(Outcome::NotRun, 50e9, Works, Works, Basis::Predicted);
    }

    /// Right data over a route that nobody could see: another one would not show.
    #[test]
    fn what_cannot_be_seen_to_change_is_not_certain() {
        let sureness = |before: Verdict| {
            let test = kept(Outcome::Intact, 50e9, before);
            let mut now = pair(before);
            correct(&Measured::new(test, Some("boot-1"), |_| Some(7)), &mut now);
            (now.verdict, now.confidence)
        };
        assert_eq!(sureness(Verdict::Works), (Verdict::Works, Confidence::Certain));
        assert_eq!(sureness(Verdict::Unknown), (Verdict::Works, Confidence::Probable));
        assert_eq!(sureness(Verdict::Broken), (Verdict::Works, Confidence::Probable));
    }

    #[test]
    fn what_nobody_watched_or_a_container_said_is_not_certain() {
        let sureness = |change: fn(&mut LastTest)| {
            let mut test = kept(Outcome::Intact, 50e9, Verdict::Works);
            change(&mut test);
            let mut now = pair(Verdict::Works);
            correct(&Measured::new(test, Some("boot-1"), |_| Some(7)), &mut now);
            now.confidence
        };
        assert_eq!(sureness(|_| ()), Confidence::Certain);
        assert_eq!(sureness(|test| test.pairs[0].watched = Some(false)), Confidence::Probable);
        assert_eq!(sureness(|test| test.pairs[0].watched = None), Confidence::Probable);
        assert_eq!(sureness(|test| test.view = Some("lxc:1".to_owned())), Confidence::Probable);
    }

    /// The verdict and its codes stay, and what they rest on is another.
    #[test]
    fn another_reason_is_another_prediction() {
        let measured =
            Measured::new(kept(Outcome::Intact, 50e9, Verdict::Works), Some("boot-1"), |_| Some(7));
        let mut now = Pair { reason: "another group's domain".to_owned(), ..pair(Verdict::Works) };
        correct(&measured, &mut now);
        assert_eq!(now.basis, Basis::Predicted, "{}", now.reason);
    }

    #[test]
    fn what_was_not_looked_at_is_not_certain() {
        let correct_by = |change: fn(&mut TestedPair)| {
            let mut test = kept(Outcome::Intact, 50e9, Verdict::Works);
            test.pairs.iter_mut().for_each(change);
            let mut now = pair(Verdict::Works);
            correct(&Measured::new(test, Some("boot-1"), |_| Some(7)), &mut now);
            (now.verdict, now.confidence, now.reason)
        };
        let (verdict, confidence, _) = correct_by(|_| ());
        assert_eq!((verdict, confidence), (Verdict::Works, Confidence::Certain));
        for none in [Some(0), None] {
            let (verdict, confidence, said) = match none {
                Some(_) => correct_by(|pair| pair.sampled_bytes = Some(0)),
                None => correct_by(|pair| pair.sampled_bytes = None),
            };
            assert_eq!((verdict, confidence), (Verdict::Works, Confidence::Possible));
            assert!(said.contains("a small part of all"), "{said}");
        }
        let (verdict, _, said) = correct_by(|pair| pair.recorded = vec!["an Xid".to_owned()]);
        assert_eq!(verdict, Verdict::Impaired);
        assert!(said.contains("an Xid"), "{said}");
    }

    /// A file of before depth was kept is read, and says less.
    #[test]
    fn files_of_before_are_read() {
        let mut old = serde_json::to_value(kept(Outcome::Intact, 50e9, Verdict::Works)).unwrap();
        old.as_object_mut().unwrap().remove("depth");
        old["pairs"][0].as_object_mut().unwrap().remove("sampled_bytes");
        let read: LastTest = serde_json::from_value(old).unwrap();
        assert_eq!((read.depth, read.pairs[0].is_sampled()), (None, false));
    }

    /// Peer access was right under a map that is gone: no driver was bound anew, and all the same
    /// nothing of it holds.
    #[test]
    fn what_decides_has_changed() {
        let measured = |before: Option<Verdict>| {
            let mut test = kept(Outcome::Intact, 50e9, Verdict::Works);
            test.pairs[0].grounds = before.map(|before| grounds(&pair(before)));
            Measured::new(test, Some("boot-1"), |_| Some(7))
        };
        for before in [Some(Verdict::Works), None] {
            let mut now = pair(Verdict::Broken);
            correct(&measured(before), &mut now);
            assert_eq!((now.verdict, now.basis), (Verdict::Broken, Basis::Predicted));
        }
        // And what was wrong is not right before it was measured again.
        let mut now = pair(Verdict::Works);
        let wrong = kept(Outcome::Damaged, 50e9, Verdict::Broken);
        correct(&Measured::new(wrong, Some("boot-1"), |_| Some(7)), &mut now);
        assert_eq!((now.verdict, now.basis), (Verdict::Unknown, Basis::Predicted));
        assert!(now.reason.contains("run peerway test"), "{}", now.reason);
        let mut now = pair(Verdict::Unknown);
        now.codes = vec![code::PEER_MAP];
        correct(&measured(Some(Verdict::Unknown)), &mut now);
        assert_eq!((now.verdict, now.basis), (Verdict::Unknown, Basis::Predicted));
    }

    #[test]
    fn an_old_measurement_says_nothing_about_now() {
        let old = |boot: Option<&str>, binding: Option<u64>| {
            let measured =
                Measured::new(kept(Outcome::Intact, 50e9, Verdict::Unknown), boot, |_| binding);
            let mut pair = pair(Verdict::Unknown);
            correct(&measured, &mut pair);
            assert_eq!(pair.basis, Basis::Predicted);
            measured.old.unwrap()
        };
        assert!(old(Some("boot-2"), Some(7)).contains("rebooted"));
        assert!(old(Some("boot-1"), Some(8)).contains("was bound to 0000:21:00.0"));
        assert!(old(Some("boot-1"), None).contains("could not be read"));
        assert!(old(None, Some(7)).contains("could not be read"));
    }
}
