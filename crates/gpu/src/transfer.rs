//! The requester's side of a transfer: it owns a buffer of its own and has a window onto the
//! target's memory.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::check::{self, Arena};
use crate::driver::{Context, DevicePointer};
use crate::gpu::{Buffer, Gpu};
use crate::kernels::{Rounds, Row, Width};
use crate::plan::{Mover, Span};
use crate::result::{DamageReport, Mode};
use crate::status::GpuError;
use crate::tag::{Header, UNIT};
use crate::verdict::Expectation;

/// One transfer, as the requester is told.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    pub(crate) mover: Mover,
    pub(crate) span: Span,
    /// Header words; see [`crate::tag::Header`].
    pub(crate) payload: u64,
    pub(crate) poison: u64,
    pub(crate) limit_ms: u64,
}

impl Order {
    pub(crate) fn limit(&self) -> Duration {
        Duration::from_millis(self.limit_ms)
    }

    pub(crate) fn headers(&self) -> Result<(Header, Header), GpuError> {
        let header = |word| {
            Header::from_word(word).ok_or_else(|| GpuError::Request("a header that is none".into()))
        };
        Ok((header(self.payload)?, header(self.poison)?))
    }
}

/// The writing side of the ordering test.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct ProduceOrder {
    /// Bytes from the start of the arena to the flags; the payload is at its start.
    pub(crate) flags: u64,
    pub(crate) rounds: u64,
    pub(crate) units: u64,
    pub(crate) payload: u64,
    pub(crate) pause_ns: u64,
    pub(crate) limit_ms: u64,
}

/// Whoever makes the requests: this process, or a second one over IPC.
pub(crate) trait Requester {
    /// Fills an own source with payload and writes it to the target.
    fn write(&mut self, order: Order) -> Result<(), GpuError>;
    /// Poisons an own destination, reads the target into it and checks it there.
    fn read(&mut self, order: Order) -> Result<Option<DamageReport>, GpuError>;
    /// What the window shows at one unit, through the same engine. For a closer look only: this
    /// is never evidence that data arrived.
    fn look_through(&mut self, mover: Mover, unit: u64) -> Result<[u8; 16], GpuError>;
    /// Writes rounds of payload and flags through the window; returns when done.
    fn produce(&mut self, order: ProduceOrder) -> Result<(), GpuError>;
}

/// A requester in this process.
#[derive(Debug)]
pub(crate) struct Local<'g> {
    pub(crate) gpu: &'g Gpu,
    /// Source of writes and destination of reads: as large as the target's arena, or as many units
    /// as there are samples.
    pub(crate) own: Buffer,
    /// The target's arena as this GPU sees it.
    pub(crate) window: DevicePointer,
    /// Where access was not granted: the target's context, for staged copies.
    pub(crate) staged: Option<Context>,
}

impl<'g> Local<'g> {
    /// Gives `gpu` a window onto the arena at `window`, by peer access or by a grant that was made
    /// with the allocation.
    pub(crate) fn open(
        gpu: &'g Gpu,
        target: &Gpu,
        arena: Arena,
        mode: Mode,
        own_bytes: u64,
    ) -> Result<Self, GpuError> {
        gpu.enter()?;
        let staged = match mode {
            // A GPU needs no grant to reach itself.
            Mode::Peer if gpu.device() == target.device() => None,
            Mode::Peer => {
                gpu.driver().enable_peer(target.context())?;
                None
            }
            Mode::Staged => Some(target.context()),
            Mode::Vmm | Mode::Ipc => None,
        };
        Ok(Self { gpu, own: gpu.alloc(own_bytes)?, window: arena.base, staged })
    }

    fn own(&self) -> Arena {
        Arena { base: self.own.pointer(), bytes: self.own.bytes() }
    }

