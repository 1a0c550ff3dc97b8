//! The three ways to give one GPU access to another's memory: peer access of contexts, virtual
//! memory management, and IPC handles.

use std::ffi::c_int;

use super::{Context, DevicePointer, Driver};
use crate::status::GpuError;

/// `CUmemAllocationProp` of `cuda.h`: pinned device memory, no export.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct AllocationProperties {
    kind: c_int,
    handle_kinds: c_int,
    location: Location,
    windows_meta_data: usize,
    compression: u8,
    gpu_direct_rdma: u8,
    usage: u16,
    reserved: [u8; 4],
}

/// `CUmemLocation`.
#[repr(C)]
#[derive(Debug, Default)]
struct Location {
    kind: c_int,
    id: c_int,
}

/// `CUmemAccessDesc`.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct AccessDescription {
    location: Location,
    flags: c_int,
}

const KIND_PINNED: c_int = 1;
const LOCATION_DEVICE: c_int = 1;
const READ_AND_WRITE: c_int = 3;

/// Length of [`IpcHandle`] (`CU_IPC_HANDLE_SIZE`).
pub(crate) const IPC_HANDLE_BYTES: usize = 64;

/// `CUipcMemHandle`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct IpcHandle(pub(crate) [u8; IPC_HANDLE_BYTES]);

/// Physical memory of a device (`CUmemGenericAllocationHandle`).
#[derive(Clone, Copy, Debug)]
pub(crate) struct VmmHandle(u64);

fn pinned_on(device: i32) -> AllocationProperties {
    AllocationProperties {
        kind: KIND_PINNED,
        location: Location { kind: LOCATION_DEVICE, id: device },
        ..AllocationProperties::default()
    }
}

impl Driver {
    /// Gives the current context access to the memory of `peer`. One direction.
    pub(crate) fn enable_peer(&self, peer: Context) -> Result<(), GpuError> {
        const ALREADY_ENABLED: i32 = 704;
        // SAFETY: the handle came from `retain`.
        let code = unsafe { (self.symbols.ctx_enable_peer_access)(peer.0, 0) };
        if code == ALREADY_ENABLED {
            return Ok(());
        }
        self.check("cuCtxEnablePeerAccess", code)
    }

    /// The unit in which device memory is created and mapped.
    pub(crate) fn granularity(&self, device: i32) -> Result<u64, GpuError> {
        const RECOMMENDED: u32 = 1;
        let properties = pinned_on(device);
        let mut bytes = 0_usize;
        // SAFETY: both pointers are live for the call.
        let code = unsafe {
            (self.symbols.mem_granularity)(&raw mut bytes, &raw const properties, RECOMMENDED)
        };
        self.check("cuMemGetAllocationGranularity", code)?;
        Ok(u64::try_from(bytes).unwrap_or(u64::MAX).max(1))
    }

    /// Creates physical memory; `bytes` is a multiple of the granularity.
    pub(crate) fn create_memory(&self, device: i32, bytes: u64) -> Result<VmmHandle, GpuError> {
        let properties = pinned_on(device);
        let mut handle = 0;
        // SAFETY: both pointers are live for the call.
        let code = unsafe {
            (self.symbols.mem_create)(&raw mut handle, size(bytes), &raw const properties, 0)
        };
        self.check("cuMemCreate", code)?;
        Ok(VmmHandle(handle))
    }

    pub(crate) fn release_memory(&self, handle: VmmHandle) {
        // SAFETY: takes no pointers; the driver checks the handle.
        let code = unsafe { (self.symbols.mem_release)(handle.0) };
        self.note("cuMemRelease", code);
    }

    pub(crate) fn reserve(&self, bytes: u64) -> Result<DevicePointer, GpuError> {
        let mut pointer = 0;
        // SAFETY: the pointer is to a live integer; a range of addresses is reserved, nothing
        // that this process uses is replaced.
        let code =
            unsafe { (self.symbols.mem_address_reserve)(&raw mut pointer, size(bytes), 0, 0, 0) };
        self.check("cuMemAddressReserve", code)?;
        Ok(pointer)
    }

    pub(crate) fn unreserve(&self, pointer: DevicePointer, bytes: u64) {
        // SAFETY: a range from `reserve`; the driver checks it.
        let code = unsafe { (self.symbols.mem_address_free)(pointer, size(bytes)) };
        self.note("cuMemAddressFree", code);
    }

    pub(crate) fn map(
        &self,
        pointer: DevicePointer,
        bytes: u64,
        memory: VmmHandle,
    ) -> Result<(), GpuError> {
        // SAFETY: a range from `reserve`; the driver checks range and handle.
        let code = unsafe { (self.symbols.mem_map)(pointer, size(bytes), 0, memory.0, 0) };
        self.check("cuMemMap", code)
    }

    pub(crate) fn unmap(&self, pointer: DevicePointer, bytes: u64) {
        // SAFETY: device addresses only; the driver checks them.
        let code = unsafe { (self.symbols.mem_unmap)(pointer, size(bytes)) };
        self.note("cuMemUnmap", code);
    }

    /// Lets a device read and write a mapped range.
    pub(crate) fn grant(
        &self,
        pointer: DevicePointer,
        bytes: u64,
        device: i32,
    ) -> Result<(), GpuError> {
        let access = AccessDescription {
            location: Location { kind: LOCATION_DEVICE, id: device },
            flags: READ_AND_WRITE,
        };
        // SAFETY: one description is live for the call, and one is announced.
        let code =
            unsafe { (self.symbols.mem_set_access)(pointer, size(bytes), &raw const access, 1) };
        self.check("cuMemSetAccess", code)
    }

    /// A handle by which another process can map an allocation.
    pub(crate) fn ipc_handle(&self, pointer: DevicePointer) -> Result<IpcHandle, GpuError> {
        let mut handle = IpcHandle([0; IPC_HANDLE_BYTES]);
        // SAFETY: the handle is live and 64 bytes.
        let code = unsafe { (self.symbols.ipc_get_mem_handle)(&raw mut handle, pointer) };
        self.check("cuIpcGetMemHandle", code)?;
        Ok(handle)
    }

    /// Maps another process's allocation into the current context.
    pub(crate) fn ipc_open(&self, handle: IpcHandle) -> Result<DevicePointer, GpuError> {
        const LAZY_PEER_ACCESS: u32 = 1;
        let mut pointer = 0;
        // SAFETY: the pointer is to a live integer; the driver checks the handle.
        let code = unsafe {
            (self.symbols.ipc_open_mem_handle)(&raw mut pointer, handle, LAZY_PEER_ACCESS)
        };
        self.check("cuIpcOpenMemHandle", code)?;
        Ok(pointer)
    }

    pub(crate) fn ipc_close(&self, pointer: DevicePointer) {
        // SAFETY: device addresses only; the driver checks them.
        let code = unsafe { (self.symbols.ipc_close_mem_handle)(pointer) };
        self.note("cuIpcCloseMemHandle", code);
    }
}

fn size(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}
