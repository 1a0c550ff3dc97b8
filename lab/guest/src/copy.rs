//! The judged copy: a requester reads a pattern out of a target's memory and writes it back to another
//! place there; the verdict comes from reading that place on the target's side.

use std::time::{Duration, Instant};

use peerway_lab_protocol::{Accelerator, PROBE_PROTOCOL, Probe, Verdict};

use crate::engine::{Ended, Engine, REGISTERS, TRANSFER};
use crate::mapping::Mapping;
use crate::pattern::{self, Tag};
use crate::pci::{Enabled, Function};
use crate::{Context as _, Result};

/// BAR of an engine that holds its registers.
pub const ENGINE_BAR: u8 = 0;

/// How much to copy, and for how long at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes, a multiple of eight.
    pub bytes: usize,
    /// Where in the target's memory the source begins, a multiple of eight.
    pub offset: usize,
    /// From start to verdict.
    pub deadline: Duration,
}

impl Limits {
    /// How much of the target's memory a copy reaches into: source and destination.
    pub fn reach(self) -> usize {
        self.offset.saturating_add(2 * self.bytes)
    }
}

impl Default for Limits {
    /// One transfer of the engine, and fifty times what it needs.
    fn default() -> Self {
        Self { bytes: TRANSFER, offset: 0, deadline: Duration::from_secs(10) }
    }
}

/// The memory of a target as both sides see it.
#[derive(Debug)]
pub struct Memory<'a> {
    /// The target's own side.
    pub mapping: &'a Mapping,
    /// The address by which the requester reaches its first byte.
    pub address: u64,
    /// `raw` where that is the bus address, else `mapped`.
    pub mode: &'a str,
}

/// The names of a pair.
#[derive(Debug, Clone, Copy)]
pub struct Names<'a> {
    /// The requester.
    pub from: &'a str,
    /// The target.
    pub to: &'a str,
}

impl Names<'_> {
    /// A verdict that was reached without moving a byte.
    pub fn without_copy(self, verdict: Verdict, detail: String) -> Probe {
        Probe {
            protocol: PROBE_PROTOCOL,
            from: self.from.to_owned(),
            to: self.to.to_owned(),
            engine: "dma".to_owned(),
            mode: "raw".to_owned(),
            verdict,
            damage: None,
            bytes: 0,
            first_bad_offset: None,
            detail,
        }
    }
}

/// Copies and judges.
///
/// # Errors
/// Where the limits do not fit the memory, or a mapping cannot be reached; never for what the copy did.
pub fn judged(
    names: Names<'_>,
    engine: &Engine,
    memory: &Memory<'_>,
    limits: Limits,
) -> Result<Probe> {
    // The destination lies right after the source.
    let (bytes, source) = (limits.bytes, limits.offset);
    let destination = source.saturating_add(bytes);
    let whole = bytes.is_multiple_of(8) && source.is_multiple_of(8);
    if bytes == 0 || !whole || limits.reach() > memory.mapping.length() {
        let room = memory.mapping.length();
        return Err(format!(
            "cannot copy {bytes} bytes at {source}: both are multiples of 8, and offset and twice the \
             bytes fit into {room}"
        )
        .into());
    }
    let tag = Tag { pair: pair_number(names), round: round_number()? };
    for index in 0..u32::try_from(bytes / 8)? {
        let at = usize::try_from(index)? * 8;
        memory.mapping.store(source + at, tag.word(index))?;
        memory.mapping.store(destination + at, poison(index))?;
    }
    let end = Instant::now() + limits.deadline;
    let mut probe = names.without_copy(Verdict::Intact, String::new());
    memory.mode.clone_into(&mut probe.mode);
    if move_all(engine, memory.address + u64::try_from(source)?, bytes, end)? == Ended::No {
        probe.verdict = Verdict::Hung;
        probe.detail = format!("the engine was still busy after {:?}", limits.deadline);
        return Ok(probe);
    }
    let words = (0..bytes / 8).map(|word| memory.mapping.load(destination + word * 8));
    let words = words.collect::<Result<Vec<u64>>>()?;
    probe.bytes = u64::try_from(bytes)?;
    match pattern::judge(tag, words.into_iter(), poison) {
        None => probe.detail = format!("{bytes} bytes read out of the target and written back"),
        Some(wrong) => {
            probe.verdict = Verdict::Damaged;
            probe.damage = Some(wrong.damage);
            probe.first_bad_offset = Some(u64::from(wrong.first_bad) * 8);
            probe.detail = format!("{} of {} words are wrong", wrong.bad, bytes / 8);
        }
    }
    Ok(probe)
}

