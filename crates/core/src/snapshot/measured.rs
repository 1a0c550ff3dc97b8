//! The last measurement that `test` kept on the host, and whether it still holds.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::address::PciAddress;
use crate::judge::{Basis, Confidence, Pair, Verdict};

/// Where it is kept; written by `test` as root, and by nothing else.
pub const LAST_TEST: &str = "/var/lib/peerway/test/last.json";

/// Name and number of the file's format.
pub const LAST_TEST_SCHEMA: &str = "peerway/last-test/1";

/// A measurement in brief.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LastTest {
    /// [`LAST_TEST_SCHEMA`] of the writer.
    pub schema: String,
    /// Boot that it was made in.
    pub boot_id: String,
    /// When it ended, RFC 3339, UTC.
    pub measured_at: String,
    /// Whose view it was made in, `lxc:101`; none for the host's own.
    pub view: Option<String>,
    /// The GPUs, with their bindings.
    pub gpus: Vec<TestedGpu>,
    /// Ordered pairs.
    pub pairs: Vec<TestedPair>,
    /// Times of all-reduce by size.
    pub all_reduce: Vec<TestedAllReduce>,
}

/// A GPU that was measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct TestedGpu {
    /// Where it is.
    pub address: PciAddress,
    /// Its UUID, as the driver tells it.
    pub uuid: String,
    /// Number of the `driver` link in its directory of sysfs: another one after each bind. None
    /// where it could not be read.
    pub binding: Option<u64>,
}

/// What a measurement of an ordered pair came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// Right in every way that the driver offered.
    Intact,
    /// Data was wrong.
    Damaged,
    /// A transfer did not end.
    Hung,
    /// The driver refused in every way.
    Refused,
    /// Not measured.
    NotRun,
}

/// An ordered pair that was measured.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TestedPair {
    /// Who issued requests.
    pub from: PciAddress,
    /// Whose memory they addressed.
    pub to: PciAddress,
    /// What it came to.
    pub outcome: Outcome,
    /// Class of the damage, if damaged.
    pub damage: Option<String>,
    /// Best rate of writes.
    pub bandwidth_bytes_per_second: Option<f64>,
    /// Shortest time of one small transfer.
    pub latency_seconds: Option<f64>,
    /// What the link can carry one way, where that is known.
    pub line_rate_bytes_per_second: Option<f64>,
    /// What the host recorded meanwhile that must not be, in sentences.
    pub recorded: Vec<String>,
    /// What was to be said of the pair without a measurement when this one ended ([`grounds`]): as
    /// long as that stays, what decides about the pair has not changed. None where nobody looked.
    #[serde(default)]
    pub grounds: Option<String>,
}

/// What a prediction rests on: a domain that was switched, a map that was lost, a register that was
/// written or a fault that was logged changes it, without any driver being bound anew.
pub fn grounds(pair: &Pair) -> String {
    let codes: Vec<&str> = pair.codes.iter().map(|code| code.text()).collect();
    format!("{:?} {}", pair.verdict, codes.join(" ")).to_lowercase()
}

/// Time of an all-reduce.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TestedAllReduce {
    /// How many GPUs.
    pub gpus: u32,
    /// In how many processes.
    pub processes: u32,
    /// With P2P, or through host memory.
    pub p2p: bool,
    /// Bytes of each GPU's buffer.
    pub bytes: u64,
    /// Median time of one.
    pub seconds: f64,
}

/// The last measurement, and whether it says something about now.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// What was kept.
    pub test: LastTest,
    /// Why it says nothing about now; none if it holds: same boot, same binding of every GPU.
    pub old: Option<String>,
}

impl Measured {
    /// Judges what was kept by the present boot and bindings.
    pub fn new(
        test: LastTest,
        boot_id: Option<&str>,
        binding: impl Fn(PciAddress) -> Option<u64>,
    ) -> Self {
        let old = match boot_id {
            None => Some("the present boot could not be read".to_owned()),
            Some(now) if now != test.boot_id => Some("the host was rebooted since".to_owned()),
            Some(_) => test.gpus.iter().find_map(|gpu| match (gpu.binding, binding(gpu.address)) {
                (Some(then), Some(now)) if then == now => None,
                (Some(_), Some(_)) => Some(format!("a driver was bound to {} since", gpu.address)),
                _ => Some(format!(
                    "whether the driver was bound anew to {} since could not be read",
                    gpu.address
                )),
            }),
        };
        Self { test, old }
    }

