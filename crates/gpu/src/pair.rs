//! Correctness of one ordered pair: small transfers first, then large ones, then samples over all
//! memory. After damage nothing larger is tried.

mod closer;
mod order;

use std::rc::Rc;
use std::time::Duration;

use crate::check::{self, Arena};
use crate::driver::Driver;
use crate::gpu::{Buffer, Gpu};
use crate::partner::Remote;
use crate::plan::{Span, Step, arena_bytes, sample_steps, sampled_bytes, steps};
use crate::protocol::{Event, PairWork, Request};
use crate::report::Reporter;
use crate::result::{DamageReport, Engine, Mode, Operation, OperationResult, Verdict};
use crate::status::GpuError;
use crate::tag::{Header, run};
use crate::transfer::{Local, Order, Requester};
use crate::verdict::Expectation;

/// Numbers by which tags name the GPUs; witnesses come behind.
pub(crate) const REQUESTER: u16 = 0;
pub(crate) const TARGET: u16 = 1;

/// The pair under test.
pub(crate) struct Pair<'a> {
    driver: Rc<Driver>,
    work: &'a PairWork,
    request: &'a Request,
    target: &'a Gpu,
    source: Option<&'a Gpu>,
    generation: u16,
}

/// The target's memory with a requester that has a window onto it.
struct Link<'a> {
    arena: Arena,
    requester: Box<dyn Requester + 'a>,
    /// Dropped last: the window closes before the memory goes.
    _memory: Buffer,
}

/// Progress of one engine and operation.
struct Cell {
    engine: Engine,
    operation: Operation,
    steps: u32,
    bytes: u64,
    sampled: u64,
    /// Set when the cell is decided.
    outcome: Option<Outcome>,
}

enum Outcome {
    Damaged(DamageReport),
    Stopped(Verdict, String),
}

/// Runs the pair and reports its cells.
pub(crate) fn correctness(
    driver: &Rc<Driver>,
    request: &Request,
    work: &PairWork,
    out: &mut Reporter<'_>,
) -> Result<(), GpuError> {
    out.step(None, format!("open {} and {} ({:?})", work.from, work.to, work.mode))?;
    let target = Gpu::open(driver, work.to, TARGET)?;
    let source = match work.mode {
        Mode::Ipc => None,
        Mode::Peer | Mode::Vmm | Mode::Staged => Some(Gpu::open(driver, work.from, REQUESTER)?),
    };
    let mut pair = Pair {
        driver: Rc::clone(driver),
        work,
        request,
        target: &target,
        source: source.as_ref(),
        generation: 0,
    };
    let largest = work.largest.min(work.depth.largest());
    let bytes = arena_bytes(largest);
    let mut link = match pair.link(bytes, bytes) {
        Ok(link) => link,
        Err(error) => return refused_or_failed(driver, error, out),
    };
    let mut cells: Vec<Cell> = work.cells.iter().copied().map(Cell::new).collect();
    for cell in &mut cells {
        pair.small(&mut link, cell, largest, out)?;
    }
    if work.small_only {
        for cell in &mut cells {
            cell.stop("larger transfers are left out after an earlier failure of this pair");
            cell.emit(out)?;
        }
        return Ok(());
    }
    for cell in cells.iter_mut().filter(|cell| work.small_ways.contains(&cell.operation)) {
        cell.stop(
            "what was tried was right; larger transfers are left out, since another mode failed",
        );
    }
    withhold(&mut cells);
    for cell in cells.iter_mut().filter(|cell| cell.outcome.is_none()) {
        let steps = steps(cell.engine, cell.operation, true, largest);
        pair.steps(&mut link, cell, &steps, out)?;
    }
    withhold(&mut cells);
    drop(link);
    if work.samples && cells.iter().any(|cell| cell.outcome.is_none()) {
        pair.samples(&mut cells, out)?;
    }
    for cell in &mut cells {
        cell.emit(out)?;
    }
    Ok(())
}

/// Errors while the window is opened are the driver's refusal, unless there was no memory.
fn refused_or_failed(
    driver: &Driver,
    error: GpuError,
    out: &mut Reporter<'_>,
) -> Result<(), GpuError> {
    const NO_MEMORY: i32 = 2;
    match error.cuda_code() {
        Some(code) if code != NO_MEMORY && !driver.is_lost() => {
            out.emit(&Event::Refused(error.to_string()))
        }
        _ => Err(error),
    }
}

