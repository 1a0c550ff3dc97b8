//! What is only measured where data was right: several transfers at once, and speed.

use peerway_core::address::PciAddress;

use super::Ongoing;
use super::run::Done;
use crate::evidence::LineSeen;
use crate::precondition::{Precondition, Unmet};
use crate::protocol::{Event, Rate, SpeedWork, TogetherWork, Work};
use crate::result::{
    AllReduceResult, Arm, Engine, Mode, OperationResult, PairResult, Pattern, TogetherResult,
    Verdict,
};

/// Repeats of each pattern of transfers.
const ROUNDS: u32 = 4;

/// Rates above the line rate by less than this are within the clocks' tolerance.
const TOLERANCE: f64 = 1.02;

/// An ordered pair, and the mode in which it takes part in transfers at once.
type AtWork = (PciAddress, PciAddress, Mode);

impl Ongoing<'_> {
    fn step_limit_ms(&self) -> u64 {
        u64::try_from(self.settings.step_limit.as_millis()).unwrap_or(u64::MAX)
    }

    /// Ordered pairs that were right alone by this engine, each in the first mode that was, of
    /// those that one process can use.
    fn sound(&self, engine: Engine) -> Vec<AtWork> {
        let mut sound: Vec<AtWork> = Vec::new();
        for mode in [Mode::Peer, Mode::Vmm] {
            for row in self.result.pairs.iter().filter(|row| {
                (row.mode, row.engine, row.verdict) == (mode, engine, Verdict::Intact)
            }) {
                if !sound.iter().any(|(from, to, _)| (*from, *to) == (row.from, row.to)) {
                    sound.push((row.from, row.to, mode));
                }
            }
        }
        sound
    }

    /// Several transfers at once; one child for each engine, since damage may end it.
    pub(super) fn together(&mut self, gpus: &[PciAddress]) {
        for engine in self.settings.engines.clone() {
            let pairs = self.sound(engine);
            if pairs.is_empty() {
                continue;
            }
            let at_work = pairs.clone();
            let work = TogetherWork {
                gpus: gpus.to_vec(),
                pairs,
                engines: vec![engine],
                bytes: self.settings.together_bytes,
                rounds: ROUNDS,
                step_limit_ms: self.step_limit_ms(),
            };
            let done = self.run(Work::Together(work), gpus);
            let verdict = done.verdict();
            // A row that tells of the failure itself.
            let mut told = false;
            for event in done.events {
                if let Event::Together(result) = event {
                    told |= result.verdict != Verdict::Intact;
                    self.take_together(&result, &at_work);
                    self.result.together.push(result);
                }
            }
            if let (Some(why), false) = (done.failure, told) {
                let result = TogetherResult {
                    pattern: Pattern::AllPairs,
                    hub: None,
                    engine,
                    verdict,
                    pairs: at_work.iter().map(|(from, to, _)| (*from, *to)).collect(),
                    damaged: Vec::new(),
                    bandwidth_bytes_per_second: None,
                    detail: Some(why),
                };
                self.take_together(&result, &at_work);
                self.result.together.push(result);
            }
        }
    }

    /// A pair that is only right alone is not right: neither one whose data was wrong under load,
    /// nor one of several of which some did not come to their end.
    fn take_together(&mut self, result: &TogetherResult, at_work: &[AtWork]) {
        if matches!(result.verdict, Verdict::Hung | Verdict::Broken) {
            for row in self.result.pairs.iter_mut().filter(|row| {
                row.engine == result.engine
                    && result.pairs.contains(&(row.from, row.to))
                    && at_work.contains(&(row.from, row.to, row.mode))
            }) {
                blame(
                    row,
                    result.verdict,
                    "right alone, not with other transfers at the same time",
                );
            }
        }
        for damaged in &result.damaged {
            for row in self.result.pairs.iter_mut().filter(|row| {
                (row.from, row.to, row.engine) == (damaged.from, damaged.to, result.engine)
                    && at_work.contains(&(row.from, row.to, row.mode))
            }) {
                row.verdict = row.verdict.and(Verdict::Damaged);
                row.damage.get_or_insert(damaged.report.damage);
                row.detail =
                    Some("right alone, wrong with other transfers at the same time".into());
            }
        }
    }

    /// Pairs that were right, and over which NCCL came to wrong sums or to no end with P2P alone:
    /// kernels made its requests.
    pub(super) fn take_all_reduce(&mut self) {
        let failed = |verdict: Verdict| verdict >= Verdict::Broken;
        let mut blamed = Vec::new();
        for row in &self.result.all_reduce {
            let other = |other: &AllReduceResult| {
                other.arm == Arm::Host && other.processes == row.processes && failed(other.verdict)
            };
            // What fails through host memory too is not P2P's fault.
            if row.arm == Arm::P2p
                && failed(row.verdict)
                && !self.result.all_reduce.iter().any(other)
            {
                blamed.push((row.gpus.clone(), row.verdict));
            }
        }
        for (gpus, verdict) in blamed {
            for row in self.result.pairs.iter_mut().filter(|row| {
                row.engine == Engine::Sm && gpus.contains(&row.from) && gpus.contains(&row.to)
            }) {
                blame(row, verdict, "right alone, not in NCCL's all-reduce over these GPUs");
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
                    // Full speed is nothing to try where any mode failed.
                    if failed(&rows, (*from, *to)) || failed(&rows, (*to, *from)) {
                        engines.clear();
                    }
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
                let mut rows = self.pair((*gpu, *gpu), mode, &[]);
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
        let line = known
            .map(|rate| LineSeen { seen: rate.bytes_per_second, most: rate.bytes_per_second })
            .or_else(|| self.watch.line(from, to));
        for row in rows.iter_mut().filter(|row| {
            (row.from, row.to, row.mode, row.verdict) == (from, to, mode, Verdict::Intact)
        }) {
            row.evidence.add(done.evidence.clone());
            take_speed(row, &done, line);
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

/// Whether a pair failed in any mode, by any engine.
fn failed(rows: &[PairResult], (from, to): (PciAddress, PciAddress)) -> bool {
    rows.iter().any(|row| (row.from, row.to) == (from, to) && row.verdict >= Verdict::Broken)
}

/// A failure that was seen while more than this pair was at work.
fn blame(row: &mut PairResult, verdict: Verdict, why: &str) {
    if row.verdict < verdict {
        row.verdict = verdict;
        row.detail = Some(why.to_owned());
    }
}

/// What a child for speed said of a row's engine.
fn take_speed(row: &mut PairResult, done: &Done, line: Option<LineSeen>) {
    for event in &done.events {
        match event {
            Event::Rate { engine, rate, value } if *engine == row.engine => {
                take_rate(row, *rate, *value, line);
            }
            Event::Cell { engine, result } if *engine == row.engine => take_damage(row, result),
            _ => {}
        }
    }
    let measured = [row.bandwidth_bytes_per_second, row.read_bytes_per_second];
    let best = measured.into_iter().flatten().reduce(f64::max);
    row.line_rate_bytes_per_second = line.map(|line| {
        // Links that were only seen at rest are faster at work.
        let faster = best.is_some_and(|best| best > line.seen * TOLERANCE);
        if faster { line.most } else { line.seen }
    });
    let at = done.cell.map(|(engine, _)| engine);
    if let Some(why) = done.failure.as_ref().filter(|_| at.is_none_or(|at| at == row.engine)) {
        // What was not measured for want of memory or time is no fault of the pair.
        if done.verdict() >= Verdict::Broken {
            row.verdict = row.verdict.and(done.verdict());
        }
        let said = format!("data was right; its speed could not be measured: {why}");
        row.detail = Some(row.detail.take().map_or(said.clone(), |had| format!("{had}; {said}")));
    }
}

fn take_rate(row: &mut PairResult, rate: Rate, value: f64, line: Option<LineSeen>) {
    let limit = line.map(|line| line.most * TOLERANCE);
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
