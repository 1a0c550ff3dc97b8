//! Percentiles out of histograms that can be added up.

use std::fmt;

use hdrhistogram::Histogram as Hdr;
use schemars::JsonSchema;
use serde::Serialize;

/// Longest time that is told apart: an hour, in nanoseconds.
const LONGEST: u64 = 3_600_000_000_000;
/// Shortest that is: a microsecond.
const SHORTEST: u64 = 1_000;

/// The nearest number in floating point.
#[expect(clippy::as_conversions, clippy::cast_precision_loss, reason = "what it is for")]
pub(crate) fn float(whole: u64) -> f64 {
    whole as f64
}

/// Seconds of nanoseconds.
pub(crate) fn seconds(nanoseconds: u64) -> f64 {
    float(nanoseconds) / 1e9
}

/// Times from a microsecond to an hour, each to one part in a thousand. Fixed memory; two of them add
/// up to what one would have held.
#[derive(Clone)]
pub struct Times {
    histogram: Option<Hdr<u64>>,
}

impl fmt::Debug for Times {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Times").field("count", &self.count()).finish_non_exhaustive()
    }
}

impl Default for Times {
    fn default() -> Self {
        // `None` cannot be: the bounds are constants that the library takes.
        Self { histogram: Hdr::new_with_bounds(SHORTEST, LONGEST, 3).ok() }
    }
}

impl Times {
    /// Adds a time in nanoseconds, `count` times.
    pub fn add(&mut self, nanoseconds: u64, count: u64) {
        if let Some(histogram) = &mut self.histogram {
            histogram.saturating_record_n(nanoseconds, count);
        }
    }

    /// Adds all that another holds.
    pub fn merge(&mut self, other: &Self) {
        if let (Some(histogram), Some(other)) = (&mut self.histogram, &other.histogram) {
            // Both have the same bounds, so that it always fits.
            if histogram.add(other).is_err() {
                self.histogram = None;
            }
        }
    }

    /// How many times it holds.
    pub fn count(&self) -> u64 {
        self.histogram.as_ref().map_or(0, Hdr::len)
    }

    /// The time in nanoseconds that a share of all does not exceed.
    pub fn quantile(&self, share: f64) -> Option<u64> {
        let histogram = self.histogram.as_ref().filter(|histogram| !histogram.is_empty())?;
        Some(histogram.value_at_quantile(share))
    }

    /// Its summary, if it holds anything.
    pub fn summary(&self) -> Option<Summary> {
        let histogram = self.histogram.as_ref().filter(|histogram| !histogram.is_empty())?;
        let at = |share| seconds(histogram.value_at_quantile(share));
        Some(Summary {
            count: histogram.len(),
            mean: histogram.mean() / 1e9,
            min: seconds(histogram.min()),
            p50: at(0.5),
            p90: at(0.9),
            p95: at(0.95),
            p99: at(0.99),
            p999: at(0.999),
            max: seconds(histogram.max()),
        })
    }

    /// The buckets that hold anything: the longest time of each in nanoseconds, and its count.
    /// Histograms of this kind are merged by adding counts of equal times.
    pub fn buckets(&self) -> Vec<(u64, u64)> {
        self.histogram
            .iter()
            .flat_map(|histogram| {
                histogram
                    .iter_recorded()
                    .map(|step| (step.value_iterated_to(), step.count_at_value()))
            })
            .collect()
    }
}

/// Times, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Summary {
    /// How many.
    pub count: u64,
    /// Mean.
    pub mean: f64,
    /// Shortest.
    pub min: f64,
    /// Median.
    pub p50: f64,
    /// 90 % are no longer.
    pub p90: f64,
    /// 95 % are no longer.
    pub p95: f64,
    /// 99 % are no longer.
    pub p99: f64,
    /// 99.9 % are no longer.
    pub p999: f64,
    /// Longest.
    pub max: f64,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn nothing_has_no_percentiles() {
        assert_eq!(Times::default().summary(), None);
        assert_eq!(Times::default().quantile(0.5), None);
        let mut times = Times::default();
        times.add(u64::MAX, 1);
        assert!(times.quantile(1.0).unwrap() >= LONGEST, "longer than an hour is an hour");
    }

    proptest! {
        #[test]
        fn percentiles_are_those_of_all_the_values(
            parts in prop::collection::vec(
                prop::collection::vec((1_000_u64..10_000_000_000, 1_u64..4), 1..120), 1..5),
            share in prop::sample::select(vec![0.5, 0.9, 0.95, 0.99, 0.999, 1.0]),
        ) {
            let (mut merged, mut exact) = (Times::default(), Vec::new());
            for part in &parts {
                let mut one = Times::default();
                for (value, count) in part {
                    one.add(*value, *count);
                    exact.extend((0..*count).map(|_| *value));
                }
                merged.merge(&one);
            }
            exact.sort_unstable();
            prop_assert_eq!(merged.count(), u64::try_from(exact.len()).unwrap());
            let rank = (share * exact.len() as f64).ceil() as usize;
            let wanted = exact[rank.max(1) - 1];
            let found = merged.quantile(share).unwrap();
            prop_assert!(found.abs_diff(wanted) <= wanted / 1000 + 1024, "{found} for {wanted}");
            let mean = exact.iter().sum::<u64>() as f64 / exact.len() as f64 / 1e9;
            let summary = merged.summary().unwrap();
            prop_assert!((summary.mean - mean).abs() <= mean / 500.0 + 2e-6);
            let counts: u64 = merged.buckets().iter().map(|(_, count)| count).sum();
            prop_assert_eq!(counts, merged.count());
        }
    }
}