/// After damage in one direction no other engine tries larger transfers in that direction.
fn withhold(cells: &mut [Cell]) {
    for operation in [Operation::Write, Operation::Read] {
        let hurt = |cell: &&Cell| cell.operation == operation && cell.outcome.is_some();
        let Some(first) = cells.iter().find(hurt).map(|cell| cell.engine) else { continue };
        for cell in cells.iter_mut().filter(|cell| cell.operation == operation) {
            cell.stop(&format!(
                "what was tried was right; larger transfers are left out, since {first:?} failed"
            ));
        }
    }
}

impl Cell {
    fn new((engine, operation): (Engine, Operation)) -> Self {
        Self { engine, operation, steps: 0, bytes: 0, sampled: 0, outcome: None }
    }

    /// Marks an undecided cell as not run to its end.
    fn stop(&mut self, why: &str) {
        self.outcome.get_or_insert_with(|| Outcome::Stopped(Verdict::NotRun, why.to_owned()));
    }

    fn emit(&self, out: &mut Reporter<'_>) -> Result<(), GpuError> {
        let (verdict, damage, detail) = match &self.outcome {
            None => (Verdict::Intact, None, None),
            Some(Outcome::Damaged(report)) => (Verdict::Damaged, Some(report.clone()), None),
            Some(Outcome::Stopped(verdict, why)) => (*verdict, None, Some(why.clone())),
        };
        let result = OperationResult {
            operation: self.operation,
            verdict,
            damage,
            steps: self.steps,
            bytes: self.bytes,
            sampled_bytes: self.sampled,
            detail,
        };
        out.emit(&Event::Cell { engine: self.engine, result })
    }
}

impl<'a> Pair<'a> {
    /// Two new generations: what is laid down before, and what is to arrive.
    fn headers(&mut self, operation: Operation) -> (Header, Header) {
        self.generation = self.generation.wrapping_add(2);
        let poisoned = match operation {
            Operation::Write => TARGET,
            Operation::Read => REQUESTER,
        };
        (
            Header::new(TARGET, run(), self.generation),
            Header::new(poisoned, run(), self.generation.wrapping_sub(1)),
        )
    }

    fn limit_ms(&self) -> u64 {
        self.work.step_limit_ms
    }

