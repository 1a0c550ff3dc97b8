//! The memory of a GPU: a mapping, private or shared between processes, and the table of what is
//! allocated in it.

use std::ffi::CString;
use std::ptr;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// Allocations that the table can hold.
const SLOTS: usize = 512;

/// Bytes of the table's mapping.
const TABLE_BYTES: usize = 1 << 16;

/// A mapping that other processes may have too.
#[derive(Clone, Copy)]
struct Mapping(*mut u8);

// SAFETY: plain memory without thread affinity; all access is by copies and atomics.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Mapping {
    fn new(bytes: usize, file: Option<&str>) -> Self {
        let flags =
            if file.is_some() { libc::MAP_SHARED } else { libc::MAP_PRIVATE | libc::MAP_ANONYMOUS };
        let descriptor = file.map_or(-1, |path| open(path, bytes));
        // SAFETY: a new mapping at an address of the kernel's choice.
        let base = unsafe {
            libc::mmap(
                ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                flags | libc::MAP_NORESERVE,
                descriptor,
                0,
            )
        };
        assert_ne!(base, libc::MAP_FAILED, "cannot map {bytes} bytes for a fake GPU");
        Self(base.cast())
    }

    fn at(self, offset: u64) -> *mut u8 {
        self.0.wrapping_add(usize::try_from(offset).unwrap_or(usize::MAX))
    }
}

fn open(path: &str, bytes: usize) -> i32 {
    let Ok(path) = CString::new(path) else { return -1 };
    // SAFETY: the path ends with a zero.
    let descriptor =
        unsafe { libc::open(path.as_ptr(), libc::O_RDWR | libc::O_CREAT | libc::O_CLOEXEC, 0o600) };
    // SAFETY: no pointers; a failed open makes this fail too.
    let code = unsafe { libc::ftruncate(descriptor, libc::off_t::try_from(bytes).unwrap_or(0)) };
    assert_eq!(code, 0, "cannot size {path:?} for a fake GPU");
    descriptor
}

/// The table in shared memory: a lock and slots of start, length and owning process.
#[repr(C)]
struct Table {
    lock: AtomicU32,
    slots: [Slot; SLOTS],
}

#[repr(C)]
struct Slot {
    start: AtomicU64,
    bytes: AtomicU64,
    pid: AtomicU32,
}

/// One GPU's memory.
pub(crate) struct Memory {
    data: Mapping,
    table: Mapping,
    bytes: u64,
}

impl Memory {
    pub(crate) fn new(bytes: u64, files: Option<&(String, String)>) -> Self {
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        let (data, table) = match files {
            Some((data, table)) => (Some(data.as_str()), Some(table.as_str())),
            None => (None, None),
        };
        Self { data: Mapping::new(length, data), table: Mapping::new(TABLE_BYTES, table), bytes }
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.bytes
    }

    #[expect(clippy::cast_ptr_alignment, reason = "mappings start at a page")]
    fn table(&self) -> &Table {
        let table: *const Table = self.table.0.cast::<Table>().cast_const();
        // SAFETY: the mapping is larger than the table, aligned to a page, zeroed at first, and
        // only touched through atomics.
        unsafe { &*table }
    }

    /// Runs `act` while no other process changes the table.
    fn locked<T>(&self, act: impl FnOnce(&Table) -> T) -> T {
        let table = self.table();
        let own = std::process::id();
        while let Err(holder) =
            table.lock.compare_exchange(0, own, Ordering::Acquire, Ordering::Relaxed)
        {
            // What a killed process holds is taken from it.
            if !alive(holder)
                && table
                    .lock
                    .compare_exchange(holder, 0, Ordering::Relaxed, Ordering::Relaxed)
                    .is_ok()
            {
                continue;
            }
            std::thread::yield_now();
        }
        let result = act(table);
        table.lock.store(0, Ordering::Release);
        result
    }

