//! Virtual memory management and IPC.

use std::collections::BTreeSet;
use std::ffi::{c_int, c_uint, c_void};

use super::device::refusal;
use super::{answer, device, set, within};
use crate::link::wide;
use crate::machine::{Origin, Physical, Region, code, lock};

/// `CUmemAllocationProp`, as far as it is looked at.
#[repr(C)]
struct Properties {
    kind: c_int,
    handles: c_int,
    location: [c_int; 2],
}

/// `CUmemAccessDesc`.
#[repr(C)]
struct Access {
    location: [c_int; 2],
    flags: c_int,
}

const GRANULE: u64 = 2 << 20;

/// The device of a C structure that starts with or holds a location.
fn read<T>(from: *const T) -> Result<T, i32> {
    if from.is_null() {
        return Err(code::INVALID_VALUE);
    }
    // SAFETY: by the C contract the pointer is to such a structure.
    Ok(unsafe { from.read() })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemGetAllocationGranularity(
    out: *mut usize,
    _properties: *const c_void,
    _option: c_uint,
) -> c_int {
    answer("cuMemGetAllocationGranularity", |_| set(out, usize::try_from(GRANULE).unwrap_or(0)))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemCreate(
    out: *mut u64,
    length: usize,
    properties: *const c_void,
    _flags: u64,
) -> c_int {
    answer("cuMemCreate", |machine| {
        let properties = read(properties.cast::<Properties>())?;
        let [kind, id] = properties.location;
        if properties.kind != 1 || kind != 1 || !wide(length).is_multiple_of(GRANULE) {
            return Err(code::INVALID_VALUE);
        }
        let gpu = device(machine, id)?;
        let bytes = wide(length);
        let start = machine.memory_of(gpu)?.alloc(bytes).ok_or(code::OUT_OF_MEMORY)?;
        let number = wide(machine.handle());
        lock(&machine.physical).insert(number, Physical { gpu, start, bytes });
        set(out, number)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemRelease(handle: u64) -> c_int {
    answer("cuMemRelease", |machine| {
        let memory = lock(&machine.physical).remove(&handle).ok_or(code::INVALID_VALUE)?;
        machine.memory_of(memory.gpu)?.free(memory.start);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAddressReserve(
    out: *mut u64,
    length: usize,
    _align: usize,
    _wanted: u64,
    _flags: u64,
) -> c_int {
    answer("cuMemAddressReserve", |machine| set(out, machine.addresses(wide(length))))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemAddressFree(_address: u64, _length: usize) -> c_int {
    answer("cuMemAddressFree", |_| Ok(()))
}

#[unsafe(no_mangle)]
extern "C" fn cuMemMap(address: u64, length: usize, offset: usize, handle: u64, _f: u64) -> c_int {
    answer("cuMemMap", |machine| {
        let memory = *lock(&machine.physical).get(&handle).ok_or(code::INVALID_VALUE)?;
        if wide(length) != memory.bytes || offset != 0 {
            return Err(code::INVALID_VALUE);
        }
        let region = Region {
            bytes: memory.bytes,
            gpu: memory.gpu,
            start: memory.start,
            origin: Origin::Granted(BTreeSet::new()),
        };
        lock(&machine.map).insert(address, region);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemUnmap(address: u64, _length: usize) -> c_int {
    answer("cuMemUnmap", |machine| {
        lock(&machine.map).remove(&address).map(drop).ok_or(code::INVALID_VALUE)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuMemSetAccess(
    address: u64,
    _length: usize,
    access: *const c_void,
    count: usize,
) -> c_int {
    answer("cuMemSetAccess", |machine| {
        if count != 1 {
            return Err(code::INVALID_VALUE);
        }
        let access = read(access.cast::<Access>())?;
        let gpu = device(machine, access.location[1])?;
        let mut map = lock(&machine.map);
        let region = map.get_mut(&address).ok_or(code::INVALID_VALUE)?;
        refusal(machine, gpu, region.gpu)?;
        match &mut region.origin {
            Origin::Granted(to) if access.flags == 3 => {
                to.insert(gpu);
                Ok(())
            }
            Origin::Granted(_) | Origin::Plain | Origin::Opened(_) => Err(code::INVALID_VALUE),
        }
    })
}

/// `CUipcMemHandle`: GPU, start and length in its memory, and a mark.
#[repr(C)]
#[derive(Clone, Copy)]
struct IpcHandle([u8; 64]);

const MARK: u64 = 0x1bc0_1bc0_1bc0_1bc0;

#[unsafe(no_mangle)]
extern "C" fn cuIpcGetMemHandle(out: *mut IpcHandle, address: u64) -> c_int {
    within("cuIpcGetMemHandle", |machine, _| {
        if machine.script.folder.is_none() {
            return Err(code::NOT_SUPPORTED);
        }
        let map = lock(&machine.map);
        let region = map.get(&address).ok_or(code::INVALID_VALUE)?;
        let mut handle = [0; 64];
        let words =
            [wide(region.gpu), region.start, region.bytes, MARK, u64::from(std::process::id())];
        for (slot, word) in handle.chunks_exact_mut(8).zip(words) {
            slot.copy_from_slice(&word.to_le_bytes());
        }
        set(out, IpcHandle(handle))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuIpcOpenMemHandle_v2(out: *mut u64, handle: IpcHandle, _flags: c_uint) -> c_int {
    within("cuIpcOpenMemHandle_v2", |machine, gpu| {
        let mut words = handle.0.as_chunks::<8>().0.iter().map(|word| u64::from_le_bytes(*word));
        let mut word = || words.next().unwrap_or(0);
        let (owner, start, bytes, mark, pid) = (word(), word(), word(), word(), word());
        // A process can't open its own handle.
        if mark != MARK || pid == u64::from(std::process::id()) {
            return Err(code::INVALID_VALUE);
        }
        let owner = usize::try_from(owner).map_err(|_| code::INVALID_VALUE)?;
        refusal(machine, gpu, owner)?;
        let address = machine.addresses(bytes);
        let region = Region { bytes, gpu: owner, start, origin: Origin::Opened(gpu) };
        lock(&machine.map).insert(address, region);
        set(out, address)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuIpcCloseMemHandle(address: u64) -> c_int {
    within("cuIpcCloseMemHandle", |machine, _| {
        lock(&machine.map).remove(&address).map(drop).ok_or(code::INVALID_VALUE)
    })
}
