//! Speculative decoding: tokens that a verification accepts.

use crate::interval::Interval;

/// How many tokens a verification gives, by draft steps: what was assumed where the operator has
/// not measured it on their own prompts. Middle from reports for one to three steps of MTP; the
/// ends are those of the reports that were found (2.0 to 3.7 for two and three steps), and never
/// more than all drafted tokens and one.
pub fn accepted(steps: u32) -> Interval {
    match steps {
        0 => Interval::exact(1.0),
        1 => Interval::new(1.6, 1.8, 1.95),
        2 => Interval::new(1.9, 2.4, 2.9),
        3 => Interval::new(2.0, 2.7, 3.6),
        more => {
            let all = f64::from(more) + 1.0;
            Interval::new(2.0, 2.9_f64.min(all), 4.0_f64.min(all))
        }
    }
}

/// Accepted tokens at which speculation begins to pay: the time of a step with it over that of one
/// without.
pub fn break_even(with: f64, without: f64) -> f64 {
    with / without
}