    /// Queues a move of bytes, one end of which is behind the window.
    fn move_bytes(
        &self,
        mover: Mover,
        to: DevicePointer,
        from: DevicePointer,
        bytes: u64,
        outward: bool,
    ) -> Result<(), GpuError> {
        let stream = self.gpu.stream();
        self.gpu.enter()?;
        let width = match mover {
            Mover::Copy => {
                return match self.staged {
                    None => self.gpu.driver().copy(to, from, bytes, stream),
                    Some(target) => {
                        let own = self.gpu.context();
                        let (to_in, from_in) = if outward { (target, own) } else { (own, target) };
                        self.gpu.driver().copy_between((to, to_in), (from, from_in), bytes, stream)
                    }
                };
            }
            Mover::Vector => Width::Vector,
            Mover::Scalar => Width::Scalar,
            Mover::Volatile => Width::Volatile,
        };
        self.gpu.move_bytes(width, to, from, bytes, stream)
    }

    /// Queues moves of samples between the own buffer, where they lie close, and the window.
    fn move_samples(&self, order: &Order, outward: bool) -> Result<(), GpuError> {
        let Span::Samples { first, stride, units } = order.span else { return Ok(()) };
        let far = self.window + first * UNIT;
        let near = self.own.pointer();
        if order.mover == Mover::Copy {
            for k in 0..units {
                let (far, near) = (far + k * stride * UNIT, near + k * UNIT);
                let (to, from) = if outward { (far, near) } else { (near, far) };
                self.move_bytes(Mover::Copy, to, from, UNIT, outward)?;
            }
            return Ok(());
        }
        let (to, from) =
            if outward { ((far, stride), (near, 1)) } else { ((near, 1), (far, stride)) };
        self.gpu.move_units(to, from, units)
    }

    /// Own memory for samples: one unit after the other.
    fn sample_row(&self, span: Span) -> Row {
        Row { base: self.own.pointer(), stride: 1, ..check::sample_row(self.own(), span) }
    }
}

impl Requester for Local<'_> {
    fn write(&mut self, order: Order) -> Result<(), GpuError> {
        let (payload, _) = order.headers()?;
        match order.span {
            Span::Range { offset, bytes } => {
                check::payload(self.gpu, self.own(), order.span, payload)?;
                let (to, from) = (self.window + offset, self.own.pointer() + offset);
                self.move_bytes(order.mover, to, from, bytes, true)?;
            }
            Span::Samples { .. } => {
                self.gpu.fill(self.sample_row(order.span), payload)?;
                self.move_samples(&order, true)?;
            }
        }
        self.gpu.finish(order.limit(), "the write")
    }

    fn read(&mut self, order: Order) -> Result<Option<DamageReport>, GpuError> {
        let (payload, poison) = order.headers()?;
        match order.span {
            Span::Range { offset, bytes } => {
                check::poison(self.gpu, self.own(), order.span, poison)?;
                let (to, from) = (self.own.pointer() + offset, self.window + offset);
                self.move_bytes(order.mover, to, from, bytes, false)?;
                self.gpu.finish(order.limit(), "the read")?;
                let expectation =
                    Expectation { payload, poison, start: offset, end: offset + bytes };
                check::check_range(self.gpu, self.own(), expectation, order.limit())
            }
            Span::Samples { .. } => {
                let row = self.sample_row(order.span);
                self.gpu.fill(row, poison)?;
                self.move_samples(&order, false)?;
                self.gpu.finish(order.limit(), "the read of samples")?;
                check::check_samples(self.gpu, row, (payload, poison), order.limit())
            }
        }
    }

    fn look_through(&mut self, mover: Mover, unit: u64) -> Result<[u8; 16], GpuError> {
        let at = self.own.pointer();
        self.move_bytes(mover, at, self.window + unit * UNIT, UNIT, false)?;
        self.gpu.finish(Duration::from_secs(2), "a look through the window")?;
        let bytes = self.gpu.download(at, UNIT)?;
        Ok(bytes.first_chunk::<16>().copied().unwrap_or([0; 16]))
    }

    fn produce(&mut self, order: ProduceOrder) -> Result<(), GpuError> {
        let header = Header::from_word(order.payload)
            .ok_or_else(|| GpuError::Request("a header that is none".into()))?;
        let rounds = Rounds {
            payload: self.window,
            flags: self.window + order.flags,
            count: order.rounds,
            units: order.units,
            header,
        };
        self.gpu.produce(rounds, Duration::from_nanos(order.pause_ns))?;
        self.gpu.finish(Duration::from_millis(order.limit_ms), "the writer of flags")
    }
}
