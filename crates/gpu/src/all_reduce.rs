//! All-reduce through NCCL, checked by value on every rank.

pub(crate) mod processes;

use std::path::Path;
use std::rc::Rc;
use std::time::{Duration, Instant};

use crate::driver::{Driver, Stream};
use crate::gpu::{Buffer, Gpu, all_idle};
use crate::nccl::{Nccl, Part, Ranks};
use crate::precondition::{Precondition, Unmet};
use crate::protocol::{AllReduceWork, Event};
use crate::report::Reporter;
use crate::result::{AllReduceResult, Verdict};
use crate::speed::{capped, float, float_of, median, per_second};
use crate::status::GpuError;

/// Checked runs of each size, with fresh values each time.
const CHECKED: u64 = 4;
/// Figures that the median is taken of.
const FIGURES: usize = 5;

/// One rank.
struct Rank<'g> {
    gpu: &'g Gpu,
    /// Its number among all ranks.
    number: u64,
    send: Buffer,
    receive: Buffer,
}

/// Runs all sizes with all ranks in this process.
pub(crate) fn run(
    driver: &Rc<Driver>,
    library: Option<&Path>,
    work: &AllReduceWork,
    out: &mut Reporter<'_>,
) -> Result<(), GpuError> {
    out.step(None, "load NCCL".to_owned())?;
    let nccl = match Nccl::open(library) {
        Ok(nccl) => nccl,
        Err(error) => {
            let unmet = Precondition::host(Unmet::NoNccl, missing(&error));
            return out.emit(&Event::Unmet(unmet));
        }
    };
    let version = nccl.version()?;
    let largest = work.sizes.iter().copied().max().unwrap_or(0);
    let mut gpus = Vec::new();
    for (number, address) in (0_u16..).zip(&work.gpus) {
        out.step(None, format!("open {address}"))?;
        gpus.push(Gpu::open(driver, *address, number)?);
    }
    let mut ranks = Vec::new();
    for (number, gpu) in (0..).zip(&gpus) {
        let (send, receive) = (gpu.alloc(largest)?, gpu.alloc(largest)?);
        ranks.push(Rank { gpu, number, send, receive });
    }
    out.step(None, "start the communicator".to_owned())?;
    let devices: Vec<i32> = gpus.iter().map(Gpu::device).collect();
    let communicator = nccl.ranks(&devices)?;
    let bench = Bench {
        driver,
        limit: Duration::from_millis(work.step_limit_ms),
        iterations: work.iterations,
        ranks: &ranks,
        size: u64::try_from(ranks.len()).unwrap_or(0),
        communicator: &communicator,
    };
    let mut seed = 0;
    for bytes in &work.sizes {
        out.step(None, format!("all-reduce of {bytes} bytes ({:?})", work.arm))?;
        let mut row = blank(work, *bytes, Some(version));
        let outcome = bench.size(*bytes, seed);
        seed += CHECKED;
        match &outcome {
            Ok((wrong, seconds)) => {
                row.wrong_elements = *wrong;
                finish_row(&mut row, *seconds);
            }
            Err(error) => {
                row.verdict = error.verdict();
                row.detail = Some(error.to_string());
            }
        }
        let stop = row.verdict == Verdict::Damaged;
        out.emit(&Event::AllReduce(row))?;
        outcome?;
        if stop {
            break;
        }
    }
    communicator.end()
}

/// Why there is no NCCL, and what to do.
fn missing(error: &GpuError) -> String {
    format!("{error}; the all-reduce is left out: install NCCL or name its path")
}

/// A row about which nothing is known yet.
fn blank(work: &AllReduceWork, bytes: u64, version: Option<i32>) -> AllReduceResult {
    AllReduceResult {
        gpus: work.gpus.clone(),
        arm: work.arm,
        processes: if work.apart { u32::try_from(work.gpus.len()).unwrap_or(u32::MAX) } else { 1 },
        bytes,
        verdict: Verdict::Intact,
        wrong_elements: 0,
        seconds: None,
        algorithm_bytes_per_second: None,
        bus_bytes_per_second: None,
        transports: Vec::new(),
        nccl_version: version,
        detail: None,
    }
}

/// The verdict on the sums, and the figures where they were right.
fn finish_row(row: &mut AllReduceResult, seconds: Option<f64>) {
    if row.wrong_elements > 0 {
        row.verdict = Verdict::Damaged;
        row.detail = Some("sums were wrong; larger sizes are left out".to_owned());
        return;
    }
    let Some(seconds) = seconds else { return };
    let rate = per_second(float(row.bytes), Duration::from_secs_f64(seconds));
    let ranks = float_of(row.gpus.len());
    row.seconds = Some(seconds);
    row.algorithm_bytes_per_second = Some(rate);
    // One rank sends nothing.
    row.bus_bytes_per_second = (ranks > 1.0).then(|| rate * 2.0 * (ranks - 1.0) / ranks);
}

