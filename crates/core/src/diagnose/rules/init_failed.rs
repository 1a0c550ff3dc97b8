//! PW0605: the NVIDIA driver could not bring a GPU up.

use super::fault_support as log;
use super::support;
use crate::code::INIT_FAILED;
use crate::diagnose::finding::{Finding, Severity};
use crate::diagnose::{Context, Rule};
use crate::judge::Confidence;
use crate::snapshot::faults::DriverEvent;

pub(super) const RULE: Rule = Rule {
    code: INIT_FAILED,
    title: "the NVIDIA driver could not bring a GPU up",
    page: "\
The driver's start-up of a GPU failed. Peer access with that GPU cannot be judged until it runs; it
is not the cause.

How it was seen: `NVRM:` lines of the kernel log, put in the order in which the stages run. The
stage that failed first decides which causes are possible. The summary (`RmInitAdapter failed!`) and
what follows it come later, and a second attempt reports leftovers of the first (`WPR2 already up`).

Stages that need no system memory, so that no IOMMU can break them: the BAR firewall, attaching the
chip, the board's own firmware (`GFW_BOOT`), the security processor's secure boot and fuses. Look at
reset, power, the slot, the board. Stages that fetch from system memory: the security processor's
boot command, the GSP's start, and all later ones. Where refused requests of the same GPU stand
beside such a failure, the IOMMU took part, and the finding says so.

What helps: a real reset between attempts (through the port above, or a power cycle). Where the
IOMMU refuses the GPU's own requests: the group's domain type, an external port that the kernel does
not trust, SEV-SNP with an identity domain.

What not to believe: the third number of the summary, a source line that changes with every release;
`left-over mappings in IOVAS`, which is cleaning up.

Sources: `src/nvidia/arch/nvalloc/unix/src/osinit.c`, `RmInitAdapter`; `kern_fsp*.c`;
`kernel_gsp*.c`; `kernel-open/nvidia/nv-pci.c`.",
    check,
};

/// Codes in the order in which the stages run, where a failure begins something.
const ORDER: [&str; 15] = [
    "bar-firewall",
    "attach",
    "dma-setup",
    "not-addressable",
    "firmware-file",
    "gfw-boot",
    "fsp-secure-boot",
    "fsp-fuse",
    "fsp-queue",
    "fsp-boot-command",
    "fsp-prepare",
    "gsp-via-fsp",
    "gsp-lockdown",
    "wpr2",
    "gsp-firmware",
];

/// The event that the others follow from.
fn cause<'f>(events: &[&'f DriverEvent]) -> Option<&'f DriverEvent> {
    let place = |event: &DriverEvent| {
        let code = event.code.as_deref().unwrap_or_default();
        let known = ORDER.iter().position(|one| *one == code);
        // Then the summary with its numbers; dumps and probes last.
        known.unwrap_or(if event.kind == "nvidia_init_failed" { 90 } else { 95 })
    };
    events.iter().min_by_key(|event| (place(event), event.first.line)).copied()
}

fn check(context: &Context<'_>) -> Vec<Finding> {
    let Some(facts) = log::facts(context) else { return Vec::new() };
    let events = facts.init_failures();
    let Some(cause) = cause(&events) else { return Vec::new() };
    let refused = facts.refused_during_init();
    let reading = cause.meaning.clone().unwrap_or_else(|| cause.text.clone());
    let with = if refused.is_empty() { "" } else { ", and the IOMMU refused its DMA meanwhile" };
    let mut title = format!("the NVIDIA driver could not bring a GPU up{with}");
    if refused.is_empty() && title.chars().count() + reading.chars().count() < 104 {
        title = format!("{title}: {reading}");
    }
    let mut shown = vec![cause];
    shown.extend(events.iter().filter(|event| !std::ptr::eq(**event, cause)));
    let mut finding = Finding::new(RULE.code, Severity::Error, Confidence::Certain, title)
        .about_all(log::subjects(&events))
        .seen("stage that failed first", support::cut(&reading));
    finding = log::with_events(finding, facts, &shown);
    if refused.is_empty() {
        finding = finding.remedy(
            "a real reset of this GPU (through its port, or a power cycle), then the first line \
             of the next attempt",
        );
    } else {
        finding = log::with_rows(finding, facts, &refused).remedy(
            "look at this GPU's own IOMMU group: its type decides, whatever the boot banner says",
        );
    }
    vec![finding.remedy("peer access of this GPU cannot be judged before it runs")]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::diagnose::rules::fault_testing::{event, faulting, logged};
    use crate::diagnose::rules::testing::{A, Host, fires, silent, value};
    use crate::snapshot::faults::{FaultClass, Moment};

    fn stage(code: &str, line: u64) -> DriverEvent {
        DriverEvent {
            meaning: Some(format!("reading of {code}")),
            first: Moment { line, ..Moment::default() },
            last: Moment { line, ..Moment::default() },
            ..event("nvidia_init", code, &format!("NVRM: {code}"))
        }
    }

    #[test]
    fn the_first_stage_counts_and_not_the_first_line() {
        let events = vec![stage("gsp-firmware", 1), stage("gfw-boot", 9), stage("open", 2)];
        let finding = fires(&RULE, &logged(vec![], events));
        assert_eq!(value(&finding, "stage that failed first"), "reading of gfw-boot");
        assert_eq!(finding.subjects, [A]);
        assert!(!finding.title.contains("IOMMU"));
    }

    #[test]
    fn refused_requests_beside_it_are_said() {
        let rows = vec![faulting(FaultClass::GpuOther, 3)];
        let finding = fires(&RULE, &logged(rows, vec![stage("fsp-boot-command", 5)]));
        assert!(finding.title.contains("the IOMMU refused its DMA"));
        let mut early = faulting(FaultClass::GpuOther, 3);
        early.first.seconds = Some(10);
        early.last.seconds = Some(12);
        let mut late = stage("fsp-boot-command", 5);
        late.first.seconds = Some(400);
        late.last.seconds = Some(401);
        let finding = fires(&RULE, &logged(vec![early], vec![late]));
        assert!(!finding.title.contains("IOMMU"));
    }

    #[test]
    fn silent_without_a_failure() {
        silent(&RULE, &Host::amd());
        silent(&RULE, &logged(vec![], vec![event("nvidia", "cleanup-noise", "NVRM: x")]));
    }
}
