//! Streams and events.

use std::ffi::c_void;
use std::ptr;
use std::rc::Rc;
use std::time::Duration;

use super::Driver;
use crate::status::GpuError;

/// A non-blocking stream, created in the context that was current.
#[derive(Debug)]
pub(crate) struct Stream {
    driver: Rc<Driver>,
    raw: *mut c_void,
}

impl Stream {
    pub(crate) fn new(driver: &Rc<Driver>) -> Result<Self, GpuError> {
        const NON_BLOCKING: u32 = 1;
        let mut raw = ptr::null_mut();
        // SAFETY: the pointer is to a live handle.
        let code = unsafe { (driver.symbols.stream_create)(&raw mut raw, NON_BLOCKING) };
        driver.check("cuStreamCreate", code)?;
        Ok(Self { driver: Rc::clone(driver), raw })
    }

    pub(crate) fn raw(&self) -> *mut c_void {
        self.raw
    }

    /// Whether everything queued has ended; an error of the work comes out here.
    pub(crate) fn is_idle(&self) -> Result<bool, GpuError> {
        const NOT_READY: i32 = 600;
        // SAFETY: the stream is live.
        let code = unsafe { (self.driver.symbols.stream_query)(self.raw) };
        if code == NOT_READY {
            return Ok(false);
        }
        self.driver.check("cuStreamQuery", code)?;
        Ok(true)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        if !self.driver.is_lost() {
            // SAFETY: created by `cuStreamCreate` and not destroyed before.
            let code = unsafe { (self.driver.symbols.stream_destroy)(self.raw) };
            self.driver.note("cuStreamDestroy", code);
        }
    }
}

/// A point in a stream, with its time on that device's clock.
#[derive(Debug)]
pub(crate) struct Event {
    driver: Rc<Driver>,
    raw: *mut c_void,
}

impl Event {
    pub(crate) fn new(driver: &Rc<Driver>) -> Result<Self, GpuError> {
        let mut raw = ptr::null_mut();
        // SAFETY: the pointer is to a live handle.
        let code = unsafe { (driver.symbols.event_create)(&raw mut raw, 0) };
        driver.check("cuEventCreate", code)?;
        Ok(Self { driver: Rc::clone(driver), raw })
    }

    pub(crate) fn record(&self, stream: &Stream) -> Result<(), GpuError> {
        // SAFETY: event and stream are live.
        let code = unsafe { (self.driver.symbols.event_record)(self.raw, stream.raw) };
        self.driver.check("cuEventRecord", code)
    }

    /// Time from `start` to this event; both must have passed, on one device.
    pub(crate) fn since(&self, start: &Self) -> Result<Duration, GpuError> {
        let mut milliseconds = 0.0_f32;
        // SAFETY: the pointer is to a live float; both events are live.
        let code = unsafe {
            (self.driver.symbols.event_elapsed)(&raw mut milliseconds, start.raw, self.raw)
        };
        self.driver.check("cuEventElapsedTime", code)?;
        Ok(Duration::try_from_secs_f64(f64::from(milliseconds) / 1e3).unwrap_or_default())
    }
}

impl Drop for Event {
    fn drop(&mut self) {
        if !self.driver.is_lost() {
            // SAFETY: created by `cuEventCreate` and not destroyed before.
            let code = unsafe { (self.driver.symbols.event_destroy)(self.raw) };
            self.driver.note("cuEventDestroy", code);
        }
    }
}