/// The ranks of this process, of `size` in all.
struct Bench<'a> {
    driver: &'a Driver,
    limit: Duration,
    iterations: u32,
    ranks: &'a [Rank<'a>],
    size: u64,
    communicator: &'a Ranks<'a>,
}

impl Bench<'_> {
    /// Checks a size, then times it where it was right: wrong elements on these ranks, and the
    /// median time.
    fn size(&self, bytes: u64, seed: u64) -> Result<(u64, Option<f64>), GpuError> {
        let (wrong, one) = self.check(bytes, seed)?;
        if wrong > 0 {
            return Ok((wrong, None));
        }
        let iterations = capped(self.iterations, self.limit, one);
        Ok((0, Some(self.time(bytes, iterations)?)))
    }

    /// Checks a size with the values of `seed` and the following: wrong elements on these ranks,
    /// and how long the last sum took here.
    fn check(&self, bytes: u64, seed: u64) -> Result<(u64, Duration), GpuError> {
        let mut wrong = 0;
        let mut last = Duration::ZERO;
        for round in 0..CHECKED {
            // Both forms: engines use the one in place, and the other leaves its input alone.
            let in_place = round % 2 == 1;
            let (found, took) = self.checked(bytes / 4, seed + round, in_place)?;
            wrong += found;
            last = took;
        }
        Ok((wrong, last))
    }

    /// The median time of one all-reduce.
    fn time(&self, bytes: u64, iterations: u32) -> Result<f64, GpuError> {
        let mut figures = Vec::new();
        for _ in 0..FIGURES {
            figures.push(self.timed(bytes / 4, iterations)?.as_secs_f64());
        }
        Ok(median(figures))
    }

    fn run(&self, count: u64, in_place: bool) -> Result<(), GpuError> {
        let parts: Vec<Part<'_>> = self
            .ranks
            .iter()
            .map(|rank| Part {
                send: if in_place { rank.receive.pointer() } else { rank.send.pointer() },
                receive: rank.receive.pointer(),
                stream: rank.gpu.stream(),
            })
            .collect();
        self.communicator.all_reduce(count, &parts)
    }

    /// Waits for all ranks, with an eye on NCCL's own errors.
    fn finish(&self) -> Result<(), GpuError> {
        let streams: Vec<&Stream> = self.ranks.iter().map(|rank| rank.gpu.stream()).collect();
        let start = Instant::now();
        while !all_idle(&streams)? {
            self.communicator.background()?;
            if start.elapsed() > self.limit {
                self.driver.give_up();
                let what = "the all-reduce".to_owned();
                return Err(GpuError::Hung { what, limit: self.limit });
            }
            std::thread::yield_now();
        }
        self.communicator.background()
    }

    /// One all-reduce of fresh values; how many elements are wrong over all ranks, and how long it
    /// took by this process's clock.
    fn checked(&self, count: u64, seed: u64, in_place: bool) -> Result<(u64, Duration), GpuError> {
        for rank in self.ranks {
            let poison = rank.receive.bytes();
            rank.gpu.enter()?;
            self.driver.fill_bytes(rank.receive.pointer(), 0xa5, poison, rank.gpu.stream())?;
            let input = if in_place { &rank.receive } else { &rank.send };
            rank.gpu.sum_fill(input.pointer(), count, rank.number, seed)?;
        }
        self.finish()?;
        let start = Instant::now();
        self.run(count, in_place)?;
        self.finish()?;
        let took = start.elapsed();
        let mut wrong = 0;
        for rank in self.ranks {
            rank.gpu.clear_report()?;
            rank.gpu.sum_verify(rank.receive.pointer(), count, self.size, seed)?;
            rank.gpu.finish(self.limit, "the check of the sums")?;
            let [found, ..] = rank.gpu.read_report()?;
            wrong += found;
        }
        Ok((wrong, took))
    }

    /// Time of one all-reduce, over several in a row; the slowest rank counts.
    fn timed(&self, count: u64, iterations: u32) -> Result<Duration, GpuError> {
        let mut marks = Vec::new();
        for rank in self.ranks {
            rank.gpu.enter()?;
            let (start, end) = (rank.gpu.event()?, rank.gpu.event()?);
            start.record(rank.gpu.stream())?;
            marks.push((rank.gpu, start, end));
        }
        for _ in 0..iterations {
            self.run(count, false)?;
        }
        for (gpu, _, end) in &marks {
            gpu.enter()?;
            end.record(gpu.stream())?;
        }
        self.finish()?;
        let mut longest = Duration::ZERO;
        for (gpu, start, end) in &marks {
            gpu.enter()?;
            longest = longest.max(end.since(start)?);
        }
        Ok(longest / iterations.max(1))
    }
}
