//! Streams, events, modules, launches.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::Arc;

use super::{OBJECTS, answer, handle, queue, set, text, within};
use crate::kernels::{KERNELS, reaches_over};
use crate::machine::{code, lock};
use crate::queue::{Mark, Queue};

#[unsafe(no_mangle)]
extern "C" fn cuStreamCreate(out: *mut *mut c_void, _flags: c_uint) -> c_int {
    within("cuStreamCreate", |machine, gpu| {
        let number = machine.handle();
        lock(&OBJECTS).queues.insert(number, Arc::new(Queue::new(gpu)));
        set(out, handle(number))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamQuery(stream: *mut c_void) -> c_int {
    answer("cuStreamQuery", |machine| {
        let queue = queue(stream)?;
        machine.alive(queue.gpu)?;
        if queue.is_idle() { machine.alive(queue.gpu) } else { Err(code::NOT_READY) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamWaitEvent(stream: *mut c_void, event: *mut c_void, _flags: c_uint) -> c_int {
    within("cuStreamWaitEvent", |_, _| {
        let mark = mark(event)?;
        queue(stream)?.push(Box::new(move |clock| {
            *clock = clock.max(mark.wait());
            Ok(0.0)
        }))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuStreamDestroy_v2(stream: *mut c_void) -> c_int {
    within("cuStreamDestroy_v2", |_, _| {
        let queue = lock(&OBJECTS).queues.remove(&stream.addr()).ok_or(code::INVALID_HANDLE)?;
        queue.drain();
        Ok(())
    })
}

fn mark(event: *mut c_void) -> Result<Arc<Mark>, i32> {
    lock(&OBJECTS).marks.get(&event.addr()).cloned().ok_or(code::INVALID_HANDLE)
}

#[unsafe(no_mangle)]
extern "C" fn cuEventCreate(out: *mut *mut c_void, _flags: c_uint) -> c_int {
    within("cuEventCreate", |machine, _| {
        let number = machine.handle();
        lock(&OBJECTS).marks.insert(number, Arc::default());
        set(out, handle(number))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventRecord(event: *mut c_void, stream: *mut c_void) -> c_int {
    within("cuEventRecord", |_, _| {
        let mark = mark(event)?;
        mark.clear();
        queue(stream)?.push(Box::new(move |clock| {
            mark.pass(*clock);
            Ok(0.0)
        }))
    })
}

#[unsafe(no_mangle)]
#[expect(clippy::cast_possible_truncation, clippy::as_conversions, reason = "the C type is float")]
extern "C" fn cuEventElapsedTime(out: *mut f32, start: *mut c_void, end: *mut c_void) -> c_int {
    within("cuEventElapsedTime", |_, _| {
        let start = mark(start)?.time().ok_or(code::NOT_READY)?;
        let end = mark(end)?.time().ok_or(code::NOT_READY)?;
        set(out, ((end - start) * 1e3) as f32)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuEventDestroy_v2(event: *mut c_void) -> c_int {
    within("cuEventDestroy_v2", |_, _| {
        lock(&OBJECTS).marks.remove(&event.addr()).map(drop).ok_or(code::INVALID_HANDLE)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleLoadData(out: *mut *mut c_void, image: *const c_void) -> c_int {
    within("cuModuleLoadData", |machine, _| {
        let image = text(image.cast())?;
        if !image.contains(".target sm_70") {
            return Err(code::INVALID_VALUE);
        }
        set(out, handle(machine.handle()))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuModuleGetFunction(
    out: *mut *mut c_void,
    _module: *mut c_void,
    name: *const c_char,
) -> c_int {
    within("cuModuleGetFunction", |_, _| {
        let name = text(name)?;
        let found = KERNELS.iter().position(|kernel| kernel.name == name);
        set(out, handle(found.ok_or(code::NOT_FOUND)? + 1))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuLaunchKernel(
    function: *mut c_void,
    _grid_x: c_uint,
    _grid_y: c_uint,
    _grid_z: c_uint,
    _block_x: c_uint,
    _block_y: c_uint,
    _block_z: c_uint,
    _shared: c_uint,
    stream: *mut c_void,
    parameters: *mut *mut c_void,
    _extra: *mut *mut c_void,
) -> c_int {
    within("cuLaunchKernel", |machine, gpu| {
        let index = function.addr().wrapping_sub(1);
        let kernel = *KERNELS.get(index).ok_or(code::INVALID_HANDLE)?;
        let mut given = Vec::new();
        for slot in 0..kernel.parameters {
            // SAFETY: by the C contract there are as many pointers as the kernel has parameters.
            let pointer = unsafe { parameters.wrapping_add(slot).read() };
            // SAFETY: each points to a 64-bit value.
            given.push(unsafe { pointer.cast::<u64>().read() });
        }
        let number = stream.addr();
        let over = reaches_over(machine, gpu, &kernel, &given);
        if over {
            machine.links.begin(number);
        }
        queue(stream)?.push(Box::new(move |_| {
            let done = kernel.run(machine, gpu, &given);
            if over {
                machine.links.end(number);
            }
            done
        }))
    })
}
