//! The monotonic clock, as every process of a machine sees it.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds since the machine started.
#[inline]
pub fn now() -> u64 {
    read(ClockId::Monotonic)
}

/// Processor time that this process has taken, in nanoseconds, in itself and in the kernel for it.
pub fn processor_time() -> u64 {
    read(ClockId::ProcessCPUTime)
}

#[inline]
fn read(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// Nanoseconds of a span.
pub fn nanoseconds(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}
