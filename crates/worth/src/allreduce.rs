//! How long an all-reduce takes, by message size: measured, or assumed from published curves.

mod measured;
mod seeds;

use schemars::JsonSchema;
use serde::Serialize;
use thiserror::Error;

pub use seeds::{PublishedCurve, published};

/// Time of an all-reduce over the size of the message: straight lines between points.
///
/// Latency and a rate alone are wrong by a factor of two here: between 1 KiB and 1 MiB a ring over
/// PCIe gains time at less than half the rate that the same links copy at.
#[derive(Clone, Debug, PartialEq)]
pub struct Curve {
    points: Vec<(f64, f64)>,
    /// Seconds a byte beyond the last point.
    tail: f64,
}

/// Why points make no curve.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum CurveError {
    /// Fewer than two sizes.
    #[error("fewer than two message sizes")]
    TooFew,
    /// A size or time that cannot be.
    #[error("a size or a time is not a positive number")]
    NotPositive,
}

impl Curve {
    /// From points of bytes and seconds; of several times for one size the middle one counts.
    ///
    /// # Errors
    /// Fewer than two sizes, or numbers that cannot be.
    pub fn from_points(points: &[(f64, f64)]) -> Result<Self, CurveError> {
        if points.iter().any(|(bytes, seconds)| {
            !bytes.is_finite() || !seconds.is_finite() || *bytes <= 0.0 || *seconds <= 0.0
        }) {
            return Err(CurveError::NotPositive);
        }
        let mut sorted = points.to_vec();
        sorted.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.total_cmp(&b.1)));
        let points: Vec<(f64, f64)> = sorted
            .chunk_by(|a, b| a.0.to_bits() == b.0.to_bits())
            .filter_map(|same| same.get(same.len() / 2).copied())
            .collect();
        let [.., (before, early), (last, late)] = points.as_slice() else {
            return Err(CurveError::TooFew);
        };
        let tail = ((late - early) / (last - before)).max(0.0);
        Ok(Self { points, tail })
    }

    /// A straight line: `latency` seconds, then a ring's `2(n-1)/n` of the bytes at `rate`.
    pub fn line(latency: f64, rate: f64, ranks: u32) -> Self {
        Self { points: vec![(0.0, latency)], tail: ring(ranks) / rate }
    }

    /// Seconds for a message of so many bytes.
    pub fn seconds(&self, bytes: f64) -> f64 {
        let mut before: Option<(f64, f64)> = None;
        for (size, time) in &self.points {
            if bytes <= *size {
                return before.map_or(*time, |(from, start)| {
                    start + (time - start) * (bytes - from) / (size - from)
                });
            }
            before = Some((*size, *time));
        }
        before.map_or(0.0, |(size, time)| time + (bytes - size) * self.tail)
    }

    /// Seconds for an all-gather whose result has so many bytes: half of what an all-reduce of that
    /// size moves, after the same latency.
    pub fn gather_seconds(&self, bytes: f64) -> f64 {
        let latency = self.latency();
        latency + (self.seconds(bytes) - latency).max(0.0) / 2.0
    }

    /// The shortest time at all.
    pub fn latency(&self) -> f64 {
        self.points.iter().map(|(_, time)| *time).fold(f64::INFINITY, f64::min)
    }

    /// The same shape with another latency and the rest times `factor`.
    #[must_use]
    fn reshaped(&self, latency: f64, factor: f64) -> Self {
        let own = self.latency();
        let points = self
            .points
            .iter()
            .map(|(bytes, time)| (*bytes, latency + (time - own).max(0.0) * factor))
            .collect();
        Self { points, tail: self.tail * factor }
    }

    /// Every time multiplied.
    #[must_use]
    fn scaled(&self, factor: f64) -> Self {
        let points = self.points.iter().map(|(bytes, time)| (*bytes, time * factor)).collect();
        Self { points, tail: self.tail * factor }
    }

    /// Largest message that was measured.
    pub fn longest(&self) -> f64 {
        self.points.last().map_or(0.0, |(bytes, _)| *bytes)
    }
}

/// Share of the message that a ring moves over each link, a direction.
pub fn ring(ranks: u32) -> f64 {
    let n = f64::from(ranks.max(1));
    2.0 * (n - 1.0) / n
}

/// A way of summing over GPUs: its curve at its fastest, in the middle, at its slowest.
#[derive(Clone, Debug, PartialEq)]
pub struct Backend {
    /// Fast, middle, slow.
    pub curves: [Curve; 3],
    /// Whether it was not measured on this host.
    pub assumed: bool,
    /// Where it comes from.
    pub source: String,
}

