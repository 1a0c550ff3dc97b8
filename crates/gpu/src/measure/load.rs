//! What is only measured where data was right: several transfers at once, and speed.

use peerway_core::address::PciAddress;

use super::Ongoing;
use super::run::Done;
use crate::precondition::{Precondition, Unmet};
use crate::protocol::{Event, Rate, SpeedWork, TogetherWork, Work};
use crate::result::{Engine, Mode, OperationResult, PairResult, TogetherResult, Verdict};

/// Repeats of each pattern of transfers.
const ROUNDS: u32 = 4;

/// Rates above the line rate by less than this are within the clocks' tolerance.
const TOLERANCE: f64 = 1.02;

impl Ongoing<'_> {
    fn step_limit_ms(&self) -> u64 {
        u64::try_from(self.settings.step_limit.as_millis()).unwrap_or(u64::MAX)
    }

    /// Ordered pairs that were right alone, with peer access, by this engine.
    fn sound(&self, engine: Engine) -> Vec<(PciAddress, PciAddress)> {
        let rows = self.result.pairs.iter().filter(|row| {
            (row.mode, row.engine, row.verdict) == (Mode::Peer, engine, Verdict::Intact)
        });
        rows.map(|row| (row.from, row.to)).collect()
    }

    /// Several transfers at once; one child for each engine, since damage may end it.
    pub(super) fn together(&mut self, gpus: &[PciAddress]) {
        for engine in self.settings.engines.clone() {
            let pairs = self.sound(engine);
            if pairs.is_empty() {
                continue;
            }
            let work = TogetherWork {
                gpus: gpus.to_vec(),
                pairs,
                engines: vec![engine],
                bytes: self.settings.together_bytes,
                rounds: ROUNDS,
                step_limit_ms: self.step_limit_ms(),
            };
            let done = self.run(Work::Together(work), gpus);
            let mut any = false;
            for event in done.events {
                if let Event::Together(result) = event {
                    any = true;
                    self.take_together(&result);
                    self.result.together.push(result);
                }
            }
            if let (Some(why), false) = (done.failure, any) {
                self.result.together.push(TogetherResult {
                    pattern: crate::result::Pattern::AllPairs,
                    hub: None,
                    engine,
                    verdict: if done.hung { Verdict::Hung } else { Verdict::NotRun },
                    damaged: Vec::new(),
                    bandwidth_bytes_per_second: None,
                    detail: Some(why),
                });
            }
        }
    }

    /// A pair that is only right alone is not right.
    fn take_together(&mut self, result: &TogetherResult) {
        for damaged in &result.damaged {
            for row in self.result.pairs.iter_mut().filter(|row| {
                (row.from, row.to, row.mode, row.engine)
                    == (damaged.from, damaged.to, Mode::Peer, result.engine)
            }) {
                row.verdict = row.verdict.and(Verdict::Damaged);
                row.damage.get_or_insert(damaged.report.damage);
                row.detail =
                    Some("right alone, wrong with other transfers at the same time".into());
            }
        }
    }

    /// Rates and latencies of pairs that were right, in the first mode that was; rates of GPUs with
    /// their host.
    pub(super) fn speed(&mut self, gpus: &[PciAddress]) {
        for gpu in gpus {
            let bytes = self.settings.speed_bytes;
            let work = Work::Host { gpu: *gpu, bytes, limit_ms: self.step_limit_ms() };
            let done = self.run(work, &[*gpu]);
            for event in done.events {
                if let Event::Host(rates) = event {
                    self.result.host.push(rates);
                }
            }
            if let Some(why) = done.failure {
                let kind = if done.hung { Unmet::DriverHung } else { Unmet::NoHostRates };
                let text = format!("copies between {gpu} and host memory: {why}");
                self.result.preconditions.push(Precondition::gpu(kind, *gpu, text));
            }
        }
        let mut rows = std::mem::take(&mut self.result.pairs);
        for from in gpus {
            for to in gpus.iter().filter(|to| *to != from) {
                for mode in [Mode::Peer, Mode::Vmm] {
                    // Both ways at once and ping-pong use the reverse direction too.
                    let back = intact(&rows, (*to, *from), mode);
                    let mut engines = intact(&rows, (*from, *to), mode);
                    engines.retain(|engine| back.contains(engine));
                    self.pair_speed(&mut rows, (*from, *to), mode, engines);
                }
            }
        }
        self.result.pairs = rows;
    }

    /// The same transfers from each GPU to itself: they show that kernels and figures are sound
    /// where there is no pair to show it.
    pub(super) fn loopback(&mut self, gpus: &[PciAddress]) {
        for gpu in gpus {
            for mode in self.settings.modes.clone() {
                let mut rows = self.pair((*gpu, *gpu), mode);
                if self.settings.speed && mode == Mode::Peer {
                    let engines = intact(&rows, (*gpu, *gpu), mode);
                    self.pair_speed(&mut rows, (*gpu, *gpu), mode, engines);
                }
                self.result.loopback.extend(rows);
            }
        }
    }

    fn pair_speed(
        &mut self,
        rows: &mut [PairResult],
        (from, to): (PciAddress, PciAddress),
        mode: Mode,
        engines: Vec<Engine>,
    ) {
        if engines.is_empty() {
            return;
        }
        let work = SpeedWork {
            from,
            to,
            mode,
            engines,
            bytes: self.settings.speed_bytes,
            step_limit_ms: self.step_limit_ms(),
        };
        let done = self.run(Work::Speed(work), &[from, to]);
        let known = self.settings.line_rates.iter().find(|rate| (rate.from, rate.to) == (from, to));
        let line_rate = known.map(|rate| rate.bytes_per_second);
        for row in rows.iter_mut().filter(|row| {
            (row.from, row.to, row.mode, row.verdict) == (from, to, mode, Verdict::Intact)
        }) {
            row.line_rate_bytes_per_second = line_rate;
            row.evidence.add(done.evidence.clone());
            take_speed(row, &done);
        }
    }
}

