//! The state of the stand-in: GPUs, the map of device addresses, and who may reach what.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicI32, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use crate::link::Links;
use crate::memory::Memory;
use crate::script::{FILE, Script, VARIABLE};

/// Codes of `cuda.h` that the stand-in gives by itself.
pub(crate) mod code {
    pub(crate) const INVALID_VALUE: i32 = 1;
    pub(crate) const OUT_OF_MEMORY: i32 = 2;
    pub(crate) const NOT_INITIALIZED: i32 = 3;
    pub(crate) const UNAVAILABLE: i32 = 46;
    pub(crate) const INVALID_DEVICE: i32 = 101;
    pub(crate) const INVALID_CONTEXT: i32 = 201;
    pub(crate) const UNSUPPORTED_PEER: i32 = 217;
    pub(crate) const INVALID_HANDLE: i32 = 400;
    pub(crate) const NOT_FOUND: i32 = 500;
    pub(crate) const NOT_READY: i32 = 600;
    pub(crate) const ILLEGAL_ADDRESS: i32 = 700;
    pub(crate) const ALREADY_ENABLED: i32 = 704;
    pub(crate) const NOT_ENABLED: i32 = 705;
    pub(crate) const NOT_SUPPORTED: i32 = 801;
}

/// Device addresses start here, far from anything of the process.
const FIRST_ADDRESS: u64 = 0x7f00_0000_0000_0000;

/// A range of device addresses.
#[derive(Clone, Debug)]
pub(crate) struct Region {
    pub(crate) bytes: u64,
    pub(crate) gpu: usize,
    /// Where it is in that GPU's memory.
    pub(crate) start: u64,
    pub(crate) origin: Origin,
}

#[derive(Clone, Debug)]
pub(crate) enum Origin {
    /// `cuMemAlloc`: reachable for peers whose access is enabled.
    Plain,
    /// `cuMemMap`: reachable for whom it was granted.
    Granted(BTreeSet<usize>),
    /// `cuIpcOpenMemHandle`: reachable for the GPU that opened it.
    Opened(usize),
}

/// Where an address leads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) gpu: usize,
    pub(crate) at: u64,
    /// Bytes from there to the end of the range.
    pub(crate) left: u64,
    /// The asking GPU may reach it directly.
    pub(crate) allowed: bool,
}

/// Physical memory by `cuMemCreate`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Physical {
    pub(crate) gpu: usize,
    pub(crate) start: u64,
    pub(crate) bytes: u64,
}

pub(crate) struct Machine {
    pub(crate) script: Script,
    pub(crate) memory: Vec<Memory>,
    pub(crate) links: Links,
    pub(crate) map: Mutex<BTreeMap<u64, Region>>,
    pub(crate) physical: Mutex<BTreeMap<u64, Physical>>,
    /// Ordered pairs with peer access.
    pub(crate) enabled: Mutex<BTreeSet<(usize, usize)>>,
    /// The error that a context has died of; 0 while it lives.
    pub(crate) dead: Vec<AtomicI32>,
    pub(crate) initialised: AtomicUsize,
    next_address: AtomicU64,
    next_handle: AtomicUsize,
    calls: Mutex<BTreeMap<String, u64>>,
}

/// The one machine of this process.
#[expect(clippy::disallowed_methods, reason = "a library for tests, in a container of a test")]
pub(crate) fn machine() -> &'static Machine {
    static MACHINE: OnceLock<Machine> = OnceLock::new();
    MACHINE.get_or_init(|| {
        let text = match std::env::var_os(VARIABLE) {
            Some(text) => text.to_string_lossy().into_owned(),
            None => std::fs::read_to_string(FILE).unwrap_or_default(),
        };
        let script = Script::parse(&text);
        // A wrong script must not look like an honest machine.
        assert!(script.is_ok(), "{VARIABLE}: {script:?}");
        let script = script.unwrap_or_default();
        if let Some(path) = &script.witness {
            testify(path);
        }
        Machine::new(script)
    })
}

