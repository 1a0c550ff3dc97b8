//! PW0608: errors inside a GPU of another make.

use super::fault_support as log;
use crate::code::GPU_OWN_ERRORS;
use crate::diagnose::finding::{Finding, Severity};
use crate::diagnose::{Context, Rule};
use crate::judge::Confidence;
use crate::snapshot::faults::DriverEvent;

pub(super) const RULE: Rule = Rule {
    code: GPU_OWN_ERRORS,
    title: "a GPU's own memory management or engine reported an error",
    page: "\
The driver of a GPU reported a page fault, a refused command or a hang inside the GPU. The GPU's own
page tables translate the virtual addresses of its programs, before any request leaves the GPU. Such
a fault is no IOMMU event, even where its line says \"page fault\", and the address in it is a virtual
one that no memory region holds.

How it was seen: lines of `amdgpu`, `xe`, `i915`, `radeon` or `nouveau` in the kernel log. NVIDIA's
driver reports the same as Xid 31.

Why it matters: nothing about the IOMMU, access control or firmware settings follows from it. It
occurs with the IOMMU off as well.

One kind bears on peer access: a copy engine (SDMA) that meets garbage instead of commands during a
peer-to-peer test. The driver's peer access is broken then; old kernels lacked it for AMD's GPUs.

What helps: the process that the line names; another driver or runtime version.

Sources: `drivers/gpu/drm/amd/amdgpu/gmc_v*.c`, `sdma_v*.c`; `drivers/gpu/drm/xe/xe_gt_pagefault.c`.",
    check,
};

fn check(context: &Context<'_>) -> Vec<Finding> {
    let Some(facts) = log::facts(context) else { return Vec::new() };
    let events: Vec<&DriverEvent> = facts.of_kind("gpu_error").collect();
    if events.is_empty() {
        return Vec::new();
    }
    let engine = events.iter().all(|event| event.is("copy-engine"));
    let title = if engine {
        "a GPU's copy engine met commands that it may not execute; the IOMMU reported nothing"
    } else {
        "a GPU's own memory management or engine reported an error, not the IOMMU"
    };
    let finding = Finding::new(RULE.code, Severity::Warning, Confidence::Certain, title)
        .about_all(log::subjects(&events));
    let finding = log::with_events(finding, facts, &events);
    vec![finding.remedy("look at the process that the line names, and at driver and runtime")]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::fault_testing::{event, logged};
    use crate::diagnose::rules::testing::{A, fires, silent};

    #[test]
    fn page_faults_and_engines() {
        let fault = event("gpu_error", "mmu-fault", "amdgpu 0000:01:00.0: [gfxhub] page fault");
        let finding = fires(&RULE, &logged(vec![], vec![fault]));
        assert_eq!(finding.subjects, [A]);
        assert!(finding.title.contains("not the IOMMU"));
        let engine = event("gpu_error", "copy-engine", "amdgpu 0000:01:00.0: SDMA gets …");
        assert!(fires(&RULE, &logged(vec![], vec![engine])).title.contains("copy engine"));
        silent(&RULE, &logged(vec![], vec![]));
    }
}
