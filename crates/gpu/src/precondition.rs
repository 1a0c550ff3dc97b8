//! What must hold before GPUs can be measured, and what to do where it does not.

use peerway_core::address::PciAddress;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::status::{GpuError, cuda_name};

/// A condition that was not met.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Precondition {
    /// Which.
    pub kind: Unmet,
    /// The GPU concerned; none where it is the host.
    pub gpu: Option<PciAddress>,
    /// For the operator: what was found and what to do.
    pub message: String,
}

/// The kinds of conditions.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum Unmet {
    /// No CUDA library, or one that lacks what is needed.
    NoLibrary,
    /// No NCCL library: the all-reduce is left out.
    NoNccl,
    /// The driver found no GPU.
    NoDevice,
    /// The driver is not ready, or does not fit the library.
    NoDriver,
    /// The GPU takes no compute work.
    ComputeProhibited,
    /// The GPU takes one process at a time and has one.
    ExclusiveBusy,
    /// The GPU is partitioned; the driver gives partitions no P2P.
    Mig,
    /// Too little free memory.
    NoMemory,
    /// The environment hides GPUs (a remark: it may be meant).
    VisibleDevices,
    /// A GPU that was asked for is not shown by the driver.
    NotVisible,
    /// Somebody uses the GPU.
    InUse,
    /// Fewer than two GPUs: there is no pair.
    TooFewGpus,
    /// Copies between a GPU and host memory failed: their rates are left out.
    NoHostRates,
    /// The driver did not answer in its time.
    DriverHung,
    /// The view of the container could not be entered.
    NoView,
    /// The driver shows only a part of the host's GPUs here (a remark: it may be meant).
    SomeGpus,
    /// The check did not find damage that was planted: its word counts for nothing.
    CheckBroken,
}

impl Precondition {
    /// A condition of the host.
    pub fn host(kind: Unmet, message: impl Into<String>) -> Self {
        Self { kind, gpu: None, message: message.into() }
    }

    /// A condition of one GPU.
    pub fn gpu(kind: Unmet, gpu: PciAddress, message: impl Into<String>) -> Self {
        Self { kind, gpu: Some(gpu), message: message.into() }
    }

    /// Whether nothing at all can be measured.
    pub fn ends_everything(&self) -> bool {
        matches!(
            self.kind,
            Unmet::NoLibrary
                | Unmet::NoDevice
                | Unmet::NoDriver
                | Unmet::NoView
                | Unmet::DriverHung
        ) && self.gpu.is_none()
    }

    /// What an error at the very start (loading, `cuInit`) means.
    pub(crate) fn of_start(error: &GpuError) -> Self {
        let advice = match error {
            GpuError::Library { .. } => {
                return Self::host(
                    Unmet::NoLibrary,
                    format!(
                        "{error}; install the driver's libcuda, or name its path (in a container \
                         it must come from the host's driver)"
                    ),
                );
            }
            GpuError::Symbol { .. } => {
                return Self::host(Unmet::NoLibrary, format!("{error}; update the driver"));
            }
            GpuError::Cuda { code, .. } => start_advice(*code),
            GpuError::Nccl { .. }
            | GpuError::Hung { .. }
            | GpuError::Partner(_)
            | GpuError::Request(_)
            | GpuError::Pipe(_) => "look at the kernel log",
        };
        let kind = if error.cuda_code() == Some(100) { Unmet::NoDevice } else { Unmet::NoDriver };
        Self::host(kind, format!("{error}; {advice}"))
    }

    /// What an error at the opening of one GPU means.
    pub(crate) fn of_open(error: &GpuError, gpu: PciAddress, visible: Option<&str>) -> Self {
        let (kind, advice) = match error.cuda_code() {
            Some(2) => (Unmet::NoMemory, "free memory on this GPU".to_owned()),
            Some(46) => (
                Unmet::ExclusiveBusy,
                "its compute mode allows one process and another one has it, or allows none; \
                 stop that process or set the mode to default; if there is none, look for Xid 79 \
                 in the kernel log: the GPU may have fallen off the bus"
                    .to_owned(),
            ),
            Some(101) => return Self::not_visible(gpu, visible),
            Some(code) => (Unmet::NoDriver, start_advice(code).to_owned()),
            None => (Unmet::NoDriver, "look at the kernel log".to_owned()),
        };
        Self::gpu(kind, gpu, format!("cannot open GPU {gpu}: {error}; {advice}"))
    }

    /// A GPU that the driver does not show.
    pub(crate) fn not_visible(gpu: PciAddress, visible: Option<&str>) -> Self {
        let why = match visible {
            Some(value) => format!("CUDA_VISIBLE_DEVICES={value} may hide it; unset it"),
            None => "it may be bound to another driver (vfio-pci), failed to start, or its device \
                     node is missing in this container"
                .to_owned(),
        };
        Self::gpu(Unmet::NotVisible, gpu, format!("CUDA does not show GPU {gpu}: {why}"))
    }
}

/// What to do about an error code of `cuInit` or of opening a GPU.
fn start_advice(code: i32) -> &'static str {
    match code {
        34 => "a stub library was loaded; name the path of the driver's own libcuda.so.1",
        100 => {
            "the driver shows no GPU: look whether the module is loaded, the device nodes exist \
             here and CUDA_VISIBLE_DEVICES is unset"
        }
        802 => "the fabric manager or the GPU's start-up is not finished: wait for it or start it",
        803 => {
            "the library and the kernel module are of different versions: after an update, reload \
             the module; in a container, take the library of the host's driver"
        }
        804 => "the compatibility library does not fit this GPU: use the driver's own libcuda",
        999 => {
            "often a missing /dev/nvidia-uvm, a device rule of the container, or a GPU that failed \
             to start: look at the kernel log"
        }
        _ => "look at the kernel log",
    }
}

/// The name of a compute mode that takes no contexts, for messages.
pub(crate) fn prohibited(gpu: PciAddress) -> Precondition {
    Precondition::gpu(
        Unmet::ComputeProhibited,
        gpu,
        format!(
            "GPU {gpu} is in compute mode \"prohibited\" ({}); set it to default",
            cuda_name(46)
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_errors_are_told_apart() {
        for (code, kind, word) in [
            (100, Unmet::NoDevice, "no GPU"),
            (802, Unmet::NoDriver, "fabric manager"),
            (803, Unmet::NoDriver, "different versions"),
            (804, Unmet::NoDriver, "compatibility"),
            (999, Unmet::NoDriver, "nvidia-uvm"),
        ] {
            let met = Precondition::of_start(&GpuError::Cuda { call: "cuInit", code });
            assert_eq!(met.kind, kind);
            assert!(met.message.contains(word), "{}", met.message);
            assert!(met.ends_everything());
        }
    }

    #[test]
    fn a_hidden_gpu_names_the_variable() {
        let gpu = PciAddress::new(0, 0x41, 0, 0).unwrap();
        let met = Precondition::of_open(
            &GpuError::Cuda { call: "cuDeviceGetByPCIBusId", code: 101 },
            gpu,
            Some("0,1"),
        );
        assert_eq!(met.kind, Unmet::NotVisible);
        assert!(met.message.contains("CUDA_VISIBLE_DEVICES=0,1"), "{}", met.message);
    }
}
