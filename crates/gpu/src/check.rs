//! The verdict on memory, made by its owner: a kernel on the owning GPU compares every unit, and
//! what the owner's copy engine delivers to the host is compared again, bit for bit.

use std::time::Duration;

use crate::gpu::{BITMAP_PAGES, Gpu};
use crate::kernels::Row;
use crate::plan::{GUARD, Span};
use crate::result::DamageReport;
use crate::status::GpuError;
use crate::tag::{Header, UNIT};
use crate::verdict::{Expectation, Tally, runs};

/// Ranges up to this size are always compared on the host too, whatever the kernel says.
const ALWAYS_COPIED: u64 = 1 << 20;

/// Damaged pages that are fetched for a closer look.
const FETCHED_PAGES: usize = 64;

/// One page of the bitmap has at least this many units (4 KiB).
const PAGE_SHIFT: u32 = 8;

/// Memory of `bytes` at `base` on its owner.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arena {
    pub(crate) base: u64,
    pub(crate) bytes: u64,
}

/// What a kernel found in a row.
struct RowReport {
    bad: u64,
    first: u64,
    pages: Vec<u64>,
    page_units: u64,
}

/// The range and its guards, in units: first, first full payload unit, behind the last full payload
/// unit, end.
struct Zones {
    first: u64,
    inner: u64,
    inner_end: u64,
    end: u64,
}

impl Zones {
    fn of(arena: Arena, offset: u64, bytes: u64) -> Self {
        let end = offset + bytes;
        let inner = offset.div_ceil(UNIT);
        Self {
            first: offset.saturating_sub(GUARD) / UNIT,
            inner,
            // A range within one unit has no full unit.
            inner_end: (end / UNIT).max(inner),
            end: end.saturating_add(GUARD).min(arena.bytes) / UNIT,
        }
    }
}

/// Lays the poison down over a span and its guards.
pub(crate) fn poison(gpu: &Gpu, arena: Arena, span: Span, header: Header) -> Result<(), GpuError> {
    match span {
        Span::Range { offset, bytes } => {
            let zones = Zones::of(arena, offset, bytes);
            gpu.fill(Row::dense(arena.base, zones.first, zones.end - zones.first), header)
        }
        Span::Samples { .. } => gpu.fill(sample_row(arena, span), header),
    }
}

/// Lays payload down over every unit that a span touches.
pub(crate) fn payload(gpu: &Gpu, arena: Arena, span: Span, header: Header) -> Result<(), GpuError> {
    match span {
        Span::Range { offset, bytes } => {
            let first = offset / UNIT;
            let end = (offset + bytes).div_ceil(UNIT);
            gpu.fill(Row::dense(arena.base, first, end - first), header)
        }
        Span::Samples { .. } => gpu.fill(sample_row(arena, span), header),
    }
}

/// The samples of a span where they lie in the arena.
pub(crate) fn sample_row(arena: Arena, span: Span) -> Row {
    match span {
        Span::Samples { first, stride, units } => {
            Row { base: arena.base + first * UNIT, stride, first, index_stride: stride, units }
        }
        Span::Range { offset, bytes } => Row::dense(arena.base, offset / UNIT, bytes / UNIT),
    }
}

/// Compares a range with its guards.
pub(crate) fn check_range(
    gpu: &Gpu,
    arena: Arena,
    expectation: Expectation,
    limit: Duration,
) -> Result<Option<DamageReport>, GpuError> {
    let bytes = expectation.end - expectation.start;
    let zones = Zones::of(arena, expectation.start, bytes);
    let mut tally = Tally::default();
    let mut bad = 0;
    let mut first_bad = None;
    let mut pages = Vec::new();
    let parts = [
        (zones.first, expectation.start / UNIT, expectation.poison),
        (zones.inner, zones.inner_end, expectation.payload),
        (expectation.end.div_ceil(UNIT), zones.end, expectation.poison),
    ];
    for (first, end, header) in parts {
        let units = end.saturating_sub(first);
        let row = Row::dense(arena.base, first, units);
        let found = check_row(gpu, row, header, limit)?;
        if found.bad > 0 {
            bad += found.bad;
            first_bad.get_or_insert((first + found.first) * UNIT);
            pages.extend(runs(&found.pages, found.page_units * UNIT, first * UNIT));
            fetch(gpu, row, &found, |index, bytes| tally.look_at(&expectation, index, bytes))?;
        }
    }
    pages.truncate(FETCHED_PAGES);
    let span = (zones.end - zones.first) * UNIT;
    if span <= ALWAYS_COPIED {
        tally = Tally::default();
        let bytes = gpu.download(arena.base + zones.first * UNIT, span)?;
        tally.look_at(&expectation, zones.first, &bytes);
    } else {
        // The units at the edges belong to both sides; only the host compares them.
        for (edge, full) in [(expectation.start, zones.inner), (expectation.end, zones.inner_end)] {
            let index = edge / UNIT;
            if edge % UNIT != 0 || full * UNIT != edge {
                let bytes = gpu.download(arena.base + index * UNIT, UNIT)?;
                tally.look_at(&expectation, index, &bytes);
            }
        }
    }
    Ok(tally.report(bad, pages, first_bad))
}

