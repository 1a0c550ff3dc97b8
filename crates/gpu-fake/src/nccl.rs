//! The part of NCCL that is used: communicators of one process or several, and all-reduce over
//! 32-bit integers.

mod spread;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::io::Write;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use crate::calls::queue;
use crate::kernels::named;
use crate::machine::{Machine, lock, machine};
use crate::script::{Engine, Kind};
use spread::Spread;

/// Result codes of `nccl.h`.
const CUDA_ERROR: c_int = 1;
const INVALID: c_int = 4;

/// A rank behind a communicator handle.
#[derive(Clone)]
struct Rank {
    gpu: usize,
    size: usize,
    /// Where the other ranks are, if they are in other processes.
    spread: Option<Arc<Spread>>,
}

static RANKS: Mutex<BTreeMap<usize, Rank>> = Mutex::new(BTreeMap::new());

/// One rank's part of a collective.
#[derive(Clone)]
struct Part {
    spread: Option<Arc<Spread>>,
    gpu: usize,
    size: usize,
    send: u64,
    receive: u64,
    count: usize,
    stream: usize,
}

thread_local! {
    static GROUP: RefCell<Vec<Part>> = const { RefCell::new(Vec::new()) };
}

/// What its kernels go by.
pub(crate) const NAME: &str = "nccl";

fn p2p() -> bool {
    !machine().script.nccl_shm
        && std::env::var_os("NCCL_P2P_DISABLE").is_none_or(|value| value != "1")
}

/// A line as NCCL prints it.
fn log(rank: usize, text: &str) {
    if std::env::var_os("NCCL_DEBUG").is_some_and(|value| value == "INFO") {
        let pid = std::process::id();
        let line = format!("fake:{pid}:{pid} [{rank}] NCCL INFO {text}\n");
        // NCCL prints to standard output, whatever else goes there.
        let written = std::io::stdout().write_all(line.as_bytes());
        assert!(written.is_ok(), "cannot print");
    }
}

fn set(out: *mut c_int, value: c_int) -> c_int {
    if out.is_null() {
        return INVALID;
    }
    // SAFETY: by the C contract the pointer is to an integer.
    unsafe { out.write(value) };
    0
}

