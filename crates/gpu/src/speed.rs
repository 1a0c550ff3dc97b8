//! Speed of one ordered pair, and of a GPU with its host. Every figure is a median of several runs
//! behind a start latch; what arrived is checked afterwards, since lost writes are the fastest.

mod latency;

use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use peerway_core::address::PciAddress;

use crate::check::{self, Arena};
use crate::driver::{DevicePointer, Driver, Event as Mark, HostBuffer, Stream};
use crate::gpu::{Buffer, Gpu, wait};
use crate::kernels::Row;
use crate::pair::{REQUESTER, TARGET};
use crate::protocol::{Event, Rate, SpeedWork};
use crate::report::Reporter;
use crate::result::{DamageReport, Engine, HostRates, Mode, Operation, OperationResult, Verdict};
use crate::status::GpuError;
use crate::tag::{Header, UNIT, run};
use crate::verdict::{Expectation, Tally};

/// Copies before the clock starts.
const WARM_UP: u32 = 4;
/// Copies that one figure is taken over.
const COPIES: u32 = 16;
/// Figures that the median is taken of.
const FIGURES: usize = 5;
/// Longest time that work waits behind the latch, should this process be stopped.
const LATCH: Duration = Duration::from_secs(20);

/// A pair with memory on both sides, each reachable for the other.
struct Course<'a> {
    driver: Rc<Driver>,
    work: &'a SpeedWork,
    near: &'a Gpu,
    far: &'a Gpu,
    /// On the requester: source of its writes, and destination.
    near_source: Buffer,
    near_sink: Buffer,
    /// On the target.
    far_source: Buffer,
    far_sink: Buffer,
    latch: HostBuffer,
    generation: u16,
}

/// How often something is done for one figure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Repeats {
    warm_up: u32,
    copies: u32,
}

impl Repeats {
    /// As many as usual, or fewer where one takes so long that they would take more than a
    /// quarter of the time for a step: a slow road is not one that hangs.
    fn within(limit: Duration, one: Duration) -> Self {
        let room = capped(WARM_UP + COPIES, limit, one);
        let warm_up = room / (WARM_UP + COPIES) * WARM_UP;
        Self { warm_up, copies: room - warm_up }
    }
}

/// At most `most` repeats of what takes `one`, at least one, and no more than fit into a quarter
/// of the limit.
pub(crate) fn capped(most: u32, limit: Duration, one: Duration) -> u32 {
    let room = (limit / 4).as_nanos() / one.as_nanos().max(1);
    u32::try_from(room).unwrap_or(most).clamp(1, most)
}

/// Which copies run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    Write,
    Read,
    Both,
}

/// Measures all figures of a pair.
pub(crate) fn of_pair(
    driver: &Rc<Driver>,
    work: &SpeedWork,
    out: &mut Reporter<'_>,
) -> Result<(), GpuError> {
    out.step(None, format!("open {} and {} for speed", work.from, work.to))?;
    let near = Gpu::open(driver, work.from, REQUESTER)?;
    let far = Gpu::open(driver, work.to, TARGET)?;
    let mut course = Course::new(driver, work, &near, &far)?;
    for engine in work.engines.clone() {
        for (way, rate, operation) in [
            (Way::Write, Rate::Write, Operation::Write),
            (Way::Read, Rate::Read, Operation::Read),
            (Way::Both, Rate::BothWays, Operation::Write),
        ] {
            let say = |out: &mut Reporter<'_>, number: usize| {
                let text = format!("{rate:?} rate by {engine:?}, {number} of {FIGURES}");
                out.step(Some((engine, operation)), text)
            };
            let found = course.rate(engine, way, &mut |number| say(out, number))?;
            match found {
                Ok(value) => out.emit(&Event::Rate { engine, rate, value })?,
                Err(report) => out.emit(&damaged(engine, operation, work.bytes, report))?,
            }
        }
        course.latencies(engine, out)?;
    }
    Ok(())
}

fn damaged(engine: Engine, operation: Operation, bytes: u64, report: DamageReport) -> Event {
    let result = OperationResult {
        operation,
        verdict: Verdict::Damaged,
        damage: Some(report),
        steps: 1,
        bytes,
        sampled_bytes: 0,
        detail: Some("data was right before, and wrong at full speed".to_owned()),
    };
    Event::Cell { engine, result }
}

