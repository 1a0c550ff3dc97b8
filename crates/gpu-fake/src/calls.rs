//! The exported functions, by the C declarations of `cuda.h`.

mod device;
mod memory;
mod share;
mod stream;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use crate::machine::{Machine, code, lock, machine};
use crate::queue::{Mark, Queue};

thread_local! {
    /// The GPU whose context is current on this thread.
    static CURRENT: Cell<Option<usize>> = const { Cell::new(None) };
}

/// Objects behind handles.
#[derive(Default)]
struct Objects {
    queues: BTreeMap<usize, Arc<Queue>>,
    marks: BTreeMap<usize, Arc<Mark>>,
}

static OBJECTS: Mutex<Objects> =
    Mutex::new(Objects { queues: BTreeMap::new(), marks: BTreeMap::new() });

/// The code of a call: what the script says first, then what it does.
fn answer(name: &str, act: impl FnOnce(&'static Machine) -> Result<(), i32>) -> c_int {
    let machine = machine();
    let started = machine.initialised.load(Ordering::SeqCst) != 0;
    let outcome = machine.called(name).and_then(|()| {
        if started || name == "cuInit" { act(machine) } else { Err(code::NOT_INITIALIZED) }
    });
    outcome.err().unwrap_or(0)
}

/// As [`answer`], in the current context, which has to be alive.
fn within(name: &str, act: impl FnOnce(&'static Machine, usize) -> Result<(), i32>) -> c_int {
    answer(name, |machine| {
        let gpu = current()?;
        machine.alive(gpu)?;
        act(machine, gpu)
    })
}

pub(crate) fn current() -> Result<usize, i32> {
    CURRENT.get().ok_or(code::INVALID_CONTEXT)
}

/// Stores a result where the caller wants it.
fn set<T>(out: *mut T, value: T) -> Result<(), i32> {
    if out.is_null() {
        return Err(code::INVALID_VALUE);
    }
    // SAFETY: by the C contract the pointer is to room for the result.
    unsafe { out.write(value) };
    Ok(())
}

fn text(from: *const c_char) -> Result<String, i32> {
    if from.is_null() {
        return Err(code::INVALID_VALUE);
    }
    // SAFETY: by the C contract the text ends with a zero.
    let text = unsafe { CStr::from_ptr(from) };
    Ok(text.to_string_lossy().into_owned())
}

fn set_text(out: *mut c_char, length: c_int, value: &str) -> Result<(), i32> {
    let room = usize::try_from(length).map_err(|_| code::INVALID_VALUE)?;
    if out.is_null() || value.len() >= room {
        return Err(code::INVALID_VALUE);
    }
    // SAFETY: the text is shorter than the room that the caller announced.
    unsafe { ptr::copy_nonoverlapping(value.as_ptr(), out.cast(), value.len()) };
    // SAFETY: as above; the room holds one byte more.
    unsafe { out.wrapping_add(value.len()).write(0) };
    Ok(())
}

fn bytes<'a>(from: *const c_void, length: usize) -> Result<&'a [u8], i32> {
    if from.is_null() {
        return Err(code::INVALID_VALUE);
    }
    // SAFETY: by the C contract so many bytes can be read there during the call.
    Ok(unsafe { std::slice::from_raw_parts(from.cast(), length) })
}

fn bytes_mut<'a>(to: *mut c_void, length: usize) -> Result<&'a mut [u8], i32> {
    if to.is_null() {
        return Err(code::INVALID_VALUE);
    }
    // SAFETY: by the C contract so many bytes can be written there during the call.
    Ok(unsafe { std::slice::from_raw_parts_mut(to.cast(), length) })
}

/// A word of pinned host memory, whose device address is its host address.
pub(crate) fn host_word(address: u64) -> u32 {
    let address = usize::try_from(address).unwrap_or(0);
    if address == 0 {
        return 1;
    }
    let word: *const AtomicU32 = ptr::with_exposed_provenance(address);
    // SAFETY: only used for latches, whose flags live in pinned memory of `cuMemHostAlloc`.
    unsafe { &*word }.load(Ordering::Acquire)
}

fn handle(number: usize) -> *mut c_void {
    ptr::without_provenance_mut(number)
}

/// Contexts are GPU numbers plus one.
fn gpu_of(context: *mut c_void) -> Result<usize, i32> {
    context.addr().checked_sub(1).ok_or(code::INVALID_CONTEXT)
}

fn device(machine: &Machine, device: c_int) -> Result<usize, i32> {
    let gpu = usize::try_from(device).map_err(|_| code::INVALID_DEVICE)?;
    if gpu < machine.script.gpus { Ok(gpu) } else { Err(code::INVALID_DEVICE) }
}

/// The queue of a stream; the null stream is a queue of its own for each GPU.
pub(crate) fn queue(stream: *mut c_void) -> Result<Arc<Queue>, i32> {
    let mut objects = lock(&OBJECTS);
    if stream.is_null() {
        let gpu = current()?;
        // Handles count up from 1; the null streams count down from the top.
        let key = usize::MAX - gpu;
        let queue = objects.queues.entry(key).or_insert_with(|| Arc::new(Queue::new(gpu)));
        return Ok(Arc::clone(queue));
    }
    objects.queues.get(&stream.addr()).cloned().ok_or(code::INVALID_HANDLE)
}
