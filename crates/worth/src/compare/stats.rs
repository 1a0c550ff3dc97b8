//! Student's t and what is made of it.

/// Values of one side, one a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Samples {
    values: Vec<f64>,
}

impl Samples {
    /// Of finite values.
    pub fn new(values: Vec<f64>) -> Self {
        Self { values: values.into_iter().filter(|value| value.is_finite()).collect() }
    }

    /// How many.
    pub fn count(&self) -> usize {
        self.values.len()
    }

    fn size(&self) -> f64 {
        f64::from(u32::try_from(self.values.len()).unwrap_or(u32::MAX))
    }

    /// Their mean; zero without any.
    pub fn mean(&self) -> f64 {
        if self.values.is_empty() { 0.0 } else { self.values.iter().sum::<f64>() / self.size() }
    }

    /// Their variance, with n - 1; zero with fewer than two.
    pub fn variance(&self) -> f64 {
        if self.values.len() < 2 {
            return 0.0;
        }
        let mean = self.mean();
        self.values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / (self.size() - 1.0)
    }
}

/// Difference of two means with Welch's interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Welch {
    /// B less A.
    pub difference: f64,
    /// Half of the interval's width.
    pub half: f64,
    /// Smallest difference that would be shown four times of five.
    pub smallest: f64,
    /// Degrees of freedom.
    pub freedom: f64,
}

/// Least noise that is believed, as a logarithm: runs that agree to the last digit are no proof that
/// the next would.
const LEAST_NOISE: f64 = 1e-3;

/// Welch's interval at level `1 - alpha`; absent with fewer than two values on a side.
pub fn welch(a: &Samples, b: &Samples, alpha: f64) -> Option<Welch> {
    if a.count() < 2 || b.count() < 2 {
        return None;
    }
    let floor = LEAST_NOISE * LEAST_NOISE;
    let (of_a, of_b) = (a.variance().max(floor) / a.size(), b.variance().max(floor) / b.size());
    let error = (of_a + of_b).sqrt();
    let freedom =
        (of_a + of_b).powi(2) / (of_a.powi(2) / (a.size() - 1.0) + of_b.powi(2) / (b.size() - 1.0));
    let t = t_quantile(1.0 - alpha / 2.0, freedom);
    Some(Welch {
        difference: b.mean() - a.mean(),
        half: t * error,
        smallest: (t + t_quantile(0.8, freedom)) * error,
        freedom,
    })
}

/// The value that Student's t with so many degrees of freedom stays below with probability `p`.
pub fn t_quantile(p: f64, freedom: f64) -> f64 {
    let p = p.clamp(1e-9, 1.0 - 1e-9);
    if p < 0.5 {
        return -t_quantile(1.0 - p, freedom);
    }
    let (mut low, mut high) = (0.0_f64, 1.0_f64);
    while t_below(high, freedom) < p && high < 1e9 {
        high *= 2.0;
    }
    for _ in 0..80 {
        let middle = f64::midpoint(low, high);
        if t_below(middle, freedom) < p {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::midpoint(low, high)
}

/// Probability that Student's t stays below `t`, for `t >= 0`.
fn t_below(t: f64, freedom: f64) -> f64 {
    1.0 - 0.5 * beta_share(freedom / (freedom + t * t), freedom / 2.0, 0.5)
}

/// The regularised incomplete beta function, by its continued fraction.
fn beta_share(x: f64, a: f64, b: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    let front =
        (ln_gamma(a + b) - ln_gamma(a) - ln_gamma(b) + a * x.ln() + b * (1.0 - x).ln()).exp();
    if x < (a + 1.0) / (a + b + 2.0) {
        front * fraction(x, a, b) / a
    } else {
        1.0 - front * fraction(1.0 - x, b, a) / b
    }
}

/// Lentz's method.
#[expect(clippy::many_single_char_names, reason = "the names that the formula has everywhere")]
fn fraction(x: f64, a: f64, b: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let away = |value: f64| if value.abs() < TINY { TINY } else { value };
    let mut c = 1.0;
    let mut d = 1.0 / away(1.0 - (a + b) * x / (a + 1.0));
    let mut value = d;
    for step in 1..300_u32 {
        let m = f64::from(step);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        for term in [even, odd] {
            d = 1.0 / away(1.0 + term * d);
            c = away(1.0 + term / c);
            value *= d * c;
        }
        if (d * c - 1.0).abs() < 1e-13 {
            break;
        }
    }
    value
}

/// Logarithm of the gamma function (Lanczos, g = 7, nine terms).
fn ln_gamma(x: f64) -> f64 {
    const TERMS: [f64; 8] = [
        676.520_368_121_885_1,
        -1_259.139_216_722_402_8,
        771.323_428_777_653_1,
        -176.615_029_162_140_6,
        12.507_343_278_686_905,
        -0.138_571_095_265_720_12,
        9.984_369_578_019_572e-6,
        1.505_632_735_149_311_6e-7,
    ];
    let x = x - 1.0;
    let mut sum = 0.999_999_999_999_809_9;
    let mut place = 1.0;
    for term in TERMS {
        sum += term / (x + place);
        place += 1.0;
    }
    let t = x + 7.5;
    0.5 * (2.0 * std::f64::consts::PI).ln() + (x + 0.5) * t.ln() - t + sum.ln()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tables of Student's t.
    #[test]
    fn quantiles() {
        for (p, freedom, expected) in [
            (0.975, 1.0, 12.706),
            (0.975, 2.0, 4.303),
            (0.975, 4.0, 2.776),
            (0.975, 10.0, 2.228),
            (0.975, 1000.0, 1.962),
            (0.995, 5.0, 4.032),
            (0.8, 8.0, 0.889),
        ] {
            assert!((t_quantile(p, freedom) - expected).abs() < 1.5e-3, "{p} {freedom}");
        }
        assert!((t_quantile(0.025, 4.0) + 2.776).abs() < 1e-3);
    }

    #[test]
    fn welch_by_hand() {
        let a = Samples::new(vec![1.0, 2.0, 3.0]);
        let b = Samples::new(vec![4.0, 6.0, 8.0]);
        let found = welch(&a, &b, 0.05).unwrap();
        assert!((found.difference - 4.0).abs() < 1e-12);
        // Variances 1 and 4 over three each: freedom (5/3)^2 / ((1/3)^2/2 + (4/3)^2/2) = 2.94.
        assert!((found.freedom - 2.941).abs() < 1e-3);
        assert!((found.half - 3.219 * (5.0_f64 / 3.0).sqrt()).abs() < 0.02);
        assert_eq!(welch(&a, &Samples::new(vec![1.0]), 0.05), None);
    }
}