    /// Allocates the target's arena and opens a window onto it.
    fn link(&self, bytes: u64, own_bytes: u64) -> Result<Link<'a>, GpuError> {
        let memory = match self.source {
            Some(source) if self.work.mode == Mode::Vmm => {
                self.target.alloc_shared(bytes, &[source])?
            }
            Some(_) | None => self.target.alloc(bytes)?,
        };
        let arena = Arena { base: memory.pointer(), bytes: memory.bytes() };
        let requester: Box<dyn Requester + 'a> = if let Some(source) = self.source {
            Box::new(Local::open(source, self.target, arena, self.work.mode, own_bytes)?)
        } else {
            self.target.enter()?;
            let handle = self.driver.ipc_handle(arena.base)?;
            Box::new(Remote::start(self.request, self.work.from, handle, own_bytes)?)
        };
        Ok(Link { arena, requester, _memory: memory })
    }

    /// The small steps of a cell and, for stores of a kernel, the test of their order.
    fn small(
        &mut self,
        link: &mut Link<'_>,
        cell: &mut Cell,
        largest: u64,
        out: &mut Reporter<'_>,
    ) -> Result<(), GpuError> {
        let steps = steps(cell.engine, cell.operation, false, largest);
        self.steps(link, cell, &steps, out)?;
        let ordered = cell.engine == Engine::Sm
            && cell.operation == Operation::Write
            && self.work.mode != Mode::Staged;
        if ordered && cell.outcome.is_none() {
            out.step(Some((cell.engine, cell.operation)), "flags behind data".to_owned())?;
            let outcome = self.order(link);
            self.settle(cell, outcome, out)?;
        }
        Ok(())
    }

    /// Runs steps until one fails.
    fn steps(
        &mut self,
        link: &mut Link<'_>,
        cell: &mut Cell,
        steps: &[Step],
        out: &mut Reporter<'_>,
    ) -> Result<(), GpuError> {
        for step in steps {
            if cell.outcome.is_some() {
                break;
            }
            out.step(Some((cell.engine, cell.operation)), step.to_string())?;
            let outcome = self.one(link, step);
            if let Ok(None) = outcome {
                cell.steps += 1;
                cell.bytes += step.span.bytes();
            }
            self.settle(cell, outcome, out)?;
        }
        Ok(())
    }

    /// Takes a step's outcome into its cell. Comes back with the error if this process can do no
    /// more; the cell's verdict is out by then.
    fn settle(
        &self,
        cell: &mut Cell,
        outcome: Result<Option<DamageReport>, GpuError>,
        out: &mut Reporter<'_>,
    ) -> Result<(), GpuError> {
        match outcome {
            Ok(None) => return Ok(()),
            Ok(Some(report)) => {
                cell.outcome = Some(Outcome::Damaged(report));
                if self.driver.is_lost() {
                    // The closer look at the damage hung or killed the context.
                    cell.emit(out)?;
                    let what = "a closer look at damage".to_owned();
                    return Err(GpuError::Hung { what, limit: Duration::ZERO });
                }
            }
            Err(error) => {
                let hung = matches!(error, GpuError::Hung { .. });
                // The window was there: this is no mode that the driver does not offer.
                let verdict = error.verdict();
                cell.outcome = Some(Outcome::Stopped(verdict, error.to_string()));
                if hung || self.driver.is_lost() || matches!(error, GpuError::Partner(_)) {
                    cell.emit(out)?;
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// One transfer and its check.
    fn one(&mut self, link: &mut Link<'_>, step: &Step) -> Result<Option<DamageReport>, GpuError> {
        let (payload, poison) = self.headers(step.operation);
        let order = Order {
            mover: step.mover,
            span: step.span,
            payload: payload.word(),
            poison: poison.word(),
            limit_ms: self.limit_ms(),
        };
        let found = self.transfer(link, step, order)?;
        let Some(mut report) = found else { return Ok(None) };
        report.step = step.to_string();
        self.closer_look(link, step, &mut report);
        Ok(Some(report))
    }

    /// Moves and checks, without a closer look.
    fn transfer(
        &self,
        link: &mut Link<'_>,
        step: &Step,
        order: Order,
    ) -> Result<Option<DamageReport>, GpuError> {
        let (payload, poison) = order.headers()?;
        let limit = order.limit();
        match step.operation {
            Operation::Write => {
                check::poison(self.target, link.arena, step.span, poison)?;
                self.target.finish(limit, "the owner's preparation")?;
                link.requester.write(order)?;
                match step.span {
                    Span::Range { offset, bytes } => {
                        let expectation =
                            Expectation { payload, poison, start: offset, end: offset + bytes };
                        check::check_range(self.target, link.arena, expectation, limit)
                    }
                    Span::Samples { .. } => {
                        let row = check::sample_row(link.arena, step.span);
                        check::check_samples(self.target, row, (payload, poison), limit)
                    }
                }
            }
            Operation::Read => {
                // What a stale read would show is a tag too, of an older generation.
                let older = Header::new(TARGET, run(), poison.generation());
                check::poison(self.target, link.arena, step.span, older)?;
                check::payload(self.target, link.arena, step.span, payload)?;
                self.target.finish(limit, "the owner's preparation")?;
                link.requester.read(order)
            }
        }
    }

    /// Samples over all memory that the target can give.
    fn samples(&mut self, cells: &mut [Cell], out: &mut Reporter<'_>) -> Result<(), GpuError> {
        out.step(None, "allocate what is free".to_owned())?;
        let free = self.target.free_memory()?;
        let mut bytes = free.saturating_sub(self.work.spare_bytes);
        let stride = crate::plan::SAMPLE_STRIDE;
        let mut opened = None;
        // Fragmentation and the driver's own needs are unknown: take less until it fits.
        for _ in 0..8 {
            bytes = bytes / stride * stride;
            if bytes == 0 {
                break;
            }
            match self.link(bytes, sampled_bytes(bytes).max(1 << 16)) {
                Ok(link) => {
                    opened = Some(link);
                    break;
                }
                Err(error) if error.cuda_code() == Some(2) => bytes = bytes / 8 * 7,
                Err(error) if error.cuda_code().is_some() && !self.driver.is_lost() => {
                    for cell in cells.iter_mut() {
                        cell.stop(&format!("no window onto all of the memory: {error}"));
                    }
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        let Some(mut link) = opened else {
            for cell in cells.iter_mut() {
                cell.stop("ranges were right; no memory is free to sample all of it");
            }
            return Ok(());
        };
        for index in 0..cells.len() {
            let Some(cell) = cells.get_mut(index) else { break };
            if cell.outcome.is_none() {
                let steps = sample_steps(cell.engine, cell.operation, bytes);
                self.steps(&mut link, cell, &steps, out)?;
                cell.sampled = bytes;
            }
            withhold(cells);
        }
        Ok(())
    }
}