impl Backend {
    fn exact(curve: Curve, source: String) -> Self {
        Self { curves: [curve.clone(), curve.clone(), curve], assumed: false, source }
    }
}

/// How the sums travel.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, serde::Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Arm {
    /// Peer access off: NCCL through host memory.
    Host,
    /// NCCL over peer access.
    Peer,
    /// Kernels of the engine over peer access, NCCL where it is faster.
    PeerKernel,
}

impl Arm {
    /// In words.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Host => "P2P off",
            Self::Peer => "P2P, NCCL",
            Self::PeerKernel => "P2P, one-shot kernels",
        }
    }
}

/// All-reduce times of one set of GPUs.
#[derive(Clone, Debug, PartialEq)]
pub struct Times {
    /// GPUs that take part.
    pub ranks: u32,
    /// NCCL through host memory.
    pub host: Backend,
    /// NCCL over peer access.
    pub peer: Backend,
    /// One-shot kernels over peer access; absent where there are none for these GPUs.
    pub kernel: Option<Backend>,
    /// What to know about them.
    pub notes: Vec<String>,
}

impl Times {
    /// Seconds of an all-reduce, at level 0 (fast), 1 or 2 (slow) of each way.
    pub fn all_reduce(&self, arm: Arm, levels: Levels, bytes: f64) -> f64 {
        let at = |backend: &Backend, level: usize| {
            backend.curves.get(level).map_or(0.0, |curve| curve.seconds(bytes))
        };
        match (arm, &self.kernel) {
            (Arm::Host, _) => at(&self.host, levels.host),
            (Arm::PeerKernel, Some(kernel)) => {
                at(kernel, levels.peer).min(at(&self.peer, levels.peer))
            }
            (Arm::Peer, _) | (Arm::PeerKernel, None) => at(&self.peer, levels.peer),
        }
    }

    /// Seconds of an all-gather; always NCCL's.
    pub fn gather(&self, arm: Arm, levels: Levels, bytes: f64) -> f64 {
        let (backend, level) = match arm {
            Arm::Host => (&self.host, levels.host),
            Arm::Peer | Arm::PeerKernel => (&self.peer, levels.peer),
        };
        backend.curves.get(level).map_or(0.0, |curve| curve.gather_seconds(bytes))
    }

    /// Whether a way of summing, or a part of it, was not measured on this host.
    pub fn arm_assumed(&self, arm: Arm) -> bool {
        match arm {
            Arm::Host => self.host.assumed,
            Arm::Peer => self.peer.assumed,
            Arm::PeerKernel => {
                self.peer.assumed || self.kernel.as_ref().is_some_and(|kernel| kernel.assumed)
            }
        }
    }

    /// Whether anything in it was not measured on this host.
    pub fn assumed(&self) -> bool {
        self.host.assumed || self.peer.assumed
    }
}

/// Which level of each way holds in a scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Levels {
    /// Through host memory.
    pub host: usize,
    /// Over peer access.
    pub peer: usize,
}

impl Levels {
    /// The middle of each.
    pub const MIDDLE: Self = Self { host: 1, peer: 1 };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(points: &[(f64, f64)], bytes: f64, expected: Option<f64>) {
        let seen = Curve::from_points(points).ok().map(|curve| curve.seconds(bytes));
        assert_eq!(seen, expected);
    }

    #[test]
    fn between_and_beyond_points() {
        let points = [(1.0, 10.0), (3.0, 20.0), (5.0, 40.0)];
        check(&points, 0.5, Some(10.0));
        check(&points, 2.0, Some(15.0));
        check(&points, 5.0, Some(40.0));
        check(&points, 7.0, Some(60.0));
        check(&[(1.0, 10.0)], 1.0, None);
        check(&[(1.0, 10.0), (2.0, f64::NAN)], 1.0, None);
        // A late point that is faster gives no time back beyond it.
        check(&[(1.0, 10.0), (2.0, 9.0)], 100.0, Some(9.0));
        // Of several times for one size the middle one.
        check(&[(1.0, 9.0), (1.0, 10.0), (1.0, 30.0), (2.0, 30.0)], 1.0, Some(10.0));
    }

    #[test]
    fn a_line_is_latency_and_a_ring() {
        let curve = Curve::line(30e-6, 12e9, 4);
        assert!((curve.seconds(786_432.0) - 128.304e-6).abs() < 1e-9);
        assert!((curve.gather_seconds(496_640.0) - 61.04e-6).abs() < 1e-8);
    }
}
