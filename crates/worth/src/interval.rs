//! A value with what is known of its uncertainty.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Low, middle and high; `low <= mid <= high`, all finite.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Interval {
    /// Lowest value over the assumptions.
    pub low: f64,
    /// Value under the middle of each assumption.
    pub mid: f64,
    /// Highest value over the assumptions.
    pub high: f64,
}

impl Interval {
    /// One value, known.
    pub const fn exact(value: f64) -> Self {
        Self { low: value, mid: value, high: value }
    }

    /// Three values in order.
    pub const fn new(low: f64, mid: f64, high: f64) -> Self {
        Self { low, mid, high }
    }

    /// The extremes of several values around a middle one; without a middle, around the median.
    /// Absent where there is no finite value.
    pub fn over(values: &[f64], mid: Option<f64>) -> Option<Self> {
        let mut finite: Vec<f64> = values.iter().copied().filter(|one| one.is_finite()).collect();
        finite.sort_by(f64::total_cmp);
        let (low, high) = (*finite.first()?, *finite.last()?);
        let median = *finite.get(finite.len() / 2)?;
        let mid = mid.filter(|one| one.is_finite()).unwrap_or(median);
        Some(Self { low, mid: mid.clamp(low, high), high })
    }

    /// Its three levels.
    pub const fn levels(&self) -> [f64; 3] {
        [self.low, self.mid, self.high]
    }

    /// Whether low and high are the same.
    pub fn is_exact(&self) -> bool {
        self.low.to_bits() == self.high.to_bits()
    }

    /// Every level through a function that keeps or turns the order.
    #[must_use]
    pub fn map(&self, change: impl Fn(f64) -> f64) -> Self {
        let (a, mid, b) = (change(self.low), change(self.mid), change(self.high));
        Self { low: a.min(b), mid, high: a.max(b) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extremes_around_the_middle() {
        assert_eq!(Interval::over(&[3.0, 1.0, 2.0], Some(2.5)), Some(Interval::new(1.0, 2.5, 3.0)));
        assert_eq!(Interval::over(&[3.0, 1.0, 2.0], None), Some(Interval::new(1.0, 2.0, 3.0)));
        assert_eq!(Interval::over(&[f64::NAN], None), None);
        assert_eq!(Interval::over(&[1.0], Some(f64::INFINITY)), Some(Interval::exact(1.0)));
        assert_eq!(Interval::new(1.0, 2.0, 4.0).map(|x| -x), Interval::new(-4.0, -2.0, -1.0));
    }
}
