//! Failed initialisations of NVIDIA GPUs: which stage, and whether the IOMMU stood beside.

use std::collections::BTreeSet;

use peerway_core::address::PciAddress;

use super::InitFailure;
use crate::nvidia::Stage;
use crate::report::{DriverEvent, Report};
use crate::row::{Occurrence, Row};

/// Every failed initialisation.
pub(super) fn failures(report: &Report) -> Vec<InitFailure> {
    let failed: Vec<&DriverEvent> =
        report.driver_events.iter().filter(|event| event.kind == "nvidia_init_failed").collect();
    let staged: Vec<&DriverEvent> =
        report.driver_events.iter().filter(|event| event.kind == "nvidia_init").collect();
    let named: BTreeSet<PciAddress> =
        failed.iter().chain(&staged).filter_map(|event| event.device).collect();
    let unreachable = report
        .driver_events
        .iter()
        .any(|event| event.kind == "nvidia" && event.code.as_deref() == Some("not-addressable"));
    // Stage lines mostly name no device. With one failing GPU they are its; with several, nobody's.
    let only = if named.len() == 1 { named.first().copied() } else { None };
    let mut subjects: Vec<Option<PciAddress>> = named.iter().copied().map(Some).collect();
    let orphaned = staged.iter().any(|event| event.device.is_none());
    if (orphaned || unreachable) && only.is_none() {
        subjects.push(None);
    }
    subjects
        .into_iter()
        .map(|device| {
            let is_its = |event: &&&DriverEvent| {
                event.device == device || (event.device.is_none() && device == only)
            };
            let stages = ordered_stages(staged.iter().filter(is_its).copied());
            let begin = staged.iter().filter(is_its).map(|event| event.first.line).min();
            let codes = failed.iter().filter(is_its).filter_map(|event| codes(event)).collect();
            let lines: Vec<&DriverEvent> =
                failed.iter().chain(&staged).filter(is_its).copied().collect();
            let (iommu_events, seconds_to_events) = beside(report, device, &lines);
            InitFailure {
                device,
                stage: first_cause(&stages),
                assertion: begin.and_then(|begin| assertion(report, begin)),
                stages,
                codes,
                iommu_events,
                seconds_to_events,
                unreachable_address: unreachable && (device == only || device.is_none()),
            }
        })
        .collect()
}

fn ordered_stages<'a>(events: impl Iterator<Item = &'a DriverEvent>) -> Vec<Stage> {
    let mut stages: Vec<(u64, Stage)> = events
        .filter_map(|event| {
            let code = event.code.as_deref()?;
            let stage = Stage::ALL.iter().find(|stage| stage.as_str() == code)?;
            Some((event.first.line, *stage))
        })
        .collect();
    stages.sort_unstable();
    stages.into_iter().map(|(_, stage)| stage).collect()
}

/// Summaries and follow-ups are causes only where nothing else was named; of the others the one
/// that runs first decides, since attempts repeat and logs begin in the middle.
fn first_cause(stages: &[Stage]) -> Option<Stage> {
    let follows =
        |stage: &Stage| matches!(stage, Stage::Open | Stage::FspState | Stage::GspFirmware);
    let causes = stages.iter().filter(|stage| !follows(stage) && **stage != Stage::Wpr2).min();
    causes
        .or_else(|| stages.iter().find(|stage| **stage == Stage::Wpr2))
        .or(stages.first())
        .copied()
}

/// The assertion nearest before the first stage, not further than a page of log.
fn assertion(report: &Report, begin: u64) -> Option<String> {
    const PAGE: u64 = 40;
    report
        .driver_events
        .iter()
        .filter(|event| event.kind == "nvidia" && event.code.as_deref() == Some("assertion"))
        .find(|event| event.first.line < begin && event.first.line + PAGE >= begin)
        .map(|event| event.text.clone())
}

fn codes(event: &DriverEvent) -> Option<(u32, u32)> {
    let (stage, status) = event.code.as_deref()?.split_once(':')?;
    let read = |text: &str| u32::from_str_radix(text.strip_prefix("0x")?, 16).ok();
    Some((read(stage)?, read(status)?))
}

/// IOMMU events of a device in the boots of some lines, and how far in time the two lie apart.
fn beside(
    report: &Report,
    device: Option<PciAddress>,
    lines: &[&DriverEvent],
) -> (u64, Option<u64>) {
    let Some(device) = device else { return (0, None) };
    let mut events = 0;
    let mut nearest = None;
    for row in report.requesters.iter().filter(|row| row.requester.pci() == Some(device)) {
        for line in lines {
            let same_boot = row.first.boot <= line.last.boot && line.first.boot <= row.last.boot;
            if same_boot {
                let gap = gap(row, line);
                nearest = match (nearest, gap) {
                    (Some(seen), Some(gap)) => Some(std::cmp::min::<u64>(seen, gap)),
                    (seen, gap) => seen.or(gap),
                };
            }
        }
        events += row.count;
    }
    (events, nearest)
}

/// Seconds between two spans of time; 0 where they overlap.
fn gap(row: &Row, line: &DriverEvent) -> Option<u64> {
    let before = seconds_between(&row.last, &line.first)?;
    let after = seconds_between(&line.last, &row.first)?;
    Some(u64::try_from(before.max(after).max(0)).unwrap_or(0))
}

/// Seconds from one occurrence to another, by a clock that both have.
fn seconds_between(from: &Occurrence, to: &Occurrence) -> Option<i64> {
    if let (Some(from), Some(to)) = (from.stamp.monotonic_us, to.stamp.monotonic_us) {
        return Some(i64::try_from(to / 1_000_000).ok()? - i64::try_from(from / 1_000_000).ok()?);
    }
    Some(to.stamp.wall?.seconds_of_era() - from.stamp.wall?.seconds_of_era())
}