/// Writes what the kernel says of this process, and its environment.
#[expect(clippy::disallowed_methods, reason = "a library for tests, in a container of a test")]
fn testify(path: &str) {
    let file = |name: &str| std::fs::read_to_string(name).unwrap_or_default();
    let status = file("/proc/self/status") + &file("/proc/self/cgroup");
    let environment = std::env::vars_os().fold(String::new(), |text, (name, value)| {
        text + &format!("{}={}\n", name.display(), value.display())
    });
    let written = std::fs::write(path, status + &environment);
    assert!(written.is_ok(), "{path}: {written:?}");
}

impl Machine {
    fn new(script: Script) -> Self {
        let memory = (0..script.gpus).map(|gpu| {
            let files = script
                .folder
                .as_ref()
                .map(|folder| (format!("{folder}/memory{gpu}"), format!("{folder}/table{gpu}")));
            Memory::new(script.memory, files.as_ref())
        });
        Self {
            memory: memory.collect(),
            links: Links::new(),
            map: Mutex::default(),
            physical: Mutex::default(),
            enabled: Mutex::default(),
            dead: (0..script.gpus).map(|_| AtomicI32::new(0)).collect(),
            initialised: AtomicUsize::new(0),
            next_address: AtomicU64::new(FIRST_ADDRESS),
            next_handle: AtomicUsize::new(1),
            calls: Mutex::default(),
            script,
        }
    }

    /// What the script says of a call: it may fail, or never return.
    pub(crate) fn called(&self, name: &str) -> Result<(), i32> {
        if self.script.hang.as_deref() == Some(name) {
            sleep_for_ever();
        }
        let Some((_, code, after)) = self.script.errors.iter().find(|(call, ..)| call == name)
        else {
            return Ok(());
        };
        let mut calls = lock(&self.calls);
        let count = calls.entry(name.to_owned()).or_default();
        *count += 1;
        if *count <= *after {
            return Ok(());
        }
        if *code == -1 {
            std::process::abort();
        }
        Err(*code)
    }

    /// A number that no other object has.
    pub(crate) fn handle(&self) -> usize {
        self.next_handle.fetch_add(1, Ordering::Relaxed)
    }

    /// Reserves device addresses.
    pub(crate) fn addresses(&self, bytes: u64) -> u64 {
        let room = bytes.next_multiple_of(2 << 20) + (2 << 20);
        self.next_address.fetch_add(room, Ordering::Relaxed)
    }

    /// Follows a device address for `actor`.
    pub(crate) fn place(&self, actor: usize, address: u64) -> Result<Place, i32> {
        let map = lock(&self.map);
        let (base, region) = map.range(..=address).next_back().ok_or(code::ILLEGAL_ADDRESS)?;
        let within = address - base;
        if within >= region.bytes {
            return Err(code::ILLEGAL_ADDRESS);
        }
        let allowed = match &region.origin {
            Origin::Plain => {
                region.gpu == actor || lock(&self.enabled).contains(&(actor, region.gpu))
            }
            Origin::Granted(to) => to.contains(&actor),
            Origin::Opened(by) => *by == actor,
        };
        Ok(Place {
            gpu: region.gpu,
            at: region.start + within,
            left: region.bytes - within,
            allowed,
        })
    }

    /// Marks a context as dead.
    pub(crate) fn kill(&self, gpu: usize, code: i32) {
        if let Some(dead) = self.dead.get(gpu) {
            dead.store(code, Ordering::SeqCst);
        }
    }

    /// The error of a dead context.
    pub(crate) fn alive(&self, gpu: usize) -> Result<(), i32> {
        match self.dead.get(gpu).map(|dead| dead.load(Ordering::SeqCst)) {
            Some(0) => Ok(()),
            Some(code) => Err(code),
            None => Err(code::INVALID_CONTEXT),
        }
    }

    pub(crate) fn memory_of(&self, gpu: usize) -> Result<&Memory, i32> {
        self.memory.get(gpu).ok_or(code::INVALID_DEVICE)
    }
}

/// A lock that a panicking thread does not take with it.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn sleep_for_ever() -> ! {
    loop {
        std::thread::park();
    }
}