    /// Finds room, first fit; what dead processes held is free.
    pub(crate) fn alloc(&self, bytes: u64) -> Option<u64> {
        let align = if bytes >= 1 << 20 { 2 << 20 } else { 1 << 12 };
        let bytes = bytes.max(1).next_multiple_of(1 << 12);
        self.locked(|table| {
            let mut taken = Vec::new();
            for slot in &table.slots {
                let pid = slot.pid.load(Ordering::Relaxed);
                if pid != 0 && !alive(pid) {
                    slot.pid.store(0, Ordering::Relaxed);
                } else if pid != 0 {
                    let start = slot.start.load(Ordering::Relaxed);
                    taken.push((start, start + slot.bytes.load(Ordering::Relaxed)));
                }
            }
            taken.sort_unstable();
            let mut start = 0_u64;
            for (from, to) in taken {
                if start + bytes <= from {
                    break;
                }
                start = start.max(to.next_multiple_of(align));
            }
            if start + bytes > self.bytes {
                return None;
            }
            let slot = table.slots.iter().find(|slot| slot.pid.load(Ordering::Relaxed) == 0)?;
            slot.start.store(start, Ordering::Relaxed);
            slot.bytes.store(bytes, Ordering::Relaxed);
            slot.pid.store(std::process::id(), Ordering::Relaxed);
            Some(start)
        })
    }

    pub(crate) fn free(&self, start: u64) {
        self.locked(|table| {
            for slot in &table.slots {
                if slot.pid.load(Ordering::Relaxed) == std::process::id()
                    && slot.start.load(Ordering::Relaxed) == start
                {
                    slot.pid.store(0, Ordering::Relaxed);
                }
            }
        });
    }

    pub(crate) fn free_bytes(&self) -> u64 {
        self.locked(|table| {
            let used = table.slots.iter().filter(|slot| slot.pid.load(Ordering::Relaxed) != 0);
            let used: u64 = used.map(|slot| slot.bytes.load(Ordering::Relaxed)).sum();
            self.bytes.saturating_sub(used)
        })
    }

    /// Whether a range lies in this memory.
    fn holds(&self, at: u64, bytes: usize) -> bool {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        at.checked_add(bytes).is_some_and(|end| end <= self.bytes)
    }

    pub(crate) fn write(&self, at: u64, from: &[u8]) {
        assert!(self.holds(at, from.len()), "a write beyond the memory of a fake GPU");
        // SAFETY: within the mapping; other threads copy here too, as real GPUs do.
        unsafe { ptr::copy(from.as_ptr(), self.data.at(at), from.len()) };
    }

    pub(crate) fn read(&self, at: u64, to: &mut [u8]) {
        assert!(self.holds(at, to.len()), "a read beyond the memory of a fake GPU");
        // SAFETY: within the mapping; other threads copy here too, as real GPUs do.
        unsafe { ptr::copy(self.data.at(at).cast_const(), to.as_mut_ptr(), to.len()) };
    }

    pub(crate) fn fill(&self, at: u64, value: u8, bytes: u64) {
        let length = usize::try_from(bytes).unwrap_or(usize::MAX);
        assert!(self.holds(at, length), "a fill beyond the memory of a fake GPU");
        // SAFETY: within the mapping.
        unsafe { ptr::write_bytes(self.data.at(at), value, length) };
    }

    /// An aligned word, for flags and counters.
    #[expect(clippy::cast_ptr_alignment, reason = "checked before")]
    pub(crate) fn word(&self, at: u64) -> &AtomicU64 {
        assert!(self.holds(at, 8) && at.is_multiple_of(8), "a word at no place for words");
        // SAFETY: within the mapping, aligned, and alive as long as `self`.
        unsafe { &*self.data.at(at).cast::<AtomicU64>().cast_const() }
    }
}

fn alive(pid: u32) -> bool {
    let Ok(pid) = libc::pid_t::try_from(pid) else { return false };
    // SAFETY: signal 0 only asks whether the process exists.
    pid != 0 && unsafe { libc::kill(pid, 0) } == 0
}
