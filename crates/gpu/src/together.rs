//! Correctness of several transfers at once: what is right alone can be wrong under load.

use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use crate::check::{self, Arena};
use crate::driver::{Driver, Event as Mark, HostBuffer, Stream};
use crate::gpu::{Buffer, Gpu, wait};
use crate::kernels::{Row, Width};
use crate::plan::Span;
use crate::protocol::{Event, TogetherWork};
use crate::report::Reporter;
use crate::result::{Engine, Mode, Operation, Pattern, TogetherDamage, TogetherResult, Verdict};
use crate::status::GpuError;
use crate::tag::{Header, UNIT, run};
use crate::verdict::Expectation;

/// Longest time that work waits behind the latch, should this process be stopped.
const LATCH: Duration = Duration::from_secs(20);

/// Bytes of the host traffic of one GPU.
const HOST_BYTES: usize = 8 << 20;

/// Copies in each direction of the host traffic.
const HOST_COPIES: u32 = 4;

/// One transfer of several.
struct Flow {
    from: usize,
    to: usize,
    operation: Operation,
    stream: Stream,
    source: Buffer,
    slot: Buffer,
    start: Mark,
    end: Mark,
}

/// All GPUs and all transfers that may run.
struct Bench<'a> {
    driver: Rc<Driver>,
    work: &'a TogetherWork,
    gpus: &'a [Gpu],
    flows: Vec<Flow>,
    latch: HostBuffer,
    host: Vec<(HostBuffer, HostBuffer, Buffer)>,
    generation: u16,
}

/// Runs every pattern with every engine.
pub(crate) fn at_once(
    driver: &Rc<Driver>,
    work: &TogetherWork,
    out: &mut Reporter<'_>,
) -> Result<(), GpuError> {
    let mut gpus = Vec::new();
    for (number, address) in (0_u16..).zip(&work.gpus) {
        out.step(None, format!("open {address}"))?;
        gpus.push(Gpu::open(driver, *address, number)?);
    }
    let mut bench = Bench::new(driver, work, &gpus)?;
    for engine in &work.engines {
        for (pattern, hub) in patterns(gpus.len()) {
            bench.pattern(pattern, hub, *engine, out)?;
        }
    }
    Ok(())
}

/// With two GPUs, all pairs are both directions of the one pair; hubs need a third.
fn patterns(gpus: usize) -> Vec<(Pattern, Option<usize>)> {
    let mut patterns = vec![(Pattern::AllPairs, None), (Pattern::AllPairsWithHost, None)];
    if gpus > 2 {
        for hub in 0..gpus {
            patterns.push((Pattern::AllToOne, Some(hub)));
            patterns.push((Pattern::OneToAll, Some(hub)));
        }
    }
    patterns
}

impl Flow {
    /// Whose memory the data comes from, and whose it goes to.
    fn ends(&self) -> (usize, usize) {
        match self.operation {
            Operation::Write => (self.from, self.to),
            Operation::Read => (self.to, self.from),
        }
    }
}

/// A transfer between two GPUs, with memory on both.
fn flow(
    driver: &Rc<Driver>,
    bytes: u64,
    (from, requester): (usize, &Gpu),
    (to, target): (usize, &Gpu),
    (mode, operation): (Mode, Operation),
) -> Result<Flow, GpuError> {
    let far = match mode {
        Mode::Vmm => target.alloc_shared(bytes, &[requester])?,
        Mode::Peer | Mode::Ipc | Mode::Staged => {
            requester.enter()?;
            driver.enable_peer(target.context())?;
            target.alloc(bytes)?
        }
    };
    let near = requester.alloc(bytes)?;
    requester.enter()?;
    let (source, slot) = match operation {
        Operation::Write => (near, far),
        Operation::Read => (far, near),
    };
    Ok(Flow {
        from,
        to,
        operation,
        stream: Stream::new(driver)?,
        start: Mark::new(driver)?,
        end: Mark::new(driver)?,
        source,
        slot,
    })
}

