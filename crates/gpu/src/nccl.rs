//! NCCL, loaded by path: communicators of one process, all-reduce, and nothing else.

use std::ffi::{c_int, c_void};
use std::mem::ManuallyDrop;
use std::path::Path;
use std::ptr;

use libloading::Library;

use crate::driver::{DevicePointer, Stream, open_library, symbols};
use crate::status::GpuError;

/// What `dlopen` is given when the caller names no path.
const DEFAULT_LIBRARY: &str = "libnccl.so.2";

/// Element type and operation of `nccl.h`: sums of unsigned 32-bit integers, which have one right
/// answer in any order.
const UINT32: c_int = 3;
const SUM: c_int = 0;
const SUCCESS: c_int = 0;
const IN_PROGRESS: c_int = 7;

symbols! { Symbols {
    get_version = "ncclGetVersion" (*mut c_int);
    get_unique_id = "ncclGetUniqueId" (*mut UniqueId);
    comm_init_rank = "ncclCommInitRank" (*mut *mut c_void, c_int, UniqueId, c_int);
    comm_init_all = "ncclCommInitAll" (*mut *mut c_void, c_int, *const c_int);
    group_start = "ncclGroupStart" ();
    group_end = "ncclGroupEnd" ();
    all_reduce = "ncclAllReduce" (
        *const c_void, *mut c_void, usize, c_int, c_int, *mut c_void, *mut c_void
    );
    get_async_error = "ncclCommGetAsyncError" (*mut c_void, *mut c_int);
    comm_destroy = "ncclCommDestroy" (*mut c_void);
} }

/// The name of a communicator between processes (`ncclUniqueId`).
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct UniqueId([u8; 128]);

impl serde::Serialize for UniqueId {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_seq(self.0)
    }
}

impl<'de> serde::Deserialize<'de> for UniqueId {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let bytes = <Vec<u8> as serde::Deserialize>::deserialize(from)?;
        let wrong = |bytes: Vec<u8>| serde::de::Error::invalid_length(bytes.len(), &"128 bytes");
        bytes.try_into().map(Self).map_err(wrong)
    }
}

/// The loaded library.
pub(crate) struct Nccl {
    symbols: Symbols,
    /// Never unloaded: it has threads of its own.
    _library: ManuallyDrop<Library>,
}

/// The ranks of one communicator, all in this process.
pub(crate) struct Ranks<'n> {
    nccl: &'n Nccl,
    communicators: Vec<*mut c_void>,
}

impl Nccl {
    pub(crate) fn open(path: Option<&Path>) -> Result<Self, GpuError> {
        let path = path.unwrap_or_else(|| Path::new(DEFAULT_LIBRARY));
        let library = open_library(path)?;
        let symbols = Symbols::load(&library, &path.display().to_string())?;
        Ok(Self { symbols, _library: ManuallyDrop::new(library) })
    }

    /// major * 10000 + minor * 100 + patch.
    pub(crate) fn version(&self) -> Result<i32, GpuError> {
        let mut version = 0;
        // SAFETY: the pointer is to a live integer.
        let code = unsafe { (self.symbols.get_version)(&raw mut version) };
        check("ncclGetVersion", code)?;
        Ok(version)
    }

    /// A name for a communicator between processes.
    pub(crate) fn unique_id(&self) -> Result<UniqueId, GpuError> {
        let mut name = UniqueId([0; 128]);
        // SAFETY: the pointer is to room for a name.
        let code = unsafe { (self.symbols.get_unique_id)(&raw mut name) };
        check("ncclGetUniqueId", code)?;
        Ok(name)
    }

    /// This process's rank of a communicator between processes, on the current GPU. Can hang where
    /// P2P does not work, and waits for the other ranks.
    pub(crate) fn join(
        &self,
        name: &UniqueId,
        size: u16,
        number: u16,
    ) -> Result<Ranks<'_>, GpuError> {
        let mut communicator = ptr::null_mut();
        let (size, number) = (c_int::from(size), c_int::from(number));
        // SAFETY: the pointer is to room for a handle, and the name is passed by value.
        let code =
            unsafe { (self.symbols.comm_init_rank)(&raw mut communicator, size, *name, number) };
        check("ncclCommInitRank", code)?;
        Ok(Ranks { nccl: self, communicators: vec![communicator] })
    }

    /// A communicator over devices by their CUDA ordinals. Can hang where P2P does not work.
    pub(crate) fn ranks(&self, devices: &[i32]) -> Result<Ranks<'_>, GpuError> {
        let mut communicators = vec![ptr::null_mut(); devices.len()];
        let count = c_int::try_from(devices.len()).unwrap_or(0);
        // SAFETY: both arrays hold as many entries as announced.
        let code = unsafe {
            (self.symbols.comm_init_all)(communicators.as_mut_ptr(), count, devices.as_ptr())
        };
        check("ncclCommInitAll", code)?;
        Ok(Ranks { nccl: self, communicators })
    }
}

/// Buffers and stream of one rank in an all-reduce.
pub(crate) struct Part<'s> {
    pub(crate) send: DevicePointer,
    pub(crate) receive: DevicePointer,
    pub(crate) stream: &'s Stream,
}

impl Ranks<'_> {
    /// Queues one all-reduce of `count` elements over all ranks.
    pub(crate) fn all_reduce(&self, count: u64, parts: &[Part<'_>]) -> Result<(), GpuError> {
        let symbols = &self.nccl.symbols;
        let count = usize::try_from(count).unwrap_or(0);
        // SAFETY: takes no pointers.
        check("ncclGroupStart", unsafe { (symbols.group_start)() })?;
        for (communicator, part) in self.communicators.iter().zip(parts) {
            let send = pointer(part.send).cast_const();
            let receive = pointer(part.receive);
            // SAFETY: device addresses of buffers that hold `count` elements, a live communicator
            // and a live stream.
            let code = unsafe {
                (symbols.all_reduce)(
                    send,
                    receive,
                    count,
                    UINT32,
                    SUM,
                    *communicator,
                    part.stream.raw(),
                )
            };
            check("ncclAllReduce", code)?;
        }
        // SAFETY: takes no pointers.
        check("ncclGroupEnd", unsafe { (symbols.group_end)() })
    }

    /// An error that NCCL met in the background.
    pub(crate) fn background(&self) -> Result<(), GpuError> {
        for communicator in &self.communicators {
            let mut code = SUCCESS;
            // SAFETY: a live communicator and a live integer.
            let asked =
                unsafe { (self.nccl.symbols.get_async_error)(*communicator, &raw mut code) };
            check("ncclCommGetAsyncError", asked)?;
            if code != IN_PROGRESS {
                check("an all-reduce in the background", code)?;
            }
        }
        Ok(())
    }

    /// Ends the communicators. Not done on errors: the process ends then, and a destroy can hang.
    pub(crate) fn end(self) -> Result<(), GpuError> {
        for communicator in &self.communicators {
            // SAFETY: a live communicator, destroyed once.
            let code = unsafe { (self.nccl.symbols.comm_destroy)(*communicator) };
            check("ncclCommDestroy", code)?;
        }
        Ok(())
    }
}

/// A device address as NCCL's declarations want it.
fn pointer(address: DevicePointer) -> *mut c_void {
    ptr::without_provenance_mut(usize::try_from(address).unwrap_or(0))
}

fn check(call: &'static str, code: c_int) -> Result<(), GpuError> {
    if code == SUCCESS { Ok(()) } else { Err(GpuError::Nccl { call, code }) }
}
