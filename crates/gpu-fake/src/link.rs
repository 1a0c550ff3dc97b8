//! The way from a GPU to memory: straight to its own, over a link with its fault to another's.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::io::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::machine::{Machine, Place, code, lock, sleep_for_ever};
use crate::script::{Engine, Kind};

const PAGE: usize = 4096;

type Pages = Mutex<BTreeMap<(usize, usize, u64), Box<[u8; PAGE]>>>;

/// A store that has not come yet.
struct Late {
    gpu: usize,
    at: u64,
    data: Vec<u8>,
}

/// What faults remember.
pub(crate) struct Links {
    /// Private copies of pages, or what pages held when they were first read.
    pages: Pages,
    /// Units that went over links.
    units: AtomicU64,
    /// Stores that went over links.
    stores: AtomicU64,
    late: Mutex<VecDeque<Late>>,
    /// Flags that came before their data.
    overtakings: AtomicU64,
    /// Pairs of which a refusal was logged.
    refused: Mutex<BTreeSet<(usize, usize)>>,
    /// Streams with transfers between GPUs, queued or running, and how many.
    busy: Mutex<BTreeMap<usize, usize>>,
}

impl Links {
    pub(crate) fn new() -> Self {
        Self {
            pages: Mutex::default(),
            units: AtomicU64::new(0),
            stores: AtomicU64::new(0),
            late: Mutex::default(),
            overtakings: AtomicU64::new(0),
            refused: Mutex::default(),
            busy: Mutex::default(),
        }
    }

    /// A transfer between GPUs was queued in a stream.
    pub(crate) fn begin(&self, stream: usize) {
        *lock(&self.busy).entry(stream).or_default() += 1;
    }

    /// It is done.
    pub(crate) fn end(&self, stream: usize) {
        let mut busy = lock(&self.busy);
        if let Some(count) = busy.get_mut(&stream) {
            *count -= 1;
            if *count == 0 {
                busy.remove(&stream);
            }
        }
    }

    /// Whether more than one stream has transfers.
    fn loaded(&self) -> bool {
        lock(&self.busy).len() > 1
    }
}

impl Machine {
    /// The fault of requests from one GPU to another.
    pub(crate) fn fault(&self, from: usize, to: usize, engine: Engine) -> Option<Kind> {
        self.script.fault.filter(|fault| from != to && fault.hits(from, to, engine)).map(|f| f.kind)
    }

    /// Errors and hangs of requests, before any data moves.
    fn admit(&self, from: usize, place: Place, engine: Engine) -> Result<Option<Kind>, i32> {
        if place.gpu == from {
            return Ok(None);
        }
        if !place.allowed {
            return match engine {
                // The driver stages such copies through the host.
                Engine::Copy => Ok(None),
                Engine::Sm => Err(code::ILLEGAL_ADDRESS),
            };
        }
        let restricted = self.script.fault.is_some_and(|fault| {
            place.at < fault.above
                || fault.kernel.is_some_and(|only| only != crate::kernels::running())
        });
        match self.fault(from, place.gpu, engine).filter(|_| !restricted) {
            Some(Kind::Hang) => sleep_for_ever(),
            Some(Kind::Break(error)) => Err(error),
            None => Ok(None),
            fault => {
                self.log_refusal(from, place);
                Ok(fault)
            }
        }
    }

    /// Has the IOMMU say once in a process that it refused a request of this pair.
    #[expect(clippy::disallowed_types, reason = "a library for tests, in a file of the test")]
    fn log_refusal(&self, from: usize, place: Place) {
        let Some(path) = &self.script.kmsg else { return };
        if !lock(&self.links.refused).insert((from, place.gpu)) {
            return;
        }
        // Each GPU's memory is a terabyte from the last one's.
        let address = ((wide(place.gpu) + 1) << 40) + place.at;
        let line = format!(
            "3,9,2000,-;nvidia {}: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x0011 \
             address={address:#x} flags=0x0020]\n",
            self.script.address(from)
        );
        let file = std::fs::OpenOptions::new().append(true).open(path);
        let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
        assert!(written.is_ok(), "{path}: {written:?}");
    }