impl<'a> Course<'a> {
    fn new(
        driver: &Rc<Driver>,
        work: &'a SpeedWork,
        near: &'a Gpu,
        far: &'a Gpu,
    ) -> Result<Self, GpuError> {
        // The latencies need a little memory of their own.
        let bytes = work.bytes.max(1 << 20).next_multiple_of(UNIT);
        let shared = |owner: &'a Gpu, other: &'a Gpu| match work.mode {
            Mode::Vmm => owner.alloc_shared(bytes, &[other]),
            Mode::Peer | Mode::Ipc | Mode::Staged => owner.alloc(bytes),
        };
        let (near_source, near_sink) = (shared(near, far)?, shared(near, far)?);
        let (far_source, far_sink) = (shared(far, near)?, shared(far, near)?);
        if work.mode == Mode::Peer && near.device() != far.device() {
            near.enter()?;
            driver.enable_peer(far.context())?;
            // The reverse direction is only needed for both ways at once and for ping-pong.
            far.enter()?;
            driver.enable_peer(near.context())?;
        }
        near.enter()?;
        let latch = HostBuffer::new(driver, 64)?;
        Ok(Self {
            driver: Rc::clone(driver),
            work,
            near,
            far,
            near_source,
            near_sink,
            far_source,
            far_sink,
            latch,
            generation: 0,
        })
    }

    fn limit(&self) -> Duration {
        Duration::from_millis(self.work.step_limit_ms)
    }

    /// The streams' work for a way: who moves, to where, from where.
    fn moves(&self, way: Way) -> Vec<(&'a Gpu, &Buffer, &Buffer)> {
        let write = (self.near, &self.far_sink, &self.near_source);
        let read = (self.near, &self.near_sink, &self.far_source);
        let back = (self.far, &self.near_sink, &self.far_source);
        match way {
            Way::Write => vec![write],
            Way::Read => vec![read],
            Way::Both => vec![write, back],
        }
    }

    /// Bytes per second (the sum over both directions), or what is wrong with the data: it is
    /// fresh for each figure, and checked behind each. `begin` is told of each figure before it.
    fn rate(
        &mut self,
        engine: Engine,
        way: Way,
        begin: &mut dyn FnMut(usize) -> Result<(), GpuError>,
    ) -> Result<Result<f64, DamageReport>, GpuError> {
        begin(0)?;
        self.prepare()?;
        let repeats = self.repeats(engine, way)?;
        let mut figures = Vec::new();
        for number in 1..=FIGURES {
            begin(number)?;
            self.prepare()?;
            figures.push(self.figure(engine, way, repeats)?);
            if let Some(report) = self.inspect(way)? {
                return Ok(Err(report));
            }
        }
        Ok(Ok(median(figures)))
    }

    /// How many copies of a way its time has room for, by one of them.
    fn repeats(&self, engine: Engine, way: Way) -> Result<Repeats, GpuError> {
        let start = Instant::now();
        let moves = self.moves(way);
        for (gpu, to, from) in &moves {
            self.copy(gpu, engine, to, from)?;
        }
        let streams: Vec<&Stream> = moves.iter().map(|(gpu, ..)| gpu.stream()).collect();
        wait(&self.driver, &streams, self.limit(), "one copy")?;
        Ok(Repeats::within(self.limit(), start.elapsed()))
    }

    fn headers(&self, target: &Gpu) -> (Header, Header) {
        let header = |generation| Header::new(target.number(), run(), generation);
        (header(self.generation), header(self.generation.wrapping_sub(1)))
    }

    /// Fresh sources, poisoned sinks. What ends up in a sink belongs to its GPU.
    fn prepare(&mut self) -> Result<(), GpuError> {
        self.generation = self.generation.wrapping_add(2);
        let sides = [
            (self.near, &self.near_source, self.far, &self.far_sink),
            (self.far, &self.far_source, self.near, &self.near_sink),
        ];
        for (owner, source, other, sink) in sides {
            let (payload, poison) = self.headers(other);
            owner.fill(Row::dense(source.pointer(), 0, source.units()), payload)?;
            other.fill(Row::dense(sink.pointer(), 0, sink.units()), poison)?;
        }
        self.near.finish(self.limit(), "the preparation")?;
        self.far.finish(self.limit(), "the preparation")
    }

