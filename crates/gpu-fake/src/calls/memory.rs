//! Memory and copies.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeMap;
use std::ffi::{c_int, c_uint, c_void};
use std::sync::Mutex;

use super::{bytes, bytes_mut, gpu_of, queue, set, within};
use crate::kernels::{move_bytes, seconds};
use crate::link::wide;
use crate::machine::{Machine, Origin, Region, code, lock};
use crate::script::Engine;

/// Pinned host memory: address and length.
static PINNED: Mutex<BTreeMap<usize, usize>> = Mutex::new(BTreeMap::new());

const PAGE: usize = 4096;

#[unsafe(no_mangle)]
extern "C" fn cuMemGetInfo_v2(free: *mut usize, total: *mut usize) -> c_int {
    within("cuMemGetInfo_v2", |machine, gpu| {
        let memory = machine.memory_of(gpu)?;
        let free_bytes = memory.free_bytes().saturating_sub(machine.script.taken);
        set(free, usize::try_from(free_bytes).unwrap_or(0))?;
        set(total, usize::try_from(memory.bytes()).unwrap_or(0))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAlloc_v2(out: *mut u64, length: usize) -> c_int {
    within("cuMemAlloc_v2", |machine, gpu| {
        if length == 0 {
            return Err(code::INVALID_VALUE);
        }
        let start = machine.memory_of(gpu)?.alloc(wide(length)).ok_or(code::OUT_OF_MEMORY)?;
        let address = machine.addresses(wide(length));
        let region = Region { bytes: wide(length), gpu, start, origin: Origin::Plain };
        lock(&machine.map).insert(address, region);
        set(out, address)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFree_v2(address: u64) -> c_int {
    within("cuMemFree_v2", |machine, _| {
        let region = lock(&machine.map).remove(&address).ok_or(code::INVALID_VALUE)?;
        machine.memory_of(region.gpu)?.free(region.start);
        Ok(())
    })
}

fn layout(length: usize) -> Result<Layout, i32> {
    Layout::from_size_align(length, PAGE).map_err(|_| code::INVALID_VALUE)
}

#[unsafe(no_mangle)]
extern "C" fn cuMemHostAlloc(out: *mut *mut c_void, length: usize, _flags: c_uint) -> c_int {
    within("cuMemHostAlloc", |_, _| {
        if length == 0 {
            return Err(code::INVALID_VALUE);
        }
        // SAFETY: the length is not zero.
        let memory = unsafe { alloc_zeroed(layout(length)?) };
        lock(&PINNED).insert(memory.expose_provenance(), length);
        set(out, memory.cast())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemHostGetDevicePointer_v2(
    out: *mut u64,
    host: *mut c_void,
    _flags: c_uint,
) -> c_int {
    within("cuMemHostGetDevicePointer_v2", |_, _| set(out, wide(host.addr())))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemFreeHost(host: *mut c_void) -> c_int {
    within("cuMemFreeHost", |_, _| {
        let length = lock(&PINNED).remove(&host.addr()).ok_or(code::INVALID_VALUE)?;
        // SAFETY: allocated with this layout, and freed once.
        unsafe { dealloc(host.cast(), layout(length)?) };
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemsetD8Async(to: u64, value: u8, length: usize, stream: *mut c_void) -> c_int {
    within("cuMemsetD8Async", |machine, gpu| {
        queue(stream)?.push(Box::new(move |_| {
            let place = machine.place(gpu, to)?;
            if place.gpu != gpu || place.left < wide(length) {
                return Err(code::ILLEGAL_ADDRESS);
            }
            machine.memory_of(gpu)?.fill(place.at, value, wide(length));
            Ok(1e-6)
        }))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyHtoD_v2(to: u64, from: *const c_void, length: usize) -> c_int {
    within("cuMemcpyHtoD_v2", |machine, gpu| {
        let place = machine.place(gpu, to)?;
        if place.left < wide(length) {
            return Err(code::INVALID_VALUE);
        }
        machine.memory_of(place.gpu)?.write(place.at, bytes(from, length)?);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoH_v2(to: *mut c_void, from: u64, length: usize) -> c_int {
    within("cuMemcpyDtoH_v2", |machine, gpu| {
        let place = machine.place(gpu, from)?;
        if place.left < wide(length) {
            return Err(code::INVALID_VALUE);
        }
        machine.memory_of(place.gpu)?.read(place.at, bytes_mut(to, length)?);
        Ok(())
    })
}

/// The time of a copy between host and GPU.
fn host_seconds(machine: &Machine, gpu: usize, length: usize) -> f64 {
    // As fast as a link to a peer would be: the same slot carries both.
    seconds(machine, gpu, Engine::Copy, &[], 0)
        + 2.0e-11 * f64::from(u32::try_from(length).unwrap_or(u32::MAX))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyHtoDAsync_v2(
    to: u64,
    from: *const c_void,
    length: usize,
    stream: *mut c_void,
) -> c_int {
    within("cuMemcpyHtoDAsync_v2", |machine, gpu| {
        let from = from.expose_provenance();
        queue(stream)?.push(Box::new(move |_| {
            let place = machine.place(gpu, to)?;
            let from = std::ptr::with_exposed_provenance::<c_void>(from);
            machine.memory_of(place.gpu)?.write(place.at, bytes(from, length)?);
            Ok(host_seconds(machine, gpu, length))
        }))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoHAsync_v2(
    to: *mut c_void,
    from: u64,
    length: usize,
    stream: *mut c_void,
) -> c_int {
    within("cuMemcpyDtoHAsync_v2", |machine, gpu| {
        let to = to.expose_provenance();
        queue(stream)?.push(Box::new(move |_| {
            let place = machine.place(gpu, from)?;
            let to = std::ptr::with_exposed_provenance_mut::<c_void>(to);
            let to = bytes_mut(to, length)?;
            machine.memory_of(place.gpu)?.read(place.at, to);
            if let Some(byte) = to.get_mut(20).filter(|_| machine.script.host_bits) {
                *byte ^= 1;
            }
            Ok(host_seconds(machine, gpu, length))
        }))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyDtoDAsync_v2(
    to: u64,
    from: u64,
    length: usize,
    stream: *mut c_void,
) -> c_int {
    within("cuMemcpyDtoDAsync_v2", |machine, _| {
        let queue = queue(stream)?;
        let gpu = queue.gpu;
        let over = [to, from]
            .iter()
            .any(|address| machine.place(gpu, *address).is_ok_and(|place| place.gpu != gpu));
        let number = stream.addr();
        if over {
            machine.links.begin(number);
        }
        queue.push(Box::new(move |_| {
            let done = move_bytes(machine, gpu, Engine::Copy, (to, from), wide(length));
            if over {
                machine.links.end(number);
            }
            done
        }))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemcpyPeerAsync(
    to: u64,
    to_context: *mut c_void,
    from: u64,
    from_context: *mut c_void,
    length: usize,
    stream: *mut c_void,
) -> c_int {
    within("cuMemcpyPeerAsync", |machine, _| {
        let (to_gpu, from_gpu) = (gpu_of(to_context)?, gpu_of(from_context)?);
        queue(stream)?.push(Box::new(move |_| {
            // Through the host, piece by piece; no link is used.
            let mut done = 0;
            while done < wide(length) {
                let part = (wide(length) - done).min(1 << 16);
                let mut data = vec![0; usize::try_from(part).unwrap_or(0)];
                machine.load(from_gpu, Engine::Copy, from + done, &mut data)?;
                machine.store(to_gpu, Engine::Copy, to + done, &data)?;
                done += part;
            }
            Ok(host_seconds(machine, to_gpu, length) * 2.0)
        }))
    })
}
