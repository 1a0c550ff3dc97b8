//! Errors inside a GPU of another make than NVIDIA: its own page tables, its engines.

use peerway_core::diagnose::assessment::Assessment;

use super::{Assessed, Case, devices, rank};

pub(super) fn check(case: &Case<'_>) -> Vec<Assessed> {
    let events = case.events("gpu_error", &[]);
    if events.is_empty() {
        return Vec::new();
    }
    let programs = case.hints().map(|hints| &hints.peer_programs);
    let in_peer_test = programs.is_some_and(|programs| !programs.is_empty());
    let engine = events.iter().any(|event| event.is("copy-engine"));
    if engine && in_peer_test {
        let why = "a copy engine met garbage during a program for peer access, and the IOMMU \
                   reported nothing: the driver's peer access is broken";
        let driver = Assessed::new(Assessment::GpuP2pDriverError, rank::GPU_OWN, why);
        return vec![driver.about(devices(&events))];
    }
    let why = "the GPU's own memory management or engine reported it, not the IOMMU";
    vec![Assessed::new(Assessment::GpuMmuFault, rank::GPU_OWN, why).about(devices(&events))]
}