#[unsafe(no_mangle)]
extern "C" fn ncclGetVersion(out: *mut c_int) -> c_int {
    set(out, 23_007)
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommInitAll(out: *mut *mut c_void, count: c_int, devices: *const c_int) -> c_int {
    let machine = machine();
    if let Err(code) = machine.called("ncclCommInitAll") {
        return code;
    }
    let Ok(size) = usize::try_from(count) else { return INVALID };
    let mut gpus = Vec::new();
    for rank in 0..size {
        // SAFETY: by the C contract there are as many devices as announced.
        let device = unsafe { devices.wrapping_add(rank).read() };
        gpus.push(usize::try_from(device).unwrap_or(usize::MAX));
    }
    log(0, "NCCL version 2.30.7+fake");
    for (rank, gpu) in gpus.iter().enumerate() {
        let next = (rank + 1) % size;
        let peer = gpus.get(next).copied().unwrap_or(*gpu);
        let kind = machine.fault(*gpu, peer, Engine::Sm);
        if p2p() && matches!(kind, Some(Kind::Refuse(_))) {
            return CUDA_ERROR;
        }
        say_channel((rank, *gpu), (next, peer), size, "P2P/CUMEM");
        let number = machine.handle();
        admit(number, Rank { gpu: *gpu, size, spread: None });
        // SAFETY: by the C contract there is room for as many handles.
        unsafe { out.wrapping_add(rank).write(std::ptr::without_provenance_mut(number)) };
    }
    0
}

fn admit(number: usize, rank: Rank) {
    lock(&RANKS).insert(number, rank);
}

/// The line about one connection of the ring.
fn say_channel(
    (rank, gpu): (usize, usize),
    (next, peer): (usize, usize),
    size: usize,
    with_p2p: &str,
) {
    let via = if p2p() { with_p2p } else { "SHM/direct" };
    if size > 1 {
        log(rank, &format!("Channel 00/0 : {rank}[{gpu}] -> {next}[{peer}] via {via}"));
    }
}

#[unsafe(no_mangle)]
extern "C" fn ncclGroupStart() -> c_int {
    GROUP.take();
    0
}

#[unsafe(no_mangle)]
extern "C" fn ncclAllReduce(
    send: *const c_void,
    receive: *mut c_void,
    count: usize,
    kind: c_int,
    operation: c_int,
    communicator: *mut c_void,
    stream: *mut c_void,
) -> c_int {
    const UINT32: c_int = 3;
    const SUM: c_int = 0;
    let rank = lock(&RANKS).get(&communicator.addr()).cloned();
    let Some(rank) = rank.filter(|_| (kind, operation) == (UINT32, SUM)) else { return INVALID };
    let address = |pointer: usize| u64::try_from(pointer).unwrap_or(0);
    let part = Part {
        spread: rank.spread.clone(),
        gpu: rank.gpu,
        size: rank.size,
        send: address(send.addr()),
        receive: address(receive.addr()),
        count,
        stream: stream.addr(),
    };
    GROUP.with_borrow_mut(|group| group.push(part));
    0
}

/// Where the ranks of a collective meet.
#[derive(Default)]
struct Meeting {
    arrived: Mutex<(usize, Option<Result<(), i32>>)>,
    done: Condvar,
}

impl Meeting {
    /// Waits for all; the last one does the work for all.
    fn meet(&self, size: usize, work: impl FnOnce() -> Result<(), i32>) -> Result<(), i32> {
        let mut state = lock(&self.arrived);
        state.0 += 1;
        if state.0 == size {
            state.1 = Some(work());
            self.done.notify_all();
        }
        loop {
            if let Some(outcome) = state.1 {
                return outcome;
            }
            state = self.done.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

#[unsafe(no_mangle)]
extern "C" fn ncclGroupEnd() -> c_int {
    let parts: Arc<Vec<Part>> = Arc::new(GROUP.take());
    let meeting = Arc::new(Meeting::default());
    for part in parts.iter() {
        if part.spread.is_none() && part.size != parts.len() {
            return INVALID;
        }
        let Ok(queue) = queue(std::ptr::without_provenance_mut(part.stream)) else {
            return INVALID;
        };
        let (all, meeting, bytes) = (Arc::clone(&parts), Arc::clone(&meeting), part.count * 4);
        let own = part.clone();
        let pushed = queue.push(Box::new(move |_| {
            match &own.spread {
                Some(spread) => {
                    named(NAME, || spread.reduce(machine(), (own.send, own.receive), own.count))?;
                }
                None => {
                    meeting.meet(all.len(), || named(NAME, || reduce(machine(), &all)))?;
                }
            }
            let bytes = f64::from(u32::try_from(bytes).unwrap_or(u32::MAX));
            Ok(if p2p() { 10e-6 + bytes / 40e9 } else { 30e-6 + bytes / 20e9 })
        }));
        if pushed.is_err() {
            return INVALID;
        }
    }
    0
}

/// The sum on every rank; with P2P each rank loads the others' data over its links.
fn reduce(machine: &Machine, parts: &[Part]) -> Result<(), i32> {
    let mut sums = Vec::new();
    for own in parts {
        let mut sum = vec![0_u32; own.count];
        for other in parts {
            let mut data = vec![0; own.count * 4];
            if p2p() {
                machine.load_peer(own.gpu, other.send, &mut data)?;
            } else {
                machine.load(other.gpu, Engine::Sm, other.send, &mut data)?;
            }
            for (slot, word) in sum.iter_mut().zip(data.as_chunks::<4>().0) {
                *slot = slot.wrapping_add(u32::from_le_bytes(*word));
            }
        }
        sums.push(sum);
    }
    for (own, sum) in parts.iter().zip(sums) {
        let bytes: Vec<u8> = sum.into_iter().flat_map(u32::to_le_bytes).collect();
        machine.store(own.gpu, Engine::Sm, own.receive, &bytes)?;
    }
    Ok(())
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommGetAsyncError(_communicator: *mut c_void, out: *mut c_int) -> c_int {
    set(out, 0)
}

#[unsafe(no_mangle)]
extern "C" fn ncclCommDestroy(communicator: *mut c_void) -> c_int {
    let left = lock(&RANKS).remove(&communicator.addr());
    let Some(rank) = left else { return INVALID };
    // As the real one: between processes it comes back once every rank leaves.
    if let Some(spread) = rank.spread {
        spread.leave();
    }
    0
}
