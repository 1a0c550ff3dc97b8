//! What the model has to assume, each with its interval, and the scenarios made of it.

use schemars::JsonSchema;
use serde::Serialize;

use crate::allreduce::{Levels, Times};
use crate::interval::Interval;
use crate::model::Routing;
use crate::step::Scenario;

/// An assumption as it is shown.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct Assumption {
    /// Its name.
    pub name: &'static str,
    /// Its values.
    pub value: Interval,
    /// Unit of the values.
    pub unit: &'static str,
    /// Whether nothing of this host stands behind it.
    pub assumed: bool,
    /// What it rests on.
    pub source: String,
}

/// The uncertain numbers of every estimate.
#[derive(Clone, Debug, PartialEq)]
pub struct Assumptions {
    /// Share of the peak memory rate that a step reaches.
    pub memory_share: Interval,
    /// Share of the peak compute rate that prefill reaches.
    pub compute_share: Interval,
    /// Kernels and launches with graphs, seconds a layer.
    pub fixed_per_layer: Interval,
    /// Spread of tokens over experts; 1 is uniform.
    pub spread: Interval,
}

impl Default for Assumptions {
    /// One set for every model, GPU and engine: nothing is fitted to single figures.
    fn default() -> Self {
        Self {
            memory_share: Interval::new(0.75, 0.80, 0.90),
            compute_share: Interval::new(0.45, 0.67, 0.80),
            fixed_per_layer: Interval::new(50e-6, 65e-6, 140e-6),
            spread: Interval::new(0.62, 1.0, 1.0),
        }
    }
}

impl Assumptions {
    /// For the answer.
    pub fn shown(&self, times: &Times, experts: bool) -> Vec<Assumption> {
        let micros = |seconds: f64| seconds * 1e6;
        let mut shown = vec![
            Assumption {
                name: "memory_share",
                value: self.memory_share,
                unit: "of the peak rate",
                assumed: true,
                source: "device copies reach 0.80 on the RTX PRO 6000 (published) and 0.88 on the \
                         H200 (measured by this project)"
                    .to_owned(),
            },
            Assumption {
                name: "fixed_per_layer",
                value: self.fixed_per_layer.map(micros),
                unit: "µs",
                assumed: true,
                source:
                    "kernels and launches with graphs: 50 to 80 µs in tuned stacks, 110 to 140 \
                         µs in stock ones, from published figures; --measured fits it"
                        .to_owned(),
            },
            Assumption {
                name: "compute_share",
                value: self.compute_share,
                unit: "of the peak rate",
                assumed: true,
                source: "300 of 450 TFLOPS in the middle; bears on prefill".to_owned(),
            },
        ];
        if experts {
            shown.push(Assumption {
                name: "expert_spread",
                value: self.spread,
                unit: "of uniform routing",
                assumed: true,
                source: "uniform is the upper bound and the middle; 0.62 is 160 of 256 experts at \
                         128 tokens"
                    .to_owned(),
            });
        }
        for (name, backend) in [
            Some(("all_reduce_host", &times.host)),
            Some(("all_reduce_peer", &times.peer)),
            times.kernel.as_ref().map(|kernel| ("all_reduce_one_shot", kernel)),
        ]
        .into_iter()
        .flatten()
        {
            let [fast, middle, slow] =
                [0, 1, 2].map(|level| backend.curves.get(level).map_or(0.0, |c| c.seconds(8192.0)));
            shown.push(Assumption {
                name,
                value: Interval::new(micros(fast), micros(middle), micros(slow)),
                unit: "µs at 8 KiB",
                assumed: backend.assumed,
                source: backend.source.clone(),
            });
        }
        shown
    }

    /// The middle of everything.
    pub fn middle(&self) -> Scenario {
        Scenario {
            memory_share: self.memory_share.mid,
            compute_share: self.compute_share.mid,
            fixed_per_layer: self.fixed_per_layer.mid,
            routing: Routing { spread: self.spread.mid },
            levels: Levels::MIDDLE,
        }
    }

    /// Every combination of low, middle and high.
    pub fn scenarios(&self) -> Vec<Scenario> {
        let mut all = Vec::new();
        for memory_share in distinct(self.memory_share) {
            for compute_share in distinct(self.compute_share) {
                for fixed_per_layer in distinct(self.fixed_per_layer) {
                    for spread in distinct(self.spread) {
                        for host in 0..3 {
                            for peer in 0..3 {
                                all.push(Scenario {
                                    memory_share,
                                    compute_share,
                                    fixed_per_layer,
                                    routing: Routing { spread },
                                    levels: Levels { host, peer },
                                });
                            }
                        }
                    }
                }
            }
        }
        all
    }
}

fn distinct(interval: Interval) -> Vec<f64> {
    let mut levels = interval.levels().to_vec();
    levels.dedup();
    levels
}