/// Engines by which a pair was right.
fn intact(rows: &[PairResult], (from, to): (PciAddress, PciAddress), mode: Mode) -> Vec<Engine> {
    let rows = rows.iter().filter(|row| {
        (row.from, row.to, row.mode, row.verdict) == (from, to, mode, Verdict::Intact)
    });
    rows.map(|row| row.engine).collect()
}

/// What a child for speed said of a row's engine.
fn take_speed(row: &mut PairResult, done: &Done) {
    for event in &done.events {
        match event {
            Event::Rate { engine, rate, value } if *engine == row.engine => {
                take_rate(row, *rate, *value);
            }
            Event::Cell { engine, result } if *engine == row.engine => take_damage(row, result),
            _ => {}
        }
    }
    let at = done.cell.map(|(engine, _)| engine);
    if let Some(why) = done.failure.as_ref().filter(|_| at.is_none_or(|at| at == row.engine)) {
        let verdict = if done.hung { Verdict::Hung } else { Verdict::Intact };
        row.verdict = row.verdict.and(verdict);
        row.detail = Some(format!("data was right; its speed could not be measured: {why}"));
    }
}

fn take_rate(row: &mut PairResult, rate: Rate, value: f64) {
    let limit = row.line_rate_bytes_per_second.map(|limit| limit * TOLERANCE);
    let (slot, above) = match rate {
        Rate::Write => (&mut row.bandwidth_bytes_per_second, limit),
        Rate::Read => (&mut row.read_bytes_per_second, limit),
        Rate::BothWays => (&mut row.both_ways_bytes_per_second, limit.map(|limit| limit * 2.0)),
        Rate::Latency => (&mut row.latency_seconds, None),
        Rate::Load => (&mut row.load_seconds, None),
    };
    *slot = Some(value);
    if above.is_some_and(|limit| value > limit) {
        row.above_line_rate = true;
        row.detail =
            Some("faster than the link can carry: the figures are not to be trusted".into());
    }
}

fn take_damage(row: &mut PairResult, result: &OperationResult) {
    row.verdict = row.verdict.and(result.verdict);
    if let Some(report) = &result.damage {
        row.damage.get_or_insert(report.damage);
    }
    row.detail.clone_from(&result.detail);
    row.operations.push(result.clone());
}
