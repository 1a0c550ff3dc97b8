//! Latency three ways: flags to and fro, dependent loads, and small copies.

use std::time::{Duration, Instant};

use super::{Course, Engine, GpuError, Reporter, capped, damaged, median, wait};
use crate::protocol::{Event, Rate};
use crate::result::{Damage, DamageReport, Operation};
use crate::status::GpuError as Error;

/// Round trips of which time is taken first.
const FEW: u64 = 50;
/// How many times as many one figure has.
const FEW_TIMES: u32 = 40;
/// Dependent loads of one figure.
const LOADS: u64 = 2_000;
/// Small copies of one figure.
const SMALL_COPIES: u32 = 100;
const FIGURES: usize = 5;
/// Places of the chain; 128 bytes apart, so each load meets another line.
const PLACES: u64 = 4_096;
const PLACE: u64 = 128;

impl Course<'_> {
    /// All latencies of an engine.
    pub(super) fn latencies(
        &mut self,
        engine: Engine,
        out: &mut Reporter<'_>,
    ) -> Result<(), GpuError> {
        match engine {
            Engine::Copy => {
                out.step(Some((engine, Operation::Write)), "16-byte copies".to_owned())?;
                let figures =
                    (0..FIGURES).map(|_| self.small_copies()).collect::<Result<_, _>>()?;
                out.emit(&Event::Rate { engine, rate: Rate::Latency, value: median(figures) })
            }
            Engine::Sm => {
                out.step(Some((engine, Operation::Write)), "flags to and fro".to_owned())?;
                // As many as there is time for, by a few of them.
                let start = Instant::now();
                self.ping_pong(FEW)?;
                let room = capped(FEW_TIMES, self.limit(), start.elapsed());
                let mut figures = Vec::new();
                for _ in 0..FIGURES {
                    figures.push(self.ping_pong(FEW * u64::from(room))?);
                }
                out.emit(&Event::Rate { engine, rate: Rate::Latency, value: median(figures) })?;
                out.step(Some((engine, Operation::Read)), "dependent loads".to_owned())?;
                let mut figures = Vec::new();
                for _ in 0..FIGURES {
                    match self.chase()? {
                        Ok(figure) => figures.push(figure),
                        Err(report) => {
                            let bytes = PLACES * PLACE;
                            return out.emit(&damaged(engine, Operation::Read, bytes, report));
                        }
                    }
                }
                out.emit(&Event::Rate { engine, rate: Rate::Load, value: median(figures) })
            }
        }
    }

    /// Seconds for one 16-byte copy out of many in a row.
    fn small_copies(&self) -> Result<f64, GpuError> {
        let (gpu, stream) = (self.near, self.near.stream());
        let (start, end) = (gpu.event()?, gpu.event()?);
        let (to, from) = (self.far_sink.pointer(), self.near_source.pointer());
        start.record(stream)?;
        for _ in 0..SMALL_COPIES {
            self.driver.copy(to, from, 16, stream)?;
        }
        end.record(stream)?;
        gpu.finish(self.limit(), "small copies")?;
        Ok(end.since(&start)?.as_secs_f64() / f64::from(SMALL_COPIES))
    }

    /// Seconds from a flag's store on one GPU to its sight on the other.
    fn ping_pong(&self, rounds: u64) -> Result<f64, GpuError> {
        let flags = [(self.near, &self.near_sink), (self.far, &self.far_sink)];
        for (gpu, memory) in flags {
            gpu.enter()?;
            self.driver.fill_bytes(memory.pointer(), 0, 64, gpu.stream())?;
            gpu.clear_report()?;
            gpu.finish(self.limit(), "the preparation")?;
        }
        let (near, far) = (self.near_sink.pointer(), self.far_sink.pointer());
        let limit = self.limit() / 2;
        self.far.ping_pong((far, near), rounds, false, limit)?;
        self.near.ping_pong((near, far), rounds, true, limit)?;
        let streams = [self.near.stream(), self.far.stream()];
        wait(&self.driver, &streams, self.limit(), "flags to and fro")?;
        let [done, nanoseconds, late, ..] = self.near.read_report()?;
        if late != 0 || done != rounds {
            return Err(Error::Hung { what: format!("flag {} of a ping-pong", done + 1), limit });
        }
        Ok(Duration::from_nanos(nanoseconds).as_secs_f64() / super::float(rounds - 1) / 2.0)
    }

    /// Seconds for one load from the target that waits for the one before, or how the loads went
    /// astray.
    fn chase(&self) -> Result<Result<f64, DamageReport>, GpuError> {
        let chain = chain();
        let bytes: Vec<u8> = chain.iter().flat_map(|offset| offset.to_le_bytes()).collect();
        let mut image = vec![0; usize::try_from(PLACES * PLACE).unwrap_or(0)];
        for (place, word) in image.chunks_exact_mut(128).zip(bytes.as_chunks::<8>().0) {
            if let Some(slot) = place.first_chunk_mut::<8>() {
                *slot = *word;
            }
        }
        self.far.upload(self.far_source.pointer(), &image)?;
        self.near.clear_report()?;
        self.near.chase(self.far_source.pointer(), 0, LOADS)?;
        self.near.finish(self.limit(), "dependent loads")?;
        let [end, nanoseconds, ..] = self.near.read_report()?;
        let mut expected = 0;
        for _ in 0..LOADS {
            let place = usize::try_from(expected / PLACE).unwrap_or(0);
            expected = chain.get(place).copied().unwrap_or(0);
        }
        if end != expected {
            return Ok(Err(astray(end, expected)));
        }
        Ok(Ok(Duration::from_nanos(nanoseconds).as_secs_f64() / super::float(LOADS)))
    }
}

/// A chain of loads that ended elsewhere: one of them gave wrong data, and which does not show.
fn astray(end: u64, expected: u64) -> DamageReport {
    DamageReport {
        damage: match end {
            0 => Damage::Zeros,
            u64::MAX => Damage::Ones,
            _ => Damage::Bits,
        },
        first_bad_offset: 0,
        bad_units: 1,
        pages: Vec::new(),
        found: format!("{end:016x}"),
        expected: format!("{expected:016x}"),
        step: "dependent loads: the chain ended elsewhere".to_owned(),
        // Only the GPU that loads sees what it loads.
        confirmed_by_copy: false,
    }
}

/// For each place the offset of the next one: one cycle through all, in an order without pattern
/// that a prefetcher could know.
fn chain() -> Vec<u64> {
    // Steps by an odd number close to the golden section go through all places of a power of two.
    const STEP: u64 = 2_531;
    (0..PLACES).map(|place| (place + STEP) % PLACES * PLACE).collect()
}
