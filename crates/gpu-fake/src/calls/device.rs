//! Start, devices, contexts.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::sync::atomic::Ordering;

use super::{CURRENT, answer, device, gpu_of, handle, set, set_text, text, within};
use crate::machine::{code, lock};
use crate::script::Kind;

#[unsafe(no_mangle)]
extern "C" fn cuInit(_flags: c_uint) -> c_int {
    answer("cuInit", |machine| {
        machine.initialised.store(1, Ordering::SeqCst);
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDriverGetVersion(out: *mut c_int) -> c_int {
    answer("cuDriverGetVersion", |_| set(out, 13_000))
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetCount(out: *mut c_int) -> c_int {
    answer("cuDeviceGetCount", |machine| {
        set(out, c_int::try_from(machine.script.gpus).unwrap_or(0))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGet(out: *mut c_int, ordinal: c_int) -> c_int {
    answer("cuDeviceGet", |machine| {
        device(machine, ordinal)?;
        set(out, ordinal)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetByPCIBusId(out: *mut c_int, address: *const c_char) -> c_int {
    answer("cuDeviceGetByPCIBusId", |machine| {
        let wanted = text(address)?;
        let found = (0..machine.script.gpus).find(|gpu| machine.script.address(*gpu) == wanted);
        let found = found.ok_or(code::INVALID_DEVICE)?;
        set(out, c_int::try_from(found).unwrap_or(0))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetPCIBusId(out: *mut c_char, length: c_int, gpu: c_int) -> c_int {
    answer("cuDeviceGetPCIBusId", |machine| {
        let gpu = device(machine, gpu)?;
        set_text(out, length, &machine.script.address(gpu))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetName(out: *mut c_char, length: c_int, gpu: c_int) -> c_int {
    answer("cuDeviceGetName", |machine| {
        let gpu = device(machine, gpu)?;
        let name = if machine.script.mig == Some(gpu) { "Fake GPU MIG 1g.5gb" } else { "Fake GPU" };
        set_text(out, length, name)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetUuid_v2(out: *mut [u8; 16], gpu: c_int) -> c_int {
    answer("cuDeviceGetUuid_v2", |machine| {
        let gpu = device(machine, gpu)?;
        set(out, [u8::try_from(gpu).unwrap_or(0); 16])
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetAttribute(out: *mut c_int, attribute: c_int, gpu: c_int) -> c_int {
    answer("cuDeviceGetAttribute", |machine| {
        device(machine, gpu)?;
        let value = match attribute {
            16 => 2,
            20 => machine.script.compute_mode,
            75 => 9,
            102 => 1,
            _ => 0,
        };
        set(out, value)
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceCanAccessPeer(out: *mut c_int, gpu: c_int, peer: c_int) -> c_int {
    answer("cuDeviceCanAccessPeer", |machine| {
        let (gpu, peer) = (device(machine, gpu)?, device(machine, peer)?);
        set(out, c_int::from(gpu != peer))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDeviceGetP2PAttribute(
    out: *mut c_int,
    attribute: c_int,
    gpu: c_int,
    peer: c_int,
) -> c_int {
    answer("cuDeviceGetP2PAttribute", |machine| {
        let (gpu, peer) = (device(machine, gpu)?, device(machine, peer)?);
        if gpu == peer {
            return Err(code::INVALID_DEVICE);
        }
        set(out, c_int::from(attribute == 2))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRetain(out: *mut *mut c_void, gpu: c_int) -> c_int {
    answer("cuDevicePrimaryCtxRetain", |machine| {
        const PROHIBITED: i32 = 2;
        let gpu = device(machine, gpu)?;
        if machine.script.compute_mode == PROHIBITED {
            return Err(code::UNAVAILABLE);
        }
        machine.alive(gpu)?;
        set(out, handle(gpu + 1))
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuDevicePrimaryCtxRelease_v2(gpu: c_int) -> c_int {
    answer("cuDevicePrimaryCtxRelease_v2", |machine| device(machine, gpu).map(drop))
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxSetCurrent(context: *mut c_void) -> c_int {
    answer("cuCtxSetCurrent", |_| {
        CURRENT.set(Some(gpu_of(context)?));
        Ok(())
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxEnablePeerAccess(peer: *mut c_void, _flags: c_uint) -> c_int {
    within("cuCtxEnablePeerAccess", |machine, gpu| {
        let peer = gpu_of(peer)?;
        if peer == gpu {
            return Err(code::UNSUPPORTED_PEER);
        }
        refusal(machine, gpu, peer)?;
        if lock(&machine.enabled).insert((gpu, peer)) { Ok(()) } else { Err(code::ALREADY_ENABLED) }
    })
}

#[unsafe(no_mangle)]
extern "C" fn cuCtxDisablePeerAccess(peer: *mut c_void) -> c_int {
    within("cuCtxDisablePeerAccess", |machine, gpu| {
        let pair = (gpu, gpu_of(peer)?);
        if lock(&machine.enabled).remove(&pair) { Ok(()) } else { Err(code::NOT_ENABLED) }
    })
}

/// Access that was promised and is refused; whatever the engine.
pub(super) fn refusal(
    machine: &crate::machine::Machine,
    from: usize,
    to: usize,
) -> Result<(), i32> {
    let Some(fault) = machine.script.fault else { return Ok(()) };
    let this = fault.from.is_none_or(|only| only == from) && fault.to.is_none_or(|only| only == to);
    match fault.kind {
        Kind::Refuse(code) if this && from != to => Err(code),
        _ => Ok(()),
    }
}