impl<'a> Bench<'a> {
    fn new(driver: &Rc<Driver>, work: &'a TogetherWork, gpus: &'a [Gpu]) -> Result<Self, GpuError> {
        let mut flows = Vec::new();
        for (from, source) in gpus.iter().enumerate() {
            for (to, target) in gpus.iter().enumerate() {
                let ends = (source.address(), target.address());
                let Some((.., mode)) = work.pairs.iter().find(|(a, b, _)| (*a, *b) == ends) else {
                    continue;
                };
                for operation in [Operation::Write, Operation::Read] {
                    let how = (*mode, operation);
                    flows.push(flow(driver, work.bytes, (from, source), (to, target), how)?);
                }
            }
        }
        let mut host = Vec::new();
        for gpu in gpus {
            gpu.enter()?;
            let up = HostBuffer::new(driver, HOST_BYTES)?;
            let down = HostBuffer::new(driver, HOST_BYTES)?;
            host.push((up, down, gpu.alloc(2 * u64::try_from(HOST_BYTES).unwrap_or(0))?));
        }
        let latch = HostBuffer::new(driver, 64)?;
        Ok(Self { driver: Rc::clone(driver), work, gpus, flows, latch, host, generation: 0 })
    }

    fn limit(&self) -> Duration {
        Duration::from_millis(self.work.step_limit_ms)
    }

    /// Rounds of one pattern, and its result.
    fn pattern(
        &mut self,
        pattern: Pattern,
        hub: Option<usize>,
        engine: Engine,
        out: &mut Reporter<'_>,
    ) -> Result<(), GpuError> {
        let mut result = TogetherResult {
            pattern,
            hub: hub.and_then(|hub| self.gpus.get(hub)).map(Gpu::address),
            engine,
            verdict: Verdict::Intact,
            pairs: Vec::new(),
            damaged: Vec::new(),
            bandwidth_bytes_per_second: None,
            detail: None,
        };
        let writes = |flow: &Flow| flow.operation == Operation::Write;
        let runs = |flow: &Flow| match pattern {
            Pattern::AllPairs | Pattern::AllPairsWithHost => true,
            Pattern::AllToOne => writes(flow) && hub == Some(flow.to),
            Pattern::OneToAll => writes(flow) && hub == Some(flow.from),
        };
        let chosen: Vec<usize> = self
            .flows
            .iter()
            .enumerate()
            .filter(|(_, flow)| runs(flow))
            .map(|(at, _)| at)
            .collect();
        if chosen.is_empty() {
            return Ok(());
        }
        let ends = |flow: &Flow| Some((self.gpus.get(flow.from)?, self.gpus.get(flow.to)?));
        let mut pairs: Vec<_> = chosen
            .iter()
            .filter_map(|at| self.flows.get(*at).and_then(ends))
            .map(|(from, to)| (from.address(), to.address()))
            .collect();
        pairs.dedup();
        result.pairs = pairs;
        out.step(None, format!("{pattern:?} by {engine:?}"))?;
        let mut rates = Vec::new();
        for _ in 0..self.work.rounds {
            match self.round(pattern, &chosen, engine, &mut result) {
                Ok(rate) => rates.push(rate),
                Err(error) => {
                    result.verdict = result.verdict.and(error.verdict());
                    result.detail = Some(error.to_string());
                    out.emit(&Event::Together(result))?;
                    return Err(error);
                }
            }
            if result.verdict != Verdict::Intact {
                break;
            }
        }
        if result.verdict == Verdict::Intact {
            rates.sort_by(f64::total_cmp);
            result.bandwidth_bytes_per_second = rates.get(rates.len() / 2).copied();
        }
        out.emit(&Event::Together(result))
    }

