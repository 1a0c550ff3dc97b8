//! What can go wrong, with what the codes of the driver and of NCCL mean.

use std::time::Duration;

use thiserror::Error;

use crate::result::Verdict;

/// An error of a measurement.
#[derive(Debug, Error)]
pub enum GpuError {
    /// The library is not there or cannot be loaded.
    #[error("cannot load {library}: {reason}")]
    Library {
        /// Path or name that was tried.
        library: String,
        /// The loader's words.
        reason: String,
    },
    /// The library is there but too old or something else.
    #[error("{library} has no symbol {symbol}; it is too old or not what its name says")]
    Symbol {
        /// Path or name of the library.
        library: String,
        /// The missing symbol.
        symbol: &'static str,
    },
    /// A call of the CUDA driver failed.
    #[error("{call} failed with CUDA error {code} ({})", cuda_name(*code))]
    Cuda {
        /// The function.
        call: &'static str,
        /// `CUresult`.
        code: i32,
    },
    /// A call of NCCL failed.
    #[error("{call} failed with NCCL result {code} ({})", nccl_name(*code))]
    Nccl {
        /// The function.
        call: &'static str,
        /// `ncclResult_t`.
        code: i32,
    },
    /// Work on a GPU did not end in its time.
    #[error("{what} did not finish within {:.1} s", limit.as_secs_f64())]
    Hung {
        /// What was waited for.
        what: String,
        /// How long it was given.
        limit: Duration,
    },
    /// The other process of an IPC test failed or went away.
    #[error("the second process of the IPC test: {0}")]
    Partner(String),
    /// A request that makes no sense.
    #[error("cannot run the request: {0}")]
    Request(String),
    /// A pipe between the processes broke.
    #[error("cannot talk to the other process")]
    Pipe(#[source] std::io::Error),
}

impl GpuError {
    /// The CUDA code, if it is a CUDA error.
    pub fn cuda_code(&self) -> Option<i32> {
        match self {
            Self::Cuda { code, .. } => Some(*code),
            Self::Library { .. }
            | Self::Symbol { .. }
            | Self::Nccl { .. }
            | Self::Hung { .. }
            | Self::Partner(_)
            | Self::Request(_)
            | Self::Pipe(_) => None,
        }
    }
}

impl GpuError {
    /// What an error means for transfers that had begun. Too little memory, or a process that
    /// was asked the wrong thing, says nothing about them.
    pub(crate) fn verdict(&self) -> Verdict {
        const NO_MEMORY: i32 = 2;
        match self {
            Self::Hung { .. } => Verdict::Hung,
            Self::Cuda { code: NO_MEMORY, .. }
            | Self::Library { .. }
            | Self::Symbol { .. }
            | Self::Request(_)
            | Self::Pipe(_) => Verdict::NotRun,
            Self::Cuda { .. } | Self::Nccl { .. } | Self::Partner(_) => Verdict::Broken,
        }
    }
}

/// Whether every later call in this process fails too (the context is lost).
pub(crate) fn ends_the_process(code: i32) -> bool {
    // 704 and 705 only say that peer access was on or off already; 708 that a context is active.
    matches!(code, 214 | 220 | 700 | 702 | 703 | 709 | 710 | 714..=719 | 721 | 999)
}

/// The name of a `CUresult` (`cuda.h`), for the codes that a measurement can meet.
pub fn cuda_name(code: i32) -> &'static str {
    match code {
        0 => "CUDA_SUCCESS",
        1 => "CUDA_ERROR_INVALID_VALUE",
        2 => "CUDA_ERROR_OUT_OF_MEMORY",
        3 => "CUDA_ERROR_NOT_INITIALIZED",
        4 => "CUDA_ERROR_DEINITIALIZED",
        34 => "CUDA_ERROR_STUB_LIBRARY",
        46 => "CUDA_ERROR_DEVICE_UNAVAILABLE",
        100 => "CUDA_ERROR_NO_DEVICE",
        101 => "CUDA_ERROR_INVALID_DEVICE",
        201 => "CUDA_ERROR_INVALID_CONTEXT",
        205 => "CUDA_ERROR_MAP_FAILED",
        208 => "CUDA_ERROR_ALREADY_MAPPED",
        214 => "CUDA_ERROR_ECC_UNCORRECTABLE",
        217 => "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED",
        218 => "CUDA_ERROR_INVALID_PTX",
        220 => "CUDA_ERROR_NVLINK_UNCORRECTABLE",
        304 => "CUDA_ERROR_OPERATING_SYSTEM",
        400 => "CUDA_ERROR_INVALID_HANDLE",
        500 => "CUDA_ERROR_NOT_FOUND",
        600 => "CUDA_ERROR_NOT_READY",
        700 => "CUDA_ERROR_ILLEGAL_ADDRESS",
        701 => "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES",
        702 => "CUDA_ERROR_LAUNCH_TIMEOUT",
        704 => "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED",
        705 => "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED",
        710 => "CUDA_ERROR_ASSERT",
        711 => "CUDA_ERROR_TOO_MANY_PEERS",
        714 => "CUDA_ERROR_HARDWARE_STACK_ERROR",
        716 => "CUDA_ERROR_MISALIGNED_ADDRESS",
        718 => "CUDA_ERROR_INVALID_PC",
        719 => "CUDA_ERROR_LAUNCH_FAILED",
        800 => "CUDA_ERROR_NOT_PERMITTED",
        801 => "CUDA_ERROR_NOT_SUPPORTED",
        802 => "CUDA_ERROR_SYSTEM_NOT_READY",
        803 => "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH",
        804 => "CUDA_ERROR_COMPAT_NOT_SUPPORTED_ON_DEVICE",
        999 => "CUDA_ERROR_UNKNOWN",
        _ => "a code without a name here",
    }
}

/// The name of an `ncclResult_t` (`nccl.h`).
pub fn nccl_name(code: i32) -> &'static str {
    match code {
        0 => "ncclSuccess",
        1 => "ncclUnhandledCudaError",
        2 => "ncclSystemError",
        3 => "ncclInternalError",
        4 => "ncclInvalidArgument",
        5 => "ncclInvalidUsage",
        6 => "ncclRemoteError",
        7 => "ncclInProgress",
        8 => "ncclTimeout",
        _ => "a code without a name here",
    }
}
