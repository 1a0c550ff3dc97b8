//! A closer look at damage: where did the data go? Nothing here can turn damage into none; it only
//! finds the right word for it. Errors are swallowed for that reason: the first word stands then.

use super::{Link, Pair, TARGET};
use crate::check::Arena;
use crate::gpu::{Buffer, Gpu};
use crate::kernels::Row;
use crate::plan::{SAMPLE_STRIDE, Span, Step};
use crate::result::{Damage, DamageReport, Operation};
use crate::status::GpuError;
use crate::tag::{Content, Header, UNIT, run};
use crate::transfer::Order;

/// The number of the first GPU that neither requests nor is the target.
const FIRST_WITNESS: u16 = TARGET + 1;

/// Memory in which a witness looks: enough for what small steps touch, and little to ask for.
const MOST_WITNESSED: u64 = 64 << 20;

impl Pair<'_> {
    /// Refines the class of `report` where it says that data is missing or unknown.
    pub(super) fn closer_look(
        &mut self,
        link: &mut Link<'_>,
        step: &Step,
        report: &mut DamageReport,
    ) {
        if report.damage == Damage::Bits
            && let Some(whole) = whole_units(step)
        {
            let (order, _) = self.order_for(&whole);
            if let Ok(Some(again)) = self.transfer(link, &whole, order) {
                report.damage = again.damage;
            }
        }
        let refined = match (step.operation, report.damage) {
            (Operation::Write, Damage::Dropped) => self.missing(link, step),
            (Operation::Read, Damage::Zeros | Damage::Bits | Damage::Stale) => {
                self.strange(link, step)
            }
            _ => Ok(None),
        };
        if let Ok(Some(damage)) = refined {
            report.damage = damage;
        }
    }

    fn order_for(&mut self, step: &Step) -> (Order, Header) {
        let (payload, poison) = self.headers(step.operation);
        let order = Order {
            mover: step.mover,
            span: step.span,
            payload: payload.word(),
            poison: poison.word(),
            limit_ms: self.limit_ms(),
        };
        (order, payload)
    }

    /// A write that the owner did not see.
    fn missing(&mut self, link: &mut Link<'_>, step: &Step) -> Result<Option<Damage>, GpuError> {
        let (order, payload) = self.order_for(step);
        let (_, poison) = order.headers()?;
        self.target.fill(Row::dense(link.arena.base, 0, link.arena.bytes / UNIT), poison)?;
        self.transfer(link, step, order)?;
        if misplaced(self.target, link.arena, payload, order)? {
            return Ok(Some(Damage::Aliased));
        }
        if let Some(found) = self.seen_by_witnesses(link, step)? {
            return Ok(Some(found));
        }
        let first = match step.span {
            Span::Range { offset, .. } => offset.div_ceil(UNIT),
            Span::Samples { first, .. } => first,
        };
        // Once more, and looked at before the owner does anything: the place where the data went
        // may be one that the owner uses.
        let (order, payload) = self.order_for(step);
        link.requester.write(order)?;
        let whole = step.span.bytes() >= UNIT;
        if whole && link.requester.look_through(step.mover, first)? == payload.unit(first) {
            let shared = self.shared_place(link, step)?;
            return Ok(Some(if shared { Damage::Aliased } else { Damage::Mirrored }));
        }
        Ok(None)
    }

    /// A read that gave what the owner does not have.
    fn strange(&mut self, link: &mut Link<'_>, step: &Step) -> Result<Option<Damage>, GpuError> {
        if let Some(found) = self.seen_by_witnesses(link, step)? {
            return Ok(Some(found));
        }
        Ok(self.shared_place(link, step)?.then_some(Damage::Aliased))
    }

    /// Whether addresses at even distances share a place: tags are written to all of them, and
    /// one that shows another one's tag has none of its own.
    fn shared_place(&mut self, link: &mut Link<'_>, step: &Step) -> Result<bool, GpuError> {
        let stride = SAMPLE_STRIDE / UNIT;
        let units = (link.arena.bytes / SAMPLE_STRIDE).clamp(1, 32);
        let span = Span::Samples { first: 0, stride, units };
        let spread = Step { span, ..*step };
        let (order, payload) = self.order_for(&spread);
        link.requester.write(order)?;
        for k in 0..units {
            let unit = link.requester.look_through(step.mover, k * stride)?;
            let content = Content::of(unit);
            if matches!(content, Content::Tag(h, at) if h == payload && at != k * stride) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Repeats the step while every other GPU of the test watches memory of its own.
    fn seen_by_witnesses(
        &mut self,
        link: &mut Link<'_>,
        step: &Step,
    ) -> Result<Option<Damage>, GpuError> {
        let mut witnesses: Vec<(Gpu, Buffer)> = Vec::new();
        for address in &self.work.witnesses {
            let number = FIRST_WITNESS + u16::try_from(witnesses.len()).unwrap_or(0);
            let gpu = Gpu::open(&self.driver, *address, number)?;
            let memory = gpu.alloc(link.arena.bytes.min(MOST_WITNESSED))?;
            let own = Header::new(number, run(), 1);
            gpu.fill(Row::dense(memory.pointer(), 0, memory.units()), own)?;
            witnesses.push((gpu, memory));
        }
        let (order, payload) = self.order_for(step);
        for (gpu, _) in &witnesses {
            gpu.finish(order.limit(), "a witness")?;
        }
        let again = self.transfer(link, step, order)?;
        if again.is_some_and(|report| report.damage == Damage::Misrouted) {
            return Ok(Some(Damage::Misrouted));
        }
        for (gpu, memory) in &witnesses {
            let arena = Arena { base: memory.pointer(), bytes: memory.bytes() };
            if step.operation == Operation::Write && found(gpu, arena, payload, order)?.is_some() {
                return Ok(Some(Damage::Misrouted));
            }
        }
        Ok(None)
    }
}

/// The step over all of the units that it touches, if it touches parts of some: a part of a unit
/// says little about where it came from.
fn whole_units(step: &Step) -> Option<Step> {
    let Span::Range { offset, bytes } = step.span else { return None };
    let start = offset / UNIT * UNIT;
    let end = (offset + bytes).next_multiple_of(UNIT);
    let span = Span::Range { offset: start, bytes: end - start };
    (span != step.span).then_some(Step { span, ..*step })
}

/// The lowest unit of an arena that carries a header.
fn found(gpu: &Gpu, arena: Arena, header: Header, order: Order) -> Result<Option<u64>, GpuError> {
    gpu.clear_report()?;
    gpu.find(arena.base, arena.bytes / UNIT, header)?;
    gpu.finish(order.limit(), "the search")?;
    let [count, first, ..] = gpu.read_report()?;
    Ok((count > 0).then_some(first))
}

/// Whether payload lies in the owner's arena where it does not belong.
fn misplaced(gpu: &Gpu, arena: Arena, payload: Header, order: Order) -> Result<bool, GpuError> {
    let Some(unit) = found(gpu, arena, payload, order)? else { return Ok(false) };
    let bytes = gpu.download(arena.base + unit * UNIT, UNIT)?;
    let content = bytes.first_chunk::<16>().map(|unit| Content::of(*unit));
    Ok(matches!(content, Some(Content::Tag(_, at)) if at != unit))
}
