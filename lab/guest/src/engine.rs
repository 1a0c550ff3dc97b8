//! The DMA engine of QEMU's `edu` device (`docs/specs/edu.rst` of QEMU), the stand-in for a GPU's copy
//! engine: it moves a little at a time between its own buffer of 4 KiB and any bus address, about a tenth
//! of a second each, and reports no errors.

use std::time::{Duration, Instant};

use crate::Result;
use crate::mapping::Mapping;

/// Bytes of the largest transfer: half the engine's buffer, since emulators before 8.2.1 take a transfer
/// that ends with the buffer for one beyond it, and end themselves.
pub const TRANSFER: usize = 2048;
/// Bytes of the register window.
pub const REGISTERS: usize = 0x1000;

const BUFFER_ADDRESS: u64 = 0x4_0000;
const SOURCE: usize = 0x80;
const DESTINATION: usize = 0x88;
const COUNT: usize = 0x90;
const COMMAND: usize = 0x98;
const START: u64 = 1;
const TO_BUS: u64 = 2;
/// How long to sleep between looks at the command register.
const POLL: Duration = Duration::from_millis(2);

/// An engine whose registers are mapped.
#[derive(Debug)]
pub struct Engine {
    registers: Mapping,
}

/// Whether a transfer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The engine says that it is idle again.
    Yes,
    /// It was still busy at the deadline.
    No,
}

impl Engine {
    /// The engine behind some registers.
    pub fn new(registers: Mapping) -> Self {
        Self { registers }
    }

    /// Reads `count` bytes from a bus address into the engine's buffer.
    ///
    /// # Errors
    /// Where the registers cannot be reached.
    pub fn read(&self, bus: u64, count: usize, deadline: Instant) -> Result<Ended> {
        self.transfer(bus, BUFFER_ADDRESS, count, START, deadline)
    }

    /// Writes `count` bytes of the engine's buffer to a bus address.
    ///
    /// # Errors
    /// Where the registers cannot be reached.
    pub fn write(&self, bus: u64, count: usize, deadline: Instant) -> Result<Ended> {
        self.transfer(BUFFER_ADDRESS, bus, count, START | TO_BUS, deadline)
    }

    fn transfer(
        &self,
        source: u64,
        destination: u64,
        count: usize,
        command: u64,
        deadline: Instant,
    ) -> Result<Ended> {
        // A count beyond the buffer would end the emulator itself.
        if count > TRANSFER {
            return Err(format!("the engine moves {TRANSFER} bytes at most, not {count}").into());
        }
        if self.wait(deadline)? == Ended::No {
            return Ok(Ended::No);
        }
        self.registers.store(SOURCE, source)?;
        self.registers.store(DESTINATION, destination)?;
        self.registers.store(COUNT, u64::try_from(count)?)?;
        self.registers.store(COMMAND, command)?;
        self.wait(deadline)
    }

    fn wait(&self, deadline: Instant) -> Result<Ended> {
        while self.registers.load(COMMAND)? & START != 0 {
            if Instant::now() >= deadline {
                return Ok(Ended::No);
            }
            std::thread::sleep(POLL);
        }
        Ok(Ended::Yes)
    }
}
