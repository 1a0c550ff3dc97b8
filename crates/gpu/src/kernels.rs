//! The kernels of `kernels.ptx`, each with the parameters that it declares.

use std::ffi::CStr;
use std::rc::Rc;
use std::time::Duration;

use crate::driver::{DevicePointer, Driver, Function, Stream};
use crate::gpu::Gpu;
use crate::status::GpuError;
use crate::tag::Header;

/// The image with the zero byte that the driver wants at its end.
const IMAGE: &str = concat!(include_str!("kernels.ptx"), "\0");

/// Threads of a block in kernels that work on ranges.
const THREADS: u32 = 256;

/// Blocks for each multiprocessor: enough to fill it, and few enough that a big range is walked.
const BLOCKS_PER_MULTIPROCESSOR: u64 = 8;

/// All kernels of one GPU.
#[derive(Debug)]
pub(crate) struct Kernels {
    fill: Function,
    verify: Function,
    copy_v4: Function,
    copy_u32: Function,
    copy_volatile: Function,
    stream: Function,
    find: Function,
    produce: Function,
    consume: Function,
    ping_pong: Function,
    chase: Function,
    latch: Function,
    sum_fill: Function,
    sum_verify: Function,
}

/// How a streaming multiprocessor moves data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Width {
    /// 16-byte loads and stores.
    Vector,
    /// 4-byte loads and stores.
    Scalar,
    /// 4-byte volatile loads and stores.
    Volatile,
}

impl Width {
    /// Sizes and addresses must be multiples of this.
    pub(crate) const fn alignment(self) -> u64 {
        match self {
            Self::Vector => 16,
            Self::Scalar | Self::Volatile => 4,
        }
    }
}

/// A row of units in memory: the first at `base`, then one every `stride` units; the first has
/// index `first`, the next one `index_stride` more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Row {
    pub(crate) base: DevicePointer,
    pub(crate) stride: u64,
    pub(crate) first: u64,
    pub(crate) index_stride: u64,
    pub(crate) units: u64,
}

impl Row {
    /// Units `first..first + units` of a buffer at `buffer`, without gaps.
    pub(crate) fn dense(buffer: DevicePointer, first: u64, units: u64) -> Self {
        Self { base: buffer + first * crate::tag::UNIT, stride: 1, first, index_stride: 1, units }
    }
}

/// Rounds that go through a ring of slots, each with its flag.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rounds {
    pub(crate) payload: DevicePointer,
    pub(crate) flags: DevicePointer,
    pub(crate) count: u64,
    pub(crate) units: u64,
    pub(crate) header: Header,
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl Kernels {
    pub(crate) fn load(driver: &Rc<Driver>) -> Result<Self, GpuError> {
        let image = CStr::from_bytes_with_nul(IMAGE.as_bytes())
            .map_err(|_| GpuError::Request("the device code holds a zero byte".to_owned()))?;
        let module = driver.load_module(image)?;
        let get = |name: &CStr| driver.function(module, name);
        Ok(Self {
            fill: get(c"pw_fill")?,
            verify: get(c"pw_verify")?,
            copy_v4: get(c"pw_copy_v4")?,
            copy_u32: get(c"pw_copy_u32")?,
            copy_volatile: get(c"pw_copy_volatile")?,
            stream: get(c"pw_stream")?,
            find: get(c"pw_find")?,
            produce: get(c"pw_produce")?,
            consume: get(c"pw_consume")?,
            ping_pong: get(c"pw_pingpong")?,
            chase: get(c"pw_chase")?,
            latch: get(c"pw_latch")?,
            sum_fill: get(c"pw_sum_fill")?,
            sum_verify: get(c"pw_sum_verify")?,
        })
    }
}

/// Launches on a GPU. All are queued on the stream given and return at once.
impl Gpu {
    fn shape(&self, items: u64) -> (u32, u32) {
        let most = u64::from(self.multiprocessors()) * BLOCKS_PER_MULTIPROCESSOR;
        let blocks = items.div_ceil(u64::from(THREADS)).clamp(1, most);
        (u32::try_from(blocks).unwrap_or(1), THREADS)
    }

    fn start(
        &self,
        function: Function,
        shape: (u32, u32),
        parameters: &[u64],
        stream: &Stream,
    ) -> Result<(), GpuError> {
        self.enter()?;
        self.driver().launch(function, shape, parameters, stream)
    }

    /// Stores tags along a row.
    pub(crate) fn fill(&self, row: Row, header: Header) -> Result<(), GpuError> {
        if row.units == 0 {
            return Ok(());
        }
        let parameters =
            [row.base, row.first, row.index_stride, row.stride, row.units, header.word()];
        self.start(self.kernels().fill, self.shape(row.units), &parameters, self.stream())
    }

