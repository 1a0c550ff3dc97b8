//! Rates that the operator measured, made use of: the fixed cost of a layer is what no data sheet
//! says, and one measured rate gives it for every combination of the other assumptions.

use schemars::JsonSchema;
use serde::Serialize;

use super::{Context, rate};
use crate::allreduce::Arm;
use crate::interval::Interval;
use crate::step::{Scenario, Work};

/// Tokens a second that were measured with peer access off and without speculation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measured {
    /// Sequences that ran.
    pub concurrency: u32,
    /// Tokens a second, all sequences together.
    pub rate: f64,
}

/// What measured rates made of the assumptions.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Calibration {
    /// Fixed cost of a layer that the first rate leaves room for, µs.
    pub fixed_per_layer_us: Option<Interval>,
    /// Combinations of assumptions that can explain the rates, and all of them.
    pub kept: usize,
    /// All combinations.
    pub of: usize,
    /// What was found.
    pub notes: Vec<String>,
}

/// Most that a layer may cost beside its memory and messages.
const MOST_FIXED: f64 = 400e-6;

/// How far a further rate may be from what the fitted model says.
const TOLERANCE: f64 = 0.15;

/// Fits the scenarios to the first measured rate and keeps those that explain the others.
pub(super) fn apply(context: &mut Context<'_>) {
    let mut measured = context.request.measured.clone();
    measured.sort_by_key(|one| one.concurrency);
    let Some((first, others)) = measured.split_first() else { return };
    let of = context.scenarios.len();
    let mut notes = Vec::new();
    let fitted: Vec<Scenario> =
        context.scenarios.iter().filter_map(|one| fit(context, *one, *first)).collect();
    let middle = context.middle.and_then(|one| fit(context, one, *first));
    if fitted.is_empty() {
        notes.push(format!(
            "no combination of assumptions gives {} tokens a second at concurrency {} ({}): weight \
             format, speculation or the running batch differ from what was given; nothing was fitted",
            first.rate,
            first.concurrency,
            said(context, &context.scenarios, *first)
        ));
        let calibration = Calibration { fixed_per_layer_us: None, kept: 0, of, notes };
        context.calibration = Some(calibration);
        return;
    }
    let mut kept = fitted;
    let mut middle = middle;
    for other in others {
        let near = |one: &Scenario| {
            (predicted(context, one, *other) / other.rate - 1.0).abs() <= TOLERANCE
        };
        let explained: Vec<Scenario> = kept.iter().copied().filter(near).collect();
        if explained.is_empty() {
            notes.push(format!(
                "{} tokens a second at concurrency {} are not explained by what fits the first rate \
                 ({}): weight format, speculation, routing of the experts or the way of counting \
                 differ from what was given; this rate was left out",
                other.rate,
                other.concurrency,
                said(context, &kept, *other)
            ));
        } else {
            kept = explained;
            middle = middle.filter(|one| kept.contains(one));
        }
    }
    let micros: Vec<f64> = kept.iter().map(|one| one.fixed_per_layer * 1e6).collect();
    let fixed = Interval::over(&micros, middle.map(|one| one.fixed_per_layer * 1e6));
    let calibration = Calibration { fixed_per_layer_us: fixed, kept: kept.len(), of, notes };
    context.scenarios = kept;
    context.middle = middle;
    context.calibration = Some(calibration);
}

/// The scenario with the fixed cost that makes it give the measured rate; absent where that would
/// be negative or absurd.
fn fit(context: &Context<'_>, scenario: Scenario, measured: Measured) -> Option<Scenario> {
    let without = Scenario { fixed_per_layer: 0.0, ..scenario };
    let rest = context.setup().decode(&work(context, measured), Arm::Host, &without).total();
    let step = f64::from(measured.concurrency) / measured.rate;
    let fixed = (step - rest) / f64::from(context.request.model.layers);
    (0.0..=MOST_FIXED).contains(&fixed).then_some(Scenario { fixed_per_layer: fixed, ..scenario })
}

fn work(context: &Context<'_>, measured: Measured) -> Work {
    Work { sequences: f64::from(measured.concurrency), ..context.work(0) }
}

fn predicted(context: &Context<'_>, scenario: &Scenario, measured: Measured) -> f64 {
    let work = work(context, measured);
    rate(&work, 1.0, &context.setup().decode(&work, Arm::Host, scenario))
}

fn said(context: &Context<'_>, scenarios: &[Scenario], measured: Measured) -> String {
    let rates: Vec<f64> = scenarios.iter().map(|one| predicted(context, one, measured)).collect();
    Interval::over(&rates, None).map_or("nothing".to_owned(), |interval| {
        format!("the model says {:.0} to {:.0}", interval.low, interval.high)
    })
}