    /// Puts what was measured in the place of a prediction, where the prediction is still the one
    /// that was made when it was measured.
    pub fn correct(&self, pair: &mut Pair) {
        if self.old.is_some() {
            return;
        }
        let of = |tested: &&TestedPair| (tested.from, tested.to) == (pair.from, pair.to);
        let Some(tested) = self.test.pairs.iter().find(of) else { return };
        if tested.grounds.as_deref() != Some(grounds(pair).as_str()) {
            return self.doubt(tested, pair);
        }
        let verdict = match tested.outcome {
            Outcome::Intact if pair.verdict == Verdict::Impaired || tested.is_slow() => {
                Verdict::Impaired
            }
            Outcome::Intact => Verdict::Works,
            Outcome::Damaged | Outcome::Hung => Verdict::Broken,
            Outcome::Refused | Outcome::NotRun => return,
        };
        if verdict != pair.verdict {
            // What explains the prediction does not explain what was measured.
            pair.codes.clear();
        }
        pair.reason = format!("measured at {}: {}", self.test.measured_at, tested.describe());
        pair.verdict = verdict;
        pair.basis = Basis::Measured;
        pair.confidence = Confidence::Certain;
    }

    /// Other grounds, and no measurement on them: what was right says nothing, and what was wrong
    /// is not right because a prediction says so.
    fn doubt(&self, tested: &TestedPair, pair: &mut Pair) {
        let wrong = matches!(tested.outcome, Outcome::Damaged | Outcome::Hung);
        if wrong && matches!(pair.verdict, Verdict::Works | Verdict::Impaired) {
            pair.reason = format!(
                "measured at {}: {}; what decides about the pair has changed since: run peerway test",
                self.test.measured_at,
                tested.describe()
            );
            pair.verdict = Verdict::Unknown;
            pair.confidence = Confidence::Possible;
        }
    }
}

impl TestedPair {
    /// Less than half of what the link can carry.
    fn is_slow(&self) -> bool {
        match (self.bandwidth_bytes_per_second, self.line_rate_bytes_per_second) {
            (Some(rate), Some(line)) => rate * 2.0 < line,
            _ => false,
        }
    }

    /// In words.
    fn describe(&self) -> String {
        let what = match self.outcome {
            Outcome::Intact => "every byte was right".to_owned(),
            Outcome::Damaged => {
                format!("data was wrong ({})", self.damage.as_deref().unwrap_or("unclassified"))
            }
            Outcome::Hung => "a transfer did not end".to_owned(),
            Outcome::Refused => "the driver refused".to_owned(),
            Outcome::NotRun => "not measured".to_owned(),
        };
        let rate = self.bandwidth_bytes_per_second.map(|rate| format!("{:.1} GB/s", rate / 1e9));
        let parts = std::iter::once(what).chain(rate).chain(self.recorded.iter().cloned());
        parts.collect::<Vec<_>>().join(", ")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::code;
    use crate::route::{Route, Turn};

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
            gpus: [from, to]
                .map(|address| TestedGpu { address, uuid: String::new(), binding: Some(7) })
                .to_vec(),
            pairs: vec![TestedPair {
                from,
                to,
                outcome,
                damage: None,
                bandwidth_bytes_per_second: Some(rate),
                latency_seconds: None,
                line_rate_bytes_per_second: Some(60e9),
                recorded: Vec::new(),
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
        measured.correct(&mut pair);
        assert_eq!((pair.verdict, pair.basis), (after, basis));
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
        check(Outcome::Refused, 50e9, Unknown, Unknown, Basis::Predicted);
        check(Outcome::NotRun, 50e9, Works, Works, Basis::Predicted);
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
            measured(before).correct(&mut now);
            assert_eq!((now.verdict, now.basis), (Verdict::Broken, Basis::Predicted));
        }
        // And what was wrong is not right before it was measured again.
        let mut now = pair(Verdict::Works);
        Measured::new(kept(Outcome::Damaged, 50e9, Verdict::Broken), Some("boot-1"), |_| Some(7))
            .correct(&mut now);
        assert_eq!((now.verdict, now.basis), (Verdict::Unknown, Basis::Predicted));
        assert!(now.reason.contains("run peerway test"), "{}", now.reason);
        let mut now = pair(Verdict::Unknown);
        now.codes = vec![code::PEER_MAP];
        measured(Some(Verdict::Unknown)).correct(&mut now);
        assert_eq!((now.verdict, now.basis), (Verdict::Unknown, Basis::Predicted));
    }

    #[test]
    fn an_old_measurement_says_nothing_about_now() {
        let old = |boot: Option<&str>, binding: Option<u64>| {
            let measured =
                Measured::new(kept(Outcome::Intact, 50e9, Verdict::Unknown), boot, |_| binding);
            let mut pair = pair(Verdict::Unknown);
            measured.correct(&mut pair);
            assert_eq!(pair.basis, Basis::Predicted);
            measured.old.unwrap()
        };
        assert!(old(Some("boot-2"), Some(7)).contains("rebooted"));
        assert!(old(Some("boot-1"), Some(8)).contains("was bound to 0000:21:00.0"));
        assert!(old(Some("boot-1"), None).contains("could not be read"));
        assert!(old(None, Some(7)).contains("could not be read"));
    }
}