    /// Compares tags along a row into the report and the bitmap (see `pw_verify`).
    pub(crate) fn verify(&self, row: Row, header: Header, page_shift: u32) -> Result<(), GpuError> {
        let parameters = [
            row.base,
            row.first,
            row.index_stride,
            row.stride,
            row.units,
            header.word(),
            self.report(),
            self.bitmap(),
            u64::from(page_shift),
        ];
        self.start(self.kernels().verify, self.shape(row.units), &parameters, self.stream())
    }

    /// Copies `bytes` with loads and stores of the given width.
    pub(crate) fn move_bytes(
        &self,
        width: Width,
        to: DevicePointer,
        from: DevicePointer,
        bytes: u64,
        stream: &Stream,
    ) -> Result<(), GpuError> {
        let items = bytes / width.alignment();
        let shape = self.shape(items);
        match width {
            Width::Vector => {
                self.start(self.kernels().copy_v4, shape, &[to, 1, from, 1, items], stream)
            }
            Width::Scalar => self.start(self.kernels().copy_u32, shape, &[to, from, items], stream),
            Width::Volatile => {
                self.start(self.kernels().copy_volatile, shape, &[to, from, items], stream)
            }
        }
    }

    /// Copies units between rows with different gaps.
    pub(crate) fn move_units(
        &self,
        (to, to_stride): (DevicePointer, u64),
        (from, from_stride): (DevicePointer, u64),
        units: u64,
    ) -> Result<(), GpuError> {
        let parameters = [to, to_stride, from, from_stride, units];
        self.start(self.kernels().copy_v4, self.shape(units), &parameters, self.stream())
    }

    /// Copies for the bandwidth figures.
    pub(crate) fn stream_bytes(
        &self,
        to: DevicePointer,
        from: DevicePointer,
        bytes: u64,
        stream: &Stream,
    ) -> Result<(), GpuError> {
        let units = bytes / 16;
        self.start(self.kernels().stream, self.shape(units), &[to, from, units], stream)
    }

    /// Looks for a header in a range (see `pw_find`).
    pub(crate) fn find(
        &self,
        base: DevicePointer,
        units: u64,
        header: Header,
    ) -> Result<(), GpuError> {
        let parameters = [base, units, header.word(), self.report()];
        self.start(self.kernels().find, self.shape(units), &parameters, self.stream())
    }

    /// Starts the writing side of the ordering test.
    pub(crate) fn produce(&self, rounds: Rounds, pause: Duration) -> Result<(), GpuError> {
        let parameters = [
            rounds.payload,
            rounds.flags,
            rounds.count,
            rounds.units,
            rounds.header.word(),
            nanoseconds(pause),
        ];
        self.start(self.kernels().produce, (1, 64), &parameters, self.stream())
    }

    /// Starts the checking side of the ordering test, on the owner of the memory.
    pub(crate) fn consume(&self, rounds: Rounds, limit: Duration) -> Result<(), GpuError> {
        let parameters = [
            rounds.payload,
            rounds.flags,
            rounds.count,
            rounds.units,
            rounds.header.word(),
            nanoseconds(limit),
            self.report(),
        ];
        self.start(self.kernels().consume, (1, 64), &parameters, self.stream())
    }

    /// Starts one side of a ping-pong.
    pub(crate) fn ping_pong(
        &self,
        (mine, theirs): (DevicePointer, DevicePointer),
        rounds: u64,
        first: bool,
        limit: Duration,
    ) -> Result<(), GpuError> {
        let parameters =
            [mine, theirs, rounds, u64::from(first), nanoseconds(limit), self.report()];
        self.start(self.kernels().ping_pong, (1, 1), &parameters, self.stream())
    }

    /// Follows a chain of offsets.
    pub(crate) fn chase(
        &self,
        base: DevicePointer,
        start: u64,
        steps: u64,
    ) -> Result<(), GpuError> {
        let parameters = [base, start, steps, self.report()];
        self.start(self.kernels().chase, (1, 1), &parameters, self.stream())
    }

    /// Holds a stream until the flag is set.
    pub(crate) fn latch(
        &self,
        flag: DevicePointer,
        limit: Duration,
        stream: &Stream,
    ) -> Result<(), GpuError> {
        self.start(self.kernels().latch, (1, 1), &[flag, nanoseconds(limit)], stream)
    }

    /// Stores this rank's terms of a sum.
    pub(crate) fn sum_fill(
        &self,
        base: DevicePointer,
        count: u64,
        rank: u64,
        seed: u64,
    ) -> Result<(), GpuError> {
        let parameters = [base, count, rank, seed];
        self.start(self.kernels().sum_fill, self.shape(count), &parameters, self.stream())
    }

    /// Compares sums over `ranks` (see `pw_sum_verify`).
    pub(crate) fn sum_verify(
        &self,
        base: DevicePointer,
        count: u64,
        ranks: u64,
        seed: u64,
    ) -> Result<(), GpuError> {
        let parameters = [base, count, ranks, seed, self.report()];
        self.start(self.kernels().sum_verify, self.shape(count), &parameters, self.stream())
    }
}
