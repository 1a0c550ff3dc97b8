//! The CUDA driver library, loaded by path, with one safe method for each function that is used.
//!
//! Device pointers are plain numbers here: a wrong one is answered by the GPU with an error and
//! can't harm this process. Host memory only crosses as slices or as pinned memory owned by
//! [`memory::HostBuffer`]. Everything runs on one thread; streams give the concurrency.

mod kernel;
mod memory;
mod share;
mod stream;

use std::cell::Cell;
use std::ffi::{CStr, CString, c_char, c_int, c_uint, c_void};
use std::mem::ManuallyDrop;
use std::path::Path;
use std::ptr;

use libloading::Library;

pub(crate) use kernel::Function;
pub(crate) use memory::HostBuffer;
pub(crate) use share::{IPC_HANDLE_BYTES, IpcHandle, VmmHandle};
pub(crate) use stream::{Event, Stream};

use crate::status::{GpuError, ends_the_process};

/// What `dlopen` is given when the caller names no path. Never `libcuda.so`: that may be a stub.
pub(crate) const DEFAULT_LIBRARY: &str = "libcuda.so.1";

/// An address in device memory (`CUdeviceptr`).
pub(crate) type DevicePointer = u64;

/// Declares a table of symbols and how to load it.
macro_rules! symbols {
    ($table:ident { $($field:ident = $symbol:literal ($($argument:ty),*);)* }) => {
        pub(crate) struct $table {
            $(pub(crate) $field: unsafe extern "C" fn($($argument),*) -> c_int,)*
        }

        impl $table {
            pub(crate) fn load(
                library: &Library,
                name: &str,
            ) -> Result<Self, GpuError> {
                Ok(Self {
                    $($field: {
                        // SAFETY: the type is the C declaration of that symbol in the library's
                        // public header; the library is never unloaded.
                        let found = unsafe {
                            library.get::<unsafe extern "C" fn($($argument),*) -> c_int>($symbol)
                        };
                        *found.map_err(|_| GpuError::Symbol {
                            library: name.to_owned(),
                            symbol: $symbol,
                        })?
                    },)*
                })
            }
        }
    };
}
pub(crate) use symbols;

symbols! { Symbols {
    init = "cuInit" (c_uint);
    driver_get_version = "cuDriverGetVersion" (*mut c_int);
    device_get_count = "cuDeviceGetCount" (*mut c_int);
    device_get = "cuDeviceGet" (*mut c_int, c_int);
    device_get_by_pci_bus_id = "cuDeviceGetByPCIBusId" (*mut c_int, *const c_char);
    device_get_pci_bus_id = "cuDeviceGetPCIBusId" (*mut c_char, c_int, c_int);
    device_get_name = "cuDeviceGetName" (*mut c_char, c_int, c_int);
    device_get_uuid = "cuDeviceGetUuid_v2" (*mut [u8; 16], c_int);
    device_get_attribute = "cuDeviceGetAttribute" (*mut c_int, c_int, c_int);
    device_can_access_peer = "cuDeviceCanAccessPeer" (*mut c_int, c_int, c_int);
    device_get_p2p_attribute = "cuDeviceGetP2PAttribute" (*mut c_int, c_int, c_int, c_int);
    primary_ctx_retain = "cuDevicePrimaryCtxRetain" (*mut *mut c_void, c_int);
    primary_ctx_release = "cuDevicePrimaryCtxRelease_v2" (c_int);
    ctx_set_current = "cuCtxSetCurrent" (*mut c_void);
    ctx_enable_peer_access = "cuCtxEnablePeerAccess" (*mut c_void, c_uint);
    mem_get_info = "cuMemGetInfo_v2" (*mut usize, *mut usize);
    mem_alloc = "cuMemAlloc_v2" (*mut u64, usize);
    mem_free = "cuMemFree_v2" (u64);
    mem_host_alloc = "cuMemHostAlloc" (*mut *mut c_void, usize, c_uint);
    mem_host_get_device_pointer =
        "cuMemHostGetDevicePointer_v2" (*mut u64, *mut c_void, c_uint);
    mem_free_host = "cuMemFreeHost" (*mut c_void);
    memset_d8_async = "cuMemsetD8Async" (u64, u8, usize, *mut c_void);
    memcpy_htod = "cuMemcpyHtoD_v2" (u64, *const c_void, usize);
    memcpy_dtoh = "cuMemcpyDtoH_v2" (*mut c_void, u64, usize);
    memcpy_htod_async = "cuMemcpyHtoDAsync_v2" (u64, *const c_void, usize, *mut c_void);
    memcpy_dtoh_async = "cuMemcpyDtoHAsync_v2" (*mut c_void, u64, usize, *mut c_void);
    memcpy_dtod_async = "cuMemcpyDtoDAsync_v2" (u64, u64, usize, *mut c_void);
    memcpy_peer_async =
        "cuMemcpyPeerAsync" (u64, *mut c_void, u64, *mut c_void, usize, *mut c_void);
    stream_create = "cuStreamCreate" (*mut *mut c_void, c_uint);
    stream_query = "cuStreamQuery" (*mut c_void);
    stream_destroy = "cuStreamDestroy_v2" (*mut c_void);
    event_create = "cuEventCreate" (*mut *mut c_void, c_uint);
    event_record = "cuEventRecord" (*mut c_void, *mut c_void);
    event_elapsed = "cuEventElapsedTime" (*mut f32, *mut c_void, *mut c_void);
    event_destroy = "cuEventDestroy_v2" (*mut c_void);
    module_load_data = "cuModuleLoadData" (*mut *mut c_void, *const c_void);
    module_get_function =
        "cuModuleGetFunction" (*mut *mut c_void, *mut c_void, *const c_char);
    launch_kernel = "cuLaunchKernel" (
        *mut c_void, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, c_uint, *mut c_void,
        *mut *mut c_void, *mut *mut c_void
    );
    mem_create = "cuMemCreate" (*mut u64, usize, *const share::AllocationProperties, u64);
    mem_release = "cuMemRelease" (u64);
    mem_address_reserve = "cuMemAddressReserve" (*mut u64, usize, usize, u64, u64);
    mem_address_free = "cuMemAddressFree" (u64, usize);
    mem_map = "cuMemMap" (u64, usize, usize, u64, u64);
    mem_unmap = "cuMemUnmap" (u64, usize);
    mem_set_access = "cuMemSetAccess" (u64, usize, *const share::AccessDescription, usize);
    mem_granularity = "cuMemGetAllocationGranularity" (
        *mut usize, *const share::AllocationProperties, c_uint
    );
    ipc_get_mem_handle = "cuIpcGetMemHandle" (*mut IpcHandle, u64);
    ipc_open_mem_handle = "cuIpcOpenMemHandle_v2" (*mut u64, IpcHandle, c_uint);
    ipc_close_mem_handle = "cuIpcCloseMemHandle" (u64);
} }