fn move_all(engine: &Engine, address: u64, bytes: usize, end: Instant) -> Result<Ended> {
    let mut done = 0;
    while done < bytes {
        let count = TRANSFER.min(bytes - done);
        let source = address + u64::try_from(done)?;
        let destination = source + u64::try_from(bytes)?;
        if engine.read(source, count, end)? == Ended::No
            || engine.write(destination, count, end)? == Ended::No
        {
            return Ok(Ended::No);
        }
        done += count;
    }
    Ok(Ended::Yes)
}

/// The engine of an accelerator, reached through sysfs.
#[derive(Debug)]
pub struct Requester {
    engine: Engine,
    _enabled: Enabled,
}

/// The memory of an accelerator, reached through sysfs.
#[derive(Debug)]
pub struct Target {
    memory: Mapping,
    address: u64,
    _enabled: Enabled,
}

impl Requester {
    /// Opens an accelerator's engine.
    ///
    /// # Errors
    /// Where the kernel refuses, as it does for a BAR that a driver claimed.
    pub fn open(accelerator: &Accelerator) -> Result<Self> {
        let function = Function::at(&accelerator.engine)?;
        let enabled = function.enable(true)?;
        let engine = Engine::new(function.map(ENGINE_BAR, REGISTERS)?);
        Ok(Self { engine, _enabled: enabled })
    }

    /// Has the engine read from a bus address, whoever's it is, into its own buffer. Whether anything came
    /// is for the kernel's log to say.
    ///
    /// # Errors
    /// Where the registers cannot be reached.
    pub fn read_from(&self, address: u64, limits: Limits) -> Result<Ended> {
        self.engine.read(address, limits.bytes.min(TRANSFER), Instant::now() + limits.deadline)
    }

    /// Copies into a target by raw bus address.
    ///
    /// # Errors
    /// As [`judged`].
    pub fn copy_to(&self, target: &Target, names: Names<'_>, limits: Limits) -> Result<Probe> {
        let memory = Memory { mapping: &target.memory, address: target.address, mode: "raw" };
        judged(names, &self.engine, &memory, limits)
    }
}

impl Target {
    /// Opens an accelerator's memory, up to `most` bytes.
    ///
    /// # Errors
    /// As [`Requester::open`].
    pub fn open(accelerator: &Accelerator, most: usize) -> Result<Self> {
        let function = Function::at(&accelerator.memory)?;
        let enabled = function.enable(false)?;
        let memory = function.map(accelerator.bar, most)?;
        let address = function.bar(accelerator.bar)?.start;
        Ok(Self { memory, address, _enabled: enabled })
    }
}

/// A number for a pair, from the bus numbers of its devices.
fn pair_number(names: Names<'_>) -> u16 {
    let bus = |address: &str| {
        address.split(':').nth(1).and_then(|bus| u16::from_str_radix(bus, 16).ok()).unwrap_or(0)
    };
    (bus(names.from) << 8) | (bus(names.to) & 0xff)
}

/// A number that the next copy will not have: milliseconds since boot.
fn round_number() -> Result<u16> {
    let text =
        std::fs::read_to_string("/proc/uptime").context(|| "cannot read uptime".to_owned())?;
    let digits: String =
        text.chars().take_while(|c| *c != ' ').filter(char::is_ascii_digit).collect();
    Ok(u16::try_from(digits.parse::<u64>()? % 4096)?)
}

/// What the destination holds before the copy: no two words alike, none of them a tagged word.
fn poison(index: u32) -> u64 {
    0xdead_0000_0000_0001 | (u64::from(index) << 4)
}
