//! Whether the check itself can be trusted on a GPU: damage is planted by the host, and the kernel
//! has to find exactly that.

use std::rc::Rc;
use std::time::Duration;

use peerway_core::address::PciAddress;

use crate::check::{self, Arena};
use crate::driver::Driver;
use crate::gpu::Gpu;
use crate::kernels::Width;
use crate::plan::{GUARD, Span};
use crate::protocol::Event;
use crate::report::Reporter;
use crate::result::{Damage, SelfCheck};
use crate::status::GpuError;
use crate::tag::{Header, UNIT};
use crate::verdict::Expectation;

const BYTES: u64 = 2 << 20;
const LIMIT: Duration = Duration::from_secs(10);

/// Above this size the host compares only what the kernel points at.
const KERNEL_ALONE: u64 = 1280 << 10;

/// Plants each kind of damage and looks for it.
pub(crate) fn run(
    driver: &Rc<Driver>,
    address: PciAddress,
    out: &mut Reporter<'_>,
) -> Result<(), GpuError> {
    let gpu = Gpu::open(driver, address, 1)?;
    let memory = gpu.alloc(BYTES)?;
    let arena = Arena { base: memory.pointer(), bytes: memory.bytes() };
    let mut check = SelfCheck { gpu: address, passed: 0, failed: Vec::new() };
    let mut generation = 0;
    for (offset, bytes) in
        [(GUARD, 64 << 10), (GUARD + 4, 4 << 10), (GUARD, KERNEL_ALONE), (GUARD + 12, KERNEL_ALONE)]
    {
        for planted in planted(offset, bytes) {
            generation += 2;
            let (payload, poison) =
                (Header::new(1, 1, generation), Header::new(1, 1, generation - 1));
            out.step(None, format!("plant {:?} in {bytes} bytes", planted.map(|(at, _)| at)))?;
            let expectation = Expectation { payload, poison, start: offset, end: offset + bytes };
            lay(&gpu, arena, &expectation)?;
            if let Some((at, damage)) = planted {
                plant(&gpu, arena, &expectation, at, damage)?;
            }
            let found = check::check_range(&gpu, arena, expectation, LIMIT)?;
            let found = found.map(|report| (report.first_bad_offset / UNIT, report.damage));
            let wanted = planted.map(|(at, damage)| (at / UNIT, damage));
            if found == wanted {
                check.passed += 1;
            } else {
                check.failed.push(format!("planted {wanted:?} in {bytes} bytes, found {found:?}"));
            }
        }
    }
    out.emit(&Event::SelfCheck(check))
}

/// Clean content once, then one damaged unit of each kind at telling places.
fn planted(offset: u64, bytes: u64) -> Vec<Option<(u64, Damage)>> {
    let kinds = [Damage::Zeros, Damage::Ones, Damage::Dropped, Damage::Aliased, Damage::Bits];
    let first = offset.next_multiple_of(UNIT);
    let last = (offset + bytes) / UNIT * UNIT - UNIT;
    let places = [first, first + (last - first) / 2 / UNIT * UNIT, last];
    let damaged = kinds.into_iter().zip(places.into_iter().cycle());
    std::iter::once(None).chain(damaged.map(|(kind, place)| Some((place, kind)))).collect()
}

/// Poison, then payload over it by a copy on the GPU itself, so that the edges are mixed as in a
/// real transfer.
fn lay(gpu: &Gpu, arena: Arena, expectation: &Expectation) -> Result<(), GpuError> {
    let bytes = expectation.end - expectation.start;
    let source = gpu.alloc(arena.bytes)?;
    let from = Arena { base: source.pointer(), bytes: source.bytes() };
    let span = Span::Range { offset: expectation.start, bytes };
    check::poison(gpu, arena, span, expectation.poison)?;
    check::payload(gpu, from, span, expectation.payload)?;
    let (to, from) = (arena.base + expectation.start, from.base + expectation.start);
    gpu.move_bytes(Width::Scalar, to, from, bytes, gpu.stream())?;
    gpu.finish(LIMIT, "the preparation")
}

/// Replaces one unit.
fn plant(
    gpu: &Gpu,
    arena: Arena,
    expectation: &Expectation,
    at: u64,
    damage: Damage,
) -> Result<(), GpuError> {
    let index = at / UNIT;
    let unit = match damage {
        Damage::Zeros => [0; 16],
        Damage::Ones => [0xff; 16],
        Damage::Dropped => expectation.poison.unit(index),
        Damage::Aliased => expectation.payload.unit(index + (1 << 17)),
        Damage::Stale | Damage::Misrouted | Damage::Bits | Damage::Mirrored => {
            let mut unit = expectation.payload.unit(index);
            if let Some(byte) = unit.get_mut(11) {
                *byte ^= 0x10;
            }
            unit
        }
    };
    gpu.upload(arena.base + at, &unit)
}