    fn inspect(&self, way: Way) -> Result<Option<DamageReport>, GpuError> {
        let sinks = [
            (self.far, &self.far_sink, way != Way::Read),
            (self.near, &self.near_sink, way != Way::Write),
        ];
        for (owner, sink, used) in sinks {
            if used {
                let (payload, poison) = self.headers(owner);
                let arena = Arena { base: sink.pointer(), bytes: sink.bytes() };
                let expectation = Expectation { payload, poison, start: 0, end: sink.bytes() };
                let found = check::check_range(owner, arena, expectation, self.limit())?;
                if let Some(mut report) = found {
                    "at full speed".clone_into(&mut report.step);
                    return Ok(Some(report));
                }
            }
        }
        Ok(None)
    }

    /// One figure: copies behind the latch, timed on the GPU that makes them.
    fn figure(&self, engine: Engine, way: Way, repeats: Repeats) -> Result<f64, GpuError> {
        let moves = self.moves(way);
        self.latch.flag().store(0, Ordering::SeqCst);
        let mut marks = Vec::new();
        for (gpu, to, from) in &moves {
            for _ in 0..repeats.warm_up {
                self.copy(gpu, engine, to, from)?;
            }
            gpu.latch(self.latch.device_pointer(), LATCH, gpu.stream())?;
            let (start, end) = (gpu.event()?, gpu.event()?);
            start.record(gpu.stream())?;
            for _ in 0..repeats.copies {
                self.copy(gpu, engine, to, from)?;
            }
            end.record(gpu.stream())?;
            marks.push((start, end));
        }
        self.latch.flag().store(1, Ordering::SeqCst);
        let streams: Vec<&Stream> = moves.iter().map(|(gpu, ..)| gpu.stream()).collect();
        wait(&self.driver, &streams, self.limit(), "copies for the rate")?;
        let mut sum = 0.0;
        for ((gpu, to, _), (start, end)) in moves.iter().zip(&marks) {
            gpu.enter()?;
            let bytes = float(to.bytes()) * f64::from(repeats.copies);
            sum += per_second(bytes, end.since(start)?);
        }
        Ok(sum)
    }

    fn copy(&self, gpu: &Gpu, engine: Engine, to: &Buffer, from: &Buffer) -> Result<(), GpuError> {
        copy(&self.driver, gpu, engine, (to.pointer(), from.pointer()), to.bytes())
    }
}

fn copy(
    driver: &Driver,
    gpu: &Gpu,
    engine: Engine,
    (to, from): (DevicePointer, DevicePointer),
    bytes: u64,
) -> Result<(), GpuError> {
    gpu.enter()?;
    match engine {
        Engine::Copy => driver.copy(to, from, bytes, gpu.stream()),
        Engine::Sm => gpu.stream_bytes(to, from, bytes, gpu.stream()),
    }
}

/// Rates between a GPU and its host, and within the GPU.
pub(crate) fn host(
    driver: &Rc<Driver>,
    address: PciAddress,
    bytes: u64,
    limit: Duration,
    out: &mut Reporter<'_>,
) -> Result<(), GpuError> {
    out.step(None, format!("host rates of {address}"))?;
    let gpu = Gpu::open(driver, address, TARGET)?;
    let mut pinned = HostBuffer::new(driver, usize::try_from(bytes).unwrap_or(0))?;
    let bytes = u64::try_from(pinned.bytes()).unwrap_or(0);
    let (memory, other) = (gpu.alloc(bytes)?, gpu.alloc(bytes)?);
    let latch = HostBuffer::new(driver, 64)?;
    let timed = |act: &dyn Fn() -> Result<(), GpuError>| -> Result<f64, GpuError> {
        let mut figures = Vec::new();
        let begun = Instant::now();
        act()?;
        gpu.finish(limit, "one copy with the host")?;
        let repeats = Repeats::within(limit, begun.elapsed());
        for _ in 0..FIGURES {
            let (start, end) = (Mark::new(driver)?, Mark::new(driver)?);
            for _ in 0..repeats.warm_up {
                act()?;
            }
            latch.flag().store(0, Ordering::SeqCst);
            gpu.latch(latch.device_pointer(), LATCH, gpu.stream())?;
            start.record(gpu.stream())?;
            for _ in 0..repeats.copies {
                act()?;
            }
            end.record(gpu.stream())?;
            latch.flag().store(1, Ordering::SeqCst);
            gpu.finish(limit, "copies for the host rates")?;
            let bytes = float(bytes) * f64::from(repeats.copies);
            figures.push(per_second(bytes, end.since(&start)?));
        }
        Ok(median(figures))
    };
    let stream = gpu.stream();
    let damage = host_damage(driver, &gpu, &memory, &mut pinned, limit)?;
    let rates = HostRates {
        gpu: address,
        upload_bytes_per_second: timed(&|| driver.upload_async(memory.pointer(), &pinned, stream))?,
        download_bytes_per_second: timed(&|| {
            driver.download_async(&pinned, memory.pointer(), stream)
        })?,
        local_copy_bytes_per_second: timed(&|| {
            driver.copy(other.pointer(), memory.pointer(), bytes, stream)
        })?,
        damage,
    };
    out.emit(&Event::Host(rates))
}