/// Device attributes (`CUdevice_attribute` in `cuda.h`).
pub(crate) mod attribute {
    pub(crate) const MULTIPROCESSORS: i32 = 16;
    pub(crate) const COMPUTE_MODE: i32 = 20;
    pub(crate) const CAPABILITY_MAJOR: i32 = 75;
    pub(crate) const CAPABILITY_MINOR: i32 = 76;
}

/// Peer attributes (`CUdevice_P2PAttribute` in `cuda.h`).
pub(crate) mod peer_attribute {
    pub(crate) const PERFORMANCE_RANK: i32 = 1;
    pub(crate) const ACCESS_SUPPORTED: i32 = 2;
    pub(crate) const NATIVE_ATOMICS: i32 = 3;
}

/// A primary context (`CUcontext`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Context(*mut c_void);

/// The loaded library.
pub(crate) struct Driver {
    symbols: Symbols,
    /// Set once a context is lost or work hangs: from then on nothing is freed, since every
    /// further call fails or waits; the process is about to end.
    lost: Cell<bool>,
    /// Never unloaded: the driver has threads and exit handlers of its own.
    _library: ManuallyDrop<Library>,
}

impl std::fmt::Debug for Driver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Driver").field("lost", &self.lost).finish_non_exhaustive()
    }
}

/// Opens a shared library and tells why if it can't be opened.
pub(crate) fn open_library(path: &Path) -> Result<Library, GpuError> {
    // SAFETY: the initialisers of the named library run; the operator chose it.
    let opened = unsafe { Library::new(path) };
    opened.map_err(|error| GpuError::Library {
        library: path.display().to_string(),
        reason: reason(&error),
    })
}

/// The loader's own words stand behind the outer ones.
fn reason(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), reason)
}

impl Driver {
    /// Loads the library and initialises the driver (`cuInit`).
    pub(crate) fn open(path: Option<&Path>) -> Result<Self, GpuError> {
        let path = path.unwrap_or_else(|| Path::new(DEFAULT_LIBRARY));
        let library = open_library(path)?;
        let symbols = Symbols::load(&library, &path.display().to_string())?;
        let driver = Self { symbols, lost: Cell::new(false), _library: ManuallyDrop::new(library) };
        // SAFETY: takes no pointers.
        let code = unsafe { (driver.symbols.init)(0) };
        driver.check("cuInit", code)?;
        Ok(driver)
    }

    fn check(&self, call: &'static str, code: c_int) -> Result<(), GpuError> {
        if code == 0 {
            return Ok(());
        }
        if ends_the_process(code) {
            self.lost.set(true);
        }
        Err(GpuError::Cuda { call, code })
    }

    /// Says that nothing more is to be freed in this process.
    pub(crate) fn give_up(&self) {
        self.lost.set(true);
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.get()
    }