    /// Stores bytes at a device address.
    pub(crate) fn store(
        &self,
        from: usize,
        engine: Engine,
        address: u64,
        data: &[u8],
    ) -> Result<(), i32> {
        let place = self.place(from, address)?;
        if place.left < wide(data.len()) {
            return Err(code::ILLEGAL_ADDRESS);
        }
        match self.admit(from, place, engine)? {
            None => self.memory_of(place.gpu)?.write(place.at, data),
            Some(kind) => {
                for (at, range) in pages(place.at, data.len()) {
                    let part = data.get(range).unwrap_or_default();
                    self.store_faulty(kind, (from, place.gpu), at, part)?;
                }
            }
        }
        Ok(())
    }

    fn store_faulty(
        &self,
        kind: Kind,
        (from, to): (usize, usize),
        at: u64,
        data: &[u8],
    ) -> Result<(), i32> {
        let memory = self.memory_of(to)?;
        match kind {
            Kind::Drop => {}
            Kind::Mirror => {
                let (page, within) = (at / wide(PAGE), offset(at));
                let mut pages = lock(&self.links.pages);
                let copy = pages.entry((from, to, page)).or_insert_with(|| {
                    let mut copy = Box::new([0; PAGE]);
                    memory.read(page * wide(PAGE), copy.as_mut_slice());
                    copy
                });
                if let Some(slot) = copy.get_mut(within..within + data.len()) {
                    slot.copy_from_slice(data);
                }
            }
            Kind::Alias(window) => memory.write(at % window, data),
            Kind::Misroute => self.memory_of(self.third(from, to))?.write(at, data),
            Kind::Rare(every) => memory.write(at, &self.flip(every, data)),
            Kind::Loaded(every) if self.links.loaded() => {
                memory.write(at, &self.flip(every, data));
            }
            Kind::Reorder(every) => {
                // Stores of a kernel come one unit at a time; larger ones are not held back.
                let count = self.links.stores.fetch_add(1, Ordering::Relaxed);
                if data.len() <= 16 && count.is_multiple_of(every) {
                    let late = Late { gpu: to, at, data: data.to_vec() };
                    lock(&self.links.late).push_back(late);
                } else {
                    memory.write(at, data);
                }
            }
            Kind::Zeros
            | Kind::Ones
            | Kind::Loaded(_)
            | Kind::Stale
            | Kind::Hang
            | Kind::Refuse(_)
            | Kind::Break(_)
            | Kind::Absurd => memory.write(at, data),
        }
        Ok(())
    }

    /// Loads bytes from a device address.
    pub(crate) fn load(
        &self,
        from: usize,
        engine: Engine,
        address: u64,
        data: &mut [u8],
    ) -> Result<(), i32> {
        let place = self.place(from, address)?;
        if place.left < wide(data.len()) {
            return Err(code::ILLEGAL_ADDRESS);
        }
        match self.admit(from, place, engine)? {
            None => self.memory_of(place.gpu)?.read(place.at, data),
            Some(kind) => {
                for (at, range) in pages(place.at, data.len()) {
                    let part = data.get_mut(range).unwrap_or_default();
                    self.load_faulty(kind, (from, place.gpu), at, part)?;
                }
            }
        }
        Ok(())
    }

    /// As [`Self::load`], by whoever has mapped the memory for itself.
    pub(crate) fn load_peer(&self, from: usize, address: u64, data: &mut [u8]) -> Result<(), i32> {
        let place = self.place(from, address)?;
        self.load_mapped(from, (place.gpu, place.at), data)
    }

    /// The same by where the memory is: another process's.
    pub(crate) fn load_mapped(
        &self,
        from: usize,
        (gpu, at): (usize, u64),
        data: &mut [u8],
    ) -> Result<(), i32> {
        let place = Place { gpu, at, left: wide(data.len()), allowed: true };
        match self.admit(from, place, Engine::Sm)? {
            None => self.memory_of(place.gpu)?.read(place.at, data),
            Some(kind) => {
                for (at, range) in pages(place.at, data.len()) {
                    let part = data.get_mut(range).unwrap_or_default();
                    self.load_faulty(kind, (from, place.gpu), at, part)?;
                }
            }
        }
        Ok(())
    }

