//! One GPU with its context, streams, compiled kernels and report area.

use std::rc::Rc;
use std::time::{Duration, Instant};

use peerway_core::address::PciAddress;

use crate::driver::{Context, DevicePointer, Driver, Event, Stream, VmmHandle, attribute};
use crate::kernels::Kernels;
use crate::status::GpuError;
use crate::tag::UNIT;

/// A GPU that this process has opened.
#[derive(Debug)]
pub(crate) struct Gpu {
    driver: Rc<Driver>,
    device: i32,
    context: Context,
    address: PciAddress,
    /// Number by which tags name this GPU; the caller sees to it that it is unique.
    number: u16,
    multiprocessors: u32,
    kernels: Kernels,
    stream: Stream,
    side_stream: Stream,
    report: Buffer,
}

/// Bytes of the report area: 16 words, then the page bitmap.
const REPORT_WORDS: u64 = 16;
pub(crate) const BITMAP_PAGES: u64 = 1 << 19;
const REPORT_BYTES: u64 = REPORT_WORDS * 8 + BITMAP_PAGES / 8;

impl Gpu {
    /// Opens the GPU at `address` and compiles the kernels for it.
    pub(crate) fn open(
        driver: &Rc<Driver>,
        address: PciAddress,
        number: u16,
    ) -> Result<Self, GpuError> {
        let device = driver.device_at(&address.to_string())?;
        let owner = Rc::new(Retained::new(driver, device)?);
        let multiprocessors = driver.attribute(attribute::MULTIPROCESSORS, device)?;
        driver.set_current(owner.context)?;
        let kernels = Kernels::load(driver)?;
        let stream = Stream::new(driver)?;
        let side_stream = Stream::new(driver)?;
        let report = Buffer::plain(driver, &owner, REPORT_BYTES)?;
        Ok(Self {
            driver: Rc::clone(driver),
            device,
            context: owner.context,
            address,
            number,
            multiprocessors: u32::try_from(multiprocessors).unwrap_or(1).max(1),
            kernels,
            stream,
            side_stream,
            report,
        })
    }

    pub(crate) fn driver(&self) -> &Rc<Driver> {
        &self.driver
    }

    pub(crate) fn device(&self) -> i32 {
        self.device
    }

    pub(crate) fn context(&self) -> Context {
        self.context
    }

    pub(crate) fn address(&self) -> PciAddress {
        self.address
    }

    pub(crate) fn number(&self) -> u16 {
        self.number
    }

    pub(crate) fn multiprocessors(&self) -> u32 {
        self.multiprocessors
    }

    pub(crate) fn kernels(&self) -> &Kernels {
        &self.kernels
    }

    /// The stream for the work under test.
    pub(crate) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// A second stream, for work that runs at the same time.
    pub(crate) fn side_stream(&self) -> &Stream {
        &self.side_stream
    }

    /// Where kernels of this GPU report.
    pub(crate) fn report(&self) -> DevicePointer {
        self.report.pointer
    }

    /// The bitmap behind the report.
    pub(crate) fn bitmap(&self) -> DevicePointer {
        self.report.pointer + REPORT_WORDS * 8
    }

    /// Makes this GPU's context the current one.
    pub(crate) fn enter(&self) -> Result<(), GpuError> {
        self.driver.set_current(self.context)
    }

    /// Plain device memory.
    pub(crate) fn alloc(&self, bytes: u64) -> Result<Buffer, GpuError> {
        self.enter()?;
        Buffer::plain(&self.driver, &self.report.owner, bytes)
    }

    /// Device memory by virtual memory management, reachable for `others` too.
    pub(crate) fn alloc_shared(&self, bytes: u64, others: &[&Self]) -> Result<Buffer, GpuError> {
        self.enter()?;
        let unit = self.driver.granularity(self.device)?;
        let bytes = bytes.div_ceil(unit) * unit;
        let memory = self.driver.create_memory(self.device, bytes)?;
        let mut buffer = Buffer {
            driver: Rc::clone(&self.driver),
            owner: Rc::clone(&self.report.owner),
            pointer: 0,
            bytes,
            origin: Origin::Shared { memory, mapped: false },
        };
        buffer.pointer = self.driver.reserve(bytes)?;
        self.driver.map(buffer.pointer, bytes, memory)?;
        buffer.origin = Origin::Shared { memory, mapped: true };
        for device in std::iter::once(self).chain(others.iter().copied()) {
            self.driver.grant(buffer.pointer, bytes, device.device)?;
        }
        Ok(buffer)
    }

    /// Free bytes on this GPU now.
    pub(crate) fn free_memory(&self) -> Result<u64, GpuError> {
        self.enter()?;
        Ok(self.driver.memory()?.0)
    }