/// Compares samples that lie along `row`, which need not be where their indices say.
pub(crate) fn check_samples(
    gpu: &Gpu,
    row: Row,
    (payload, poison): (Header, Header),
    limit: Duration,
) -> Result<Option<DamageReport>, GpuError> {
    let found = check_row(gpu, row, payload, limit)?;
    if found.bad == 0 {
        return Ok(None);
    }
    let expectation = Expectation { payload, poison, start: 0, end: u64::MAX };
    let mut tally = Tally::default();
    for k in picked(&found.pages).into_iter().flat_map(|page| {
        // A page of samples is many places; its first ones tell enough.
        (page * found.page_units..).take(8)
    }) {
        if k < row.units {
            let bytes = gpu.download(row.base + k * row.stride * UNIT, UNIT)?;
            tally.look_at(&expectation, row.first + k * row.index_stride, &bytes);
        }
    }
    if tally.wrong() == 0 && found.first < row.units {
        let bytes = gpu.download(row.base + found.first * row.stride * UNIT, UNIT)?;
        tally.look_at(&expectation, row.first + found.first * row.index_stride, &bytes);
    }
    let first = (row.first + found.first * row.index_stride) * UNIT;
    Ok(tally.report(found.bad, Vec::new(), Some(first)))
}

/// Runs the comparing kernel over a row.
fn check_row(gpu: &Gpu, row: Row, header: Header, limit: Duration) -> Result<RowReport, GpuError> {
    if row.units == 0 {
        return Ok(RowReport { bad: 0, first: 0, pages: Vec::new(), page_units: 1 });
    }
    let mut shift = PAGE_SHIFT;
    while row.units >> shift >= BITMAP_PAGES {
        shift += 1;
    }
    gpu.clear_report()?;
    gpu.verify(row, header, shift)?;
    gpu.finish(limit, "the check on the owner")?;
    let [bad, first, ..] = gpu.read_report()?;
    let mut pages = Vec::new();
    if bad > 0 {
        let count = (row.units >> shift) + 1;
        let bytes = gpu.download(gpu.bitmap(), count.div_ceil(8).next_multiple_of(4))?;
        for (base, byte) in (0_u64..).step_by(8).zip(bytes) {
            pages.extend((0..8).filter(|bit| byte >> bit & 1 == 1).map(|bit| base + bit));
        }
    }
    Ok(RowReport { bad, first, pages, page_units: 1 << shift })
}

/// Some of the pages: the first half as they come, then evenly spread over the rest.
fn picked(pages: &[u64]) -> Vec<u64> {
    if pages.len() <= FETCHED_PAGES {
        return pages.to_vec();
    }
    let (head, rest) = pages.split_at(FETCHED_PAGES / 2);
    let step = rest.len().div_ceil(FETCHED_PAGES / 2).max(1);
    head.iter().chain(rest.iter().step_by(step)).copied().collect()
}

/// Fetches damaged pages of a dense row and hands them on with their first index.
fn fetch(
    gpu: &Gpu,
    row: Row,
    found: &RowReport,
    mut look: impl FnMut(u64, &[u8]),
) -> Result<(), GpuError> {
    for page in picked(&found.pages) {
        let first = page * found.page_units;
        // Large pages are sampled at their start and at the first wrong unit.
        let units = row.units.saturating_sub(first).min(found.page_units).min(1 << 12);
        let bytes = gpu.download(row.base + first * UNIT, units * UNIT)?;
        look(row.first + first, &bytes);
    }
    if found.page_units > 1 << 12 && found.first < row.units {
        let bytes = gpu.download(row.base + found.first * UNIT, UNIT)?;
        look(row.first + found.first, &bytes);
    }
    Ok(())
}