/// Tags from the GPU to the host, compared there, and other ones back, compared on the GPU.
fn host_damage(
    driver: &Driver,
    gpu: &Gpu,
    memory: &Buffer,
    pinned: &mut HostBuffer,
    limit: Duration,
) -> Result<Option<DamageReport>, GpuError> {
    let header = |generation| Header::new(gpu.number(), run(), generation);
    let end = memory.units() * UNIT;
    let tags = |header: Header| (0..memory.units()).flat_map(|unit| header.unit(unit)).collect();
    let (poison, down, up) = (header(1), header(2), header(3));
    let laid: Vec<u8> = tags(poison);
    pinned.put(&laid);
    gpu.fill(Row::dense(memory.pointer(), 0, memory.units()), down)?;
    gpu.enter()?;
    driver.download_async(pinned, memory.pointer(), gpu.stream())?;
    gpu.finish(limit, "the copy to the host")?;
    let mut tally = Tally::default();
    let expectation = Expectation { payload: down, poison, start: 0, end };
    tally.look_at(&expectation, 0, &pinned.take());
    if let Some(mut report) = tally.report(0, Vec::new(), None) {
        "from the GPU to the host".clone_into(&mut report.step);
        return Ok(Some(report));
    }
    let sent: Vec<u8> = tags(up);
    pinned.put(&sent);
    driver.upload_async(memory.pointer(), pinned, gpu.stream())?;
    gpu.finish(limit, "the copy from the host")?;
    let arena = Arena { base: memory.pointer(), bytes: end };
    // What lay there before is what went out.
    let expectation = Expectation { payload: up, poison: down, start: 0, end };
    let mut found = check::check_range(gpu, arena, expectation, limit)?;
    if let Some(report) = &mut found {
        "from the host to the GPU".clone_into(&mut report.step);
    }
    Ok(found)
}

/// The middle of several figures.
pub(crate) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(0.0)
}

/// Bytes over time; a clock that stood still gives infinity, which no link can carry.
pub(crate) fn per_second(bytes: f64, time: Duration) -> f64 {
    if time.is_zero() { f64::MAX } else { bytes / time.as_secs_f64() }
}

/// Counts of bytes stay far below 2^53.
#[expect(clippy::cast_precision_loss, clippy::as_conversions, reason = "exact below 2^53")]
pub(crate) fn float(count: u64) -> f64 {
    count as f64
}

pub(crate) fn float_of(count: usize) -> f64 {
    float(u64::try_from(count).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_road_gets_fewer_repeats() {
        let limit = Duration::from_secs(20);
        let repeats = |millis| Repeats::within(limit, Duration::from_millis(millis));
        assert_eq!(repeats(1), Repeats { warm_up: WARM_UP, copies: COPIES });
        // Twenty of these would be twenty seconds, and called a hang.
        assert_eq!(repeats(1_000), Repeats { warm_up: 0, copies: 5 });
        assert_eq!(repeats(19_000), Repeats { warm_up: 0, copies: 1 });
        assert_eq!(capped(20, limit, Duration::ZERO), 20);
    }
}