    /// Waits for both streams.
    pub(crate) fn finish(&self, limit: Duration, what: &str) -> Result<(), GpuError> {
        self.enter()?;
        wait(&self.driver, &[&self.stream, &self.side_stream], limit, what)
    }

    /// Presets the report: all zeros but the word that holds a minimum.
    pub(crate) fn clear_report(&self) -> Result<(), GpuError> {
        self.enter()?;
        self.driver.fill_bytes(self.report.pointer, 0, self.report.bytes, &self.stream)?;
        self.driver.fill_bytes(self.report.pointer + 8, 0xff, 8, &self.stream)
    }

    /// Reads the report words after the kernels have ended.
    pub(crate) fn read_report(&self) -> Result<[u64; 8], GpuError> {
        let mut bytes = [0_u8; 64];
        self.enter()?;
        self.driver.download(&mut bytes, self.report.pointer)?;
        let mut words = [0; 8];
        for (word, chunk) in words.iter_mut().zip(bytes.as_chunks::<8>().0) {
            *word = u64::from_le_bytes(*chunk);
        }
        Ok(words)
    }

    /// Device memory as this GPU's own copy engine delivers it to the host.
    pub(crate) fn download(&self, from: DevicePointer, bytes: u64) -> Result<Vec<u8>, GpuError> {
        let mut out = vec![0; usize::try_from(bytes).unwrap_or(0)];
        self.enter()?;
        self.driver.download(&mut out, from)?;
        Ok(out)
    }

    pub(crate) fn upload(&self, to: DevicePointer, bytes: &[u8]) -> Result<(), GpuError> {
        self.enter()?;
        self.driver.upload(to, bytes)
    }

    pub(crate) fn event(&self) -> Result<Event, GpuError> {
        self.enter()?;
        Event::new(&self.driver)
    }
}

/// Whether nothing is queued any more.
pub(crate) fn all_idle(streams: &[&Stream]) -> Result<bool, GpuError> {
    let mut idle = true;
    for stream in streams {
        idle &= stream.is_idle()?;
    }
    Ok(idle)
}

/// Waits until all streams are idle. A GPU that does not finish is not waited for any longer:
/// nothing of this process is freed from then on.
pub(crate) fn wait(
    driver: &Driver,
    streams: &[&Stream],
    limit: Duration,
    what: &str,
) -> Result<(), GpuError> {
    let start = Instant::now();
    let mut polls = 0_u32;
    loop {
        if all_idle(streams)? {
            return Ok(());
        }
        if start.elapsed() >= limit {
            driver.give_up();
            return Err(GpuError::Hung { what: what.to_owned(), limit });
        }
        polls = polls.saturating_add(1);
        // Short work is polled for; for longer work the core is left to others.
        if polls < 200 {
            std::thread::yield_now();
        } else {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

/// The hold on a primary context; released with the last buffer.
#[derive(Debug)]
pub(crate) struct Retained {
    driver: Rc<Driver>,
    device: i32,
    context: Context,
}

impl Retained {
    fn new(driver: &Rc<Driver>, device: i32) -> Result<Self, GpuError> {
        Ok(Self { driver: Rc::clone(driver), device, context: driver.retain(device)? })
    }
}

impl Drop for Retained {
    fn drop(&mut self) {
        if !self.driver.is_lost() && self.driver.release(self.device).is_err() {
            self.driver.give_up();
        }
    }
}

/// Memory of one GPU.
#[derive(Debug)]
pub(crate) struct Buffer {
    driver: Rc<Driver>,
    owner: Rc<Retained>,
    pointer: DevicePointer,
    bytes: u64,
    origin: Origin,
}

#[derive(Debug)]
enum Origin {
    Plain,
    Shared { memory: VmmHandle, mapped: bool },
}

impl Buffer {
    fn plain(driver: &Rc<Driver>, owner: &Rc<Retained>, bytes: u64) -> Result<Self, GpuError> {
        let pointer = driver.alloc(bytes)?;
        Ok(Self {
            driver: Rc::clone(driver),
            owner: Rc::clone(owner),
            pointer,
            bytes,
            origin: Origin::Plain,
        })
    }

    pub(crate) fn pointer(&self) -> DevicePointer {
        self.pointer
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) fn units(&self) -> u64 {
        self.bytes / UNIT
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        if self.driver.is_lost() || self.driver.set_current(self.owner.context).is_err() {
            return;
        }
        match self.origin {
            Origin::Plain => self.driver.free(self.pointer),
            Origin::Shared { memory, mapped } => {
                if mapped {
                    self.driver.unmap(self.pointer, self.bytes);
                }
                if self.pointer != 0 {
                    self.driver.unreserve(self.pointer, self.bytes);
                }
                self.driver.release_memory(memory);
            }
        }
    }
}
