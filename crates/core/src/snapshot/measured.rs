//! The last measurement that `test` kept on the host, and whether it still holds.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::address::PciAddress;

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
    /// How much was tested; none in files of before this was kept.
    #[serde(default)]
    pub depth: Option<TestedDepth>,
    /// Ordered pairs.
    pub pairs: Vec<TestedPair>,
    /// Times of all-reduce by size.
    pub all_reduce: Vec<TestedAllReduce>,
}

/// How much a measurement tested.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum TestedDepth {
    /// Ranges up to 4 MiB, no samples over all memory.
    Quick,
    /// Ranges up to 64 MiB, and samples over all memory that was free.
    Standard,
    /// Ranges up to 1 GiB, and samples over all memory that was free.
    Full,
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
    /// The driver or the process broke down with an error in a transfer.
    Broken,
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
    /// Bytes of the target's memory over which samples were spread, the fewest of all ways that
    /// were right; 0 or none where that was not done for all of them.
    #[serde(default)]
    pub sampled_bytes: Option<u64>,
    /// Best rate of writes.
    pub bandwidth_bytes_per_second: Option<f64>,
    /// Shortest time of one small transfer.
    pub latency_seconds: Option<f64>,
    /// What the link can carry one way, where that is known.
    pub line_rate_bytes_per_second: Option<f64>,
    /// What the host recorded meanwhile that must not be, in sentences.
    pub recorded: Vec<String>,
    /// Whether all that the host records was seen from the first transfer to the last: a log that
    /// could not be read, or lost lines, is no quiet log.
    #[serde(default)]
    pub watched: Option<bool>,
    /// What was to be said of the pair without a measurement when this one ended
    /// ([`crate::judge::measured::grounds`]): as
    /// long as that stays, what decides about the pair has not changed. None where nobody looked.
    #[serde(default)]
    pub grounds: Option<String>,
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
}

impl TestedPair {
    /// Samples were spread over the memory: ranges alone say nothing about what lies beyond them,
    /// where a window may be too small.
    pub(crate) fn is_sampled(&self) -> bool {
        self.sampled_bytes.is_some_and(|bytes| bytes > 0)
    }

    /// Less than half of what the link can carry.
    pub(crate) fn is_slow(&self) -> bool {
        match (self.bandwidth_bytes_per_second, self.line_rate_bytes_per_second) {
            (Some(rate), Some(line)) => rate * 2.0 < line,
            _ => false,
        }
    }

    /// In words.
    pub(crate) fn describe(&self) -> String {
        let what = match self.outcome {
            Outcome::Intact => "every byte was right".to_owned(),
            Outcome::Damaged => {
                format!("data was wrong ({})", self.damage.as_deref().unwrap_or("unclassified"))
            }
            Outcome::Hung => "a transfer did not end".to_owned(),
            Outcome::Broken => "the driver broke down in a transfer".to_owned(),
            Outcome::Refused => "the driver refused".to_owned(),
            Outcome::NotRun => "not measured".to_owned(),
        };
        let rate = self.bandwidth_bytes_per_second.map(|rate| format!("{:.1} GB/s", rate / 1e9));
        let part = (self.outcome == Outcome::Intact && !self.is_sampled())
            .then(|| "in the memory that was tried, a small part of all".to_owned());
        let parts =
            std::iter::once(what).chain(part).chain(rate).chain(self.recorded.iter().cloned());
        parts.collect::<Vec<_>>().join(", ")
    }
}
