//! Device memory, pinned host memory, and copies.

use std::ffi::c_void;
use std::ptr::{self, NonNull};
use std::rc::Rc;
use std::sync::atomic::{AtomicU32, Ordering};

use super::{Context, DevicePointer, Driver, Stream};
use crate::status::GpuError;

/// Pinned host memory that GPUs can reach too, for latches and for host traffic.
#[derive(Debug)]
pub(crate) struct HostBuffer {
    driver: Rc<Driver>,
    pointer: NonNull<c_void>,
    bytes: usize,
    device_pointer: DevicePointer,
}

impl HostBuffer {
    /// Allocates in the current context, portable and mapped for devices.
    pub(crate) fn new(driver: &Rc<Driver>, bytes: usize) -> Result<Self, GpuError> {
        const PORTABLE_AND_MAPPED: u32 = 3;
        let bytes = bytes.max(64);
        let mut raw = ptr::null_mut();
        // SAFETY: the pointer is to a live handle.
        let code =
            unsafe { (driver.symbols.mem_host_alloc)(&raw mut raw, bytes, PORTABLE_AND_MAPPED) };
        driver.check("cuMemHostAlloc", code)?;
        let pointer =
            NonNull::new(raw).ok_or(GpuError::Cuda { call: "cuMemHostAlloc", code: 2 })?;
        let mut device_pointer = 0;
        // SAFETY: the host pointer was just allocated by the driver.
        let code = unsafe {
            (driver.symbols.mem_host_get_device_pointer)(&raw mut device_pointer, raw, 0)
        };
        let buffer = Self { driver: Rc::clone(driver), pointer, bytes, device_pointer };
        driver.check("cuMemHostGetDevicePointer", code)?;
        buffer.flag().store(0, Ordering::SeqCst);
        Ok(buffer)
    }

    pub(crate) fn device_pointer(&self) -> DevicePointer {
        self.device_pointer
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Stores bytes from the start on; nothing that is queued may use the buffer.
    pub(crate) fn put(&mut self, from: &[u8]) {
        let count = from.len().min(self.bytes);
        // SAFETY: so many bytes are in both; the buffer is the driver's, so they do not overlap.
        unsafe { self.pointer.cast::<u8>().as_ptr().copy_from_nonoverlapping(from.as_ptr(), count) }
    }

    /// A copy of what it holds; nothing that is queued may use the buffer.
    pub(crate) fn take(&self) -> Vec<u8> {
        let mut out = vec![0; self.bytes];
        // SAFETY: as many bytes in both; the buffer is the driver's, so they do not overlap.
        unsafe {
            out.as_mut_ptr()
                .copy_from_nonoverlapping(self.pointer.cast::<u8>().as_ptr(), self.bytes);
        }
        out
    }

    /// The first word, which devices poll.
    pub(crate) fn flag(&self) -> &AtomicU32 {
        // SAFETY: at least 64 bytes, aligned to a page by the driver, alive as long as `self`;
        // the host touches this word through atomics only.
        unsafe { self.pointer.cast::<AtomicU32>().as_ref() }
    }
}

impl Drop for HostBuffer {
    fn drop(&mut self) {
        if !self.driver.is_lost() {
            // SAFETY: allocated by `cuMemHostAlloc` and not freed before.
            let code = unsafe { (self.driver.symbols.mem_free_host)(self.pointer.as_ptr()) };
            self.driver.note("cuMemFreeHost", code);
        }
    }
}

impl Driver {
    /// Notes a failure where nothing can be returned: a lost context is remembered.
    pub(super) fn note(&self, call: &'static str, code: i32) {
        if self.check(call, code).is_err() {
            self.give_up();
        }
    }

    /// Free and total bytes of the current context's device.
    pub(crate) fn memory(&self) -> Result<(u64, u64), GpuError> {
        let mut free = 0_usize;
        let mut total = 0_usize;
        // SAFETY: both pointers are to live integers.
        let code = unsafe { (self.symbols.mem_get_info)(&raw mut free, &raw mut total) };
        self.check("cuMemGetInfo", code)?;
        let wide = |value: usize| u64::try_from(value).unwrap_or(u64::MAX);
        Ok((wide(free), wide(total)))
    }