    /// Prepares, runs all at once, checks every destination on its owner; bytes per second.
    fn round(
        &mut self,
        pattern: Pattern,
        chosen: &[usize],
        engine: Engine,
        result: &mut TogetherResult,
    ) -> Result<f64, GpuError> {
        self.generation = self.generation.wrapping_add(2);
        let flows: Vec<&Flow> = chosen.iter().filter_map(|at| self.flows.get(*at)).collect();
        for flow in &flows {
            let (payload, poison) = self.headers(flow);
            let (source, target) = flow.ends();
            let (Some(source), Some(target)) = (self.gpus.get(source), self.gpus.get(target))
            else {
                continue;
            };
            source.fill(Row::dense(flow.source.pointer(), 0, flow.source.units()), payload)?;
            let slot = Arena { base: flow.slot.pointer(), bytes: flow.slot.bytes() };
            check::poison(target, slot, Span::Range { offset: 0, bytes: slot.bytes }, poison)?;
        }
        for gpu in self.gpus {
            gpu.finish(self.limit(), "the preparation")?;
        }
        let longest = self.release(pattern, &flows, engine)?;
        for flow in &flows {
            let (payload, poison) = self.headers(flow);
            // Whoever has the slot checks it.
            let Some(owner) = self.gpus.get(flow.ends().1) else { continue };
            let slot = Arena { base: flow.slot.pointer(), bytes: flow.slot.bytes() };
            let expectation = Expectation { payload, poison, start: 0, end: self.work.bytes };
            let found = check::check_range(owner, slot, expectation, self.limit())?;
            let ends = (self.gpus.get(flow.from), self.gpus.get(flow.to));
            if let (Some(mut report), (Some(from), Some(to))) = (found, ends) {
                report.step = format!("{pattern:?} by {engine:?}");
                result.verdict = Verdict::Damaged;
                let (from, to, operation) = (from.address(), to.address(), flow.operation);
                result.damaged.push(TogetherDamage { from, to, operation, report });
            }
        }
        let bytes = crate::speed::float(self.work.bytes) * crate::speed::float_of(flows.len());
        Ok(bytes / longest.as_secs_f64().max(1e-9))
    }

    /// Queues everything behind the latch, opens it, and waits; the longest time of a transfer.
    fn release(
        &self,
        pattern: Pattern,
        flows: &[&Flow],
        engine: Engine,
    ) -> Result<Duration, GpuError> {
        self.latch.flag().store(0, Ordering::SeqCst);
        for flow in flows {
            let Some(source) = self.gpus.get(flow.from) else { continue };
            source.latch(self.latch.device_pointer(), LATCH, &flow.stream)?;
            flow.start.record(&flow.stream)?;
            let (to, from) = (flow.slot.pointer(), flow.source.pointer());
            match engine {
                Engine::Copy => self.driver.copy(to, from, self.work.bytes, &flow.stream)?,
                Engine::Sm => {
                    let bytes = self.work.bytes / UNIT * UNIT;
                    source.move_bytes(Width::Vector, to, from, bytes, &flow.stream)?;
                }
            }
            flow.end.record(&flow.stream)?;
        }
        if pattern == Pattern::AllPairsWithHost {
            self.host_traffic()?;
        }
        self.latch.flag().store(1, Ordering::SeqCst);
        let streams: Vec<&Stream> = flows.iter().map(|flow| &flow.stream).collect();
        wait(&self.driver, &streams, self.limit(), "transfers at once")?;
        for gpu in self.gpus {
            gpu.finish(self.limit(), "host traffic")?;
        }
        let mut longest = Duration::ZERO;
        for flow in flows {
            if let Some(source) = self.gpus.get(flow.from) {
                source.enter()?;
            }
            longest = longest.max(flow.end.since(&flow.start)?);
        }
        Ok(longest)
    }

    fn host_traffic(&self) -> Result<(), GpuError> {
        let half = u64::try_from(HOST_BYTES).unwrap_or(0);
        for (gpu, (up, down, memory)) in self.gpus.iter().zip(&self.host) {
            gpu.latch(self.latch.device_pointer(), LATCH, gpu.stream())?;
            gpu.latch(self.latch.device_pointer(), LATCH, gpu.side_stream())?;
            for _ in 0..HOST_COPIES {
                self.driver.upload_async(memory.pointer(), up, gpu.stream())?;
                self.driver.download_async(down, memory.pointer() + half, gpu.side_stream())?;
            }
        }
        Ok(())
    }

    /// What a flow's slot is to hold, and what it held.
    fn headers(&self, flow: &Flow) -> (Header, Header) {
        // Which GPU's memory, and whose slot in it.
        let number = |gpu: usize| u16::try_from(gpu + 1).unwrap_or(u16::MAX);
        let way = match flow.operation {
            Operation::Write => 0,
            Operation::Read => 0x80,
        };
        let slot = number(flow.to) | (number(flow.from) | way) << 8;
        let header = |generation| Header::new(slot, run(), generation);
        (header(self.generation), header(self.generation.wrapping_sub(1)))
    }
}