    /// The CUDA version that the driver offers: 1000 * major + 10 * minor.
    pub(crate) fn version(&self) -> Result<i32, GpuError> {
        let mut version = 0;
        // SAFETY: the pointer is to a live integer.
        let code = unsafe { (self.symbols.driver_get_version)(&raw mut version) };
        self.check("cuDriverGetVersion", code)?;
        Ok(version)
    }

    pub(crate) fn device_count(&self) -> Result<i32, GpuError> {
        let mut count = 0;
        // SAFETY: the pointer is to a live integer.
        let code = unsafe { (self.symbols.device_get_count)(&raw mut count) };
        self.check("cuDeviceGetCount", code)?;
        Ok(count)
    }

    pub(crate) fn device(&self, ordinal: i32) -> Result<i32, GpuError> {
        let mut device = 0;
        // SAFETY: the pointer is to a live integer.
        let code = unsafe { (self.symbols.device_get)(&raw mut device, ordinal) };
        self.check("cuDeviceGet", code)?;
        Ok(device)
    }

    pub(crate) fn device_at(&self, address: &str) -> Result<i32, GpuError> {
        let text = CString::new(address)
            .map_err(|_| GpuError::Request("an address with a zero byte".to_owned()))?;
        let mut device = 0;
        // SAFETY: both pointers are live for the call; the text ends with a zero.
        let code =
            unsafe { (self.symbols.device_get_by_pci_bus_id)(&raw mut device, text.as_ptr()) };
        self.check("cuDeviceGetByPCIBusId", code)?;
        Ok(device)
    }

    pub(crate) fn pci_address(&self, device: i32) -> Result<String, GpuError> {
        let mut text = [0_u8; 32];
        // SAFETY: the length given is smaller than the buffer.
        let code =
            unsafe { (self.symbols.device_get_pci_bus_id)(text.as_mut_ptr().cast(), 31, device) };
        self.check("cuDeviceGetPCIBusId", code)?;
        Ok(until_zero(&text))
    }

    pub(crate) fn name(&self, device: i32) -> Result<String, GpuError> {
        let mut text = [0_u8; 128];
        // SAFETY: the length given is smaller than the buffer.
        let code = unsafe { (self.symbols.device_get_name)(text.as_mut_ptr().cast(), 127, device) };
        self.check("cuDeviceGetName", code)?;
        Ok(until_zero(&text))
    }

    pub(crate) fn uuid(&self, device: i32) -> Result<[u8; 16], GpuError> {
        let mut uuid = [0_u8; 16];
        // SAFETY: `CUuuid` is 16 bytes.
        let code = unsafe { (self.symbols.device_get_uuid)(&raw mut uuid, device) };
        self.check("cuDeviceGetUuid", code)?;
        Ok(uuid)
    }

    pub(crate) fn attribute(&self, attribute: i32, device: i32) -> Result<i32, GpuError> {
        let mut value = 0;
        // SAFETY: the pointer is to a live integer.
        let code =
            unsafe { (self.symbols.device_get_attribute)(&raw mut value, attribute, device) };
        self.check("cuDeviceGetAttribute", code)?;
        Ok(value)
    }

    pub(crate) fn can_access_peer(&self, device: i32, peer: i32) -> Result<bool, GpuError> {
        let mut can = 0;
        // SAFETY: the pointer is to a live integer.
        let code = unsafe { (self.symbols.device_can_access_peer)(&raw mut can, device, peer) };
        self.check("cuDeviceCanAccessPeer", code)?;
        Ok(can != 0)
    }

    pub(crate) fn peer_attribute(
        &self,
        attribute: i32,
        device: i32,
        peer: i32,
    ) -> Result<i32, GpuError> {
        let mut value = 0;
        // SAFETY: the pointer is to a live integer.
        let code = unsafe {
            (self.symbols.device_get_p2p_attribute)(&raw mut value, attribute, device, peer)
        };
        self.check("cuDeviceGetP2PAttribute", code)?;
        Ok(value)
    }

    pub(crate) fn retain(&self, device: i32) -> Result<Context, GpuError> {
        let mut context = ptr::null_mut();
        // SAFETY: the pointer is to a live handle.
        let code = unsafe { (self.symbols.primary_ctx_retain)(&raw mut context, device) };
        self.check("cuDevicePrimaryCtxRetain", code)?;
        Ok(Context(context))
    }

    pub(crate) fn release(&self, device: i32) -> Result<(), GpuError> {
        // SAFETY: takes no pointers.
        let code = unsafe { (self.symbols.primary_ctx_release)(device) };
        self.check("cuDevicePrimaryCtxRelease", code)
    }

    pub(crate) fn set_current(&self, context: Context) -> Result<(), GpuError> {
        // SAFETY: the handle came from `retain`.
        let code = unsafe { (self.symbols.ctx_set_current)(context.0) };
        self.check("cuCtxSetCurrent", code)
    }
}

fn until_zero(bytes: &[u8]) -> String {
    CStr::from_bytes_until_nul(bytes)
        .map(|text| text.to_string_lossy().into_owned())
        .unwrap_or_default()
}