    pub(crate) fn alloc(&self, bytes: u64) -> Result<DevicePointer, GpuError> {
        let mut pointer = 0;
        // SAFETY: the pointer is to a live integer.
        let code = unsafe { (self.symbols.mem_alloc)(&raw mut pointer, size(bytes)) };
        self.check("cuMemAlloc", code)?;
        Ok(pointer)
    }

    pub(crate) fn free(&self, pointer: DevicePointer) {
        // SAFETY: device memory; the driver checks the address.
        let code = unsafe { (self.symbols.mem_free)(pointer) };
        self.note("cuMemFree", code);
    }

    pub(crate) fn fill_bytes(
        &self,
        pointer: DevicePointer,
        value: u8,
        bytes: u64,
        stream: &Stream,
    ) -> Result<(), GpuError> {
        // SAFETY: device memory; the driver checks the range.
        let code =
            unsafe { (self.symbols.memset_d8_async)(pointer, value, size(bytes), stream.raw()) };
        self.check("cuMemsetD8Async", code)
    }

    pub(crate) fn upload(&self, to: DevicePointer, from: &[u8]) -> Result<(), GpuError> {
        // SAFETY: the slice is live for this blocking call and as long as said.
        let code = unsafe { (self.symbols.memcpy_htod)(to, from.as_ptr().cast(), from.len()) };
        self.check("cuMemcpyHtoD", code)
    }

    pub(crate) fn download(&self, to: &mut [u8], from: DevicePointer) -> Result<(), GpuError> {
        // SAFETY: the slice is live and unique for this blocking call and as long as said.
        let code = unsafe { (self.symbols.memcpy_dtoh)(to.as_mut_ptr().cast(), from, to.len()) };
        self.check("cuMemcpyDtoH", code)
    }

    /// Queues a copy from pinned memory; the buffer outlives the stream's work by its owner's care
    /// (callers wait for the stream before they drop the buffer, or give the process up).
    pub(crate) fn upload_async(
        &self,
        to: DevicePointer,
        from: &HostBuffer,
        stream: &Stream,
    ) -> Result<(), GpuError> {
        // SAFETY: pinned memory that is freed by the driver itself, which waits for its users.
        let code = unsafe {
            (self.symbols.memcpy_htod_async)(
                to,
                from.pointer.as_ptr().cast_const(),
                from.bytes,
                stream.raw(),
            )
        };
        self.check("cuMemcpyHtoDAsync", code)
    }

    /// Queues a copy into pinned memory; see [`Self::upload_async`].
    pub(crate) fn download_async(
        &self,
        to: &HostBuffer,
        from: DevicePointer,
        stream: &Stream,
    ) -> Result<(), GpuError> {
        // SAFETY: as in `upload_async`; the host reads such a buffer only once the stream is idle.
        let code = unsafe {
            (self.symbols.memcpy_dtoh_async)(to.pointer.as_ptr(), from, to.bytes, stream.raw())
        };
        self.check("cuMemcpyDtoHAsync", code)
    }

    /// Queues a copy between device addresses, by the copy engine of the stream's GPU; direct
    /// between GPUs only where access was granted.
    pub(crate) fn copy(
        &self,
        to: DevicePointer,
        from: DevicePointer,
        bytes: u64,
        stream: &Stream,
    ) -> Result<(), GpuError> {
        // SAFETY: device memory; the driver checks the ranges.
        let code = unsafe { (self.symbols.memcpy_dtod_async)(to, from, size(bytes), stream.raw()) };
        self.check("cuMemcpyDtoDAsync", code)
    }

    /// Queues a copy between GPUs that needs no access grant: without one the driver stages it
    /// through the host.
    pub(crate) fn copy_between(
        &self,
        to: (DevicePointer, Context),
        from: (DevicePointer, Context),
        bytes: u64,
        stream: &Stream,
    ) -> Result<(), GpuError> {
        // SAFETY: device memory and live contexts; the driver checks the ranges.
        let code = unsafe {
            (self.symbols.memcpy_peer_async)(
                to.0,
                to.1.0,
                from.0,
                from.1.0,
                size(bytes),
                stream.raw(),
            )
        };
        self.check("cuMemcpyPeerAsync", code)
    }
}

/// Sizes are 64-bit here and `size_t` there; the product runs on 64-bit hosts only.
fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