    fn load_faulty(
        &self,
        kind: Kind,
        (from, to): (usize, usize),
        at: u64,
        data: &mut [u8],
    ) -> Result<(), i32> {
        let memory = self.memory_of(to)?;
        memory.read(at, data);
        let (page, within) = (at / wide(PAGE), offset(at));
        match kind {
            Kind::Zeros => data.fill(0),
            Kind::Ones => data.fill(0xff),
            Kind::Mirror => {
                if let Some(copy) = lock(&self.links.pages).get(&(from, to, page)) {
                    let part = copy.get(within..within + data.len()).unwrap_or_default();
                    data.copy_from_slice(part);
                }
            }
            Kind::Stale => {
                let mut pages = lock(&self.links.pages);
                let copy = pages.entry((from, to, page)).or_insert_with(|| {
                    let mut copy = Box::new([0; PAGE]);
                    memory.read(page * wide(PAGE), copy.as_mut_slice());
                    copy
                });
                let part = copy.get(within..within + data.len()).unwrap_or_default();
                data.copy_from_slice(part);
            }
            Kind::Alias(window) => memory.read(at % window, data),
            Kind::Misroute => self.memory_of(self.third(from, to))?.read(at, data),
            Kind::Rare(every) => data.copy_from_slice(&self.flip(every, data)),
            Kind::Loaded(every) if self.links.loaded() => {
                data.copy_from_slice(&self.flip(every, data));
            }
            Kind::Drop
            | Kind::Loaded(_)
            | Kind::Reorder(_)
            | Kind::Hang
            | Kind::Refuse(_)
            | Kind::Break(_)
            | Kind::Absurd => {}
        }
        Ok(())
    }

    /// A flag with release order: everything stored before is there, unless the fault is that it
    /// is not.
    pub(crate) fn release(&self, from: usize, address: u64, value: u64) -> Result<(), i32> {
        let place = self.place(from, address)?;
        match self.admit(from, place, Engine::Sm)? {
            None => {
                self.memory_of(place.gpu)?.word(place.at).store(value, Ordering::Release);
                Ok(())
            }
            Some(Kind::Reorder(_)) => {
                self.memory_of(place.gpu)?.word(place.at).store(value, Ordering::Release);
                // Long enough for whoever polls to see the flag first; a few times will do.
                let held = !lock(&self.links.late).is_empty();
                if held && self.links.overtakings.fetch_add(1, Ordering::Relaxed) < 8 {
                    std::thread::sleep(Duration::from_millis(5));
                }
                self.arrive()
            }
            Some(_) => {
                std::sync::atomic::fence(Ordering::Release);
                self.store(from, Engine::Sm, address, &value.to_le_bytes())
            }
        }
    }

    /// A flag with acquire order.
    pub(crate) fn acquire(&self, from: usize, address: u64) -> Result<u64, i32> {
        let place = self.place(from, address)?;
        if place.gpu == from {
            return Ok(self.memory_of(place.gpu)?.word(place.at).load(Ordering::Acquire));
        }
        let mut word = [0; 8];
        self.load(from, Engine::Sm, address, &mut word)?;
        std::sync::atomic::fence(Ordering::Acquire);
        Ok(u64::from_le_bytes(word))
    }

    /// Delivers what was held back; at the end of a kernel everything has arrived.
    pub(crate) fn arrive(&self) -> Result<(), i32> {
        for late in lock(&self.links.late).drain(..) {
            self.memory_of(late.gpu)?.write(late.at, &late.data);
        }
        Ok(())
    }

    fn third(&self, from: usize, to: usize) -> usize {
        (0..self.script.gpus).find(|gpu| *gpu != from && *gpu != to).unwrap_or(to)
    }

    /// Flips a bit in every so many units.
    fn flip(&self, every: u64, data: &[u8]) -> Vec<u8> {
        let units = wide(data.len()).div_ceil(16).max(1);
        let before = self.links.units.fetch_add(units, Ordering::Relaxed);
        let mut wrong = data.to_vec();
        let mut next = before.next_multiple_of(every);
        while next < before + units {
            // The bit wanders with the count.
            let at = usize::try_from((next - before) * 16 + next % 16).unwrap_or(0);
            let at = at.min(wrong.len().saturating_sub(1));
            if let Some(byte) = wrong.get_mut(at) {
                *byte ^= 1 << (next % 8);
            }
            next += every;
        }
        wrong
    }
}

/// A range in pieces that stay within a page: where, and which part of the data.
fn pages(at: u64, bytes: usize) -> impl Iterator<Item = (u64, std::ops::Range<usize>)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        (done < bytes).then(|| {
            let here = at + wide(done);
            let length = (PAGE - offset(here)).min(bytes - done);
            done += length;
            (here, done - length..done)
        })
    })
}

fn offset(at: u64) -> usize {
    usize::try_from(at % wide(PAGE)).unwrap_or(0)
}

pub(crate) fn wide(value: usize) -> u64 {
    u64::try_from(value).unwrap_or(u64::MAX)
}
