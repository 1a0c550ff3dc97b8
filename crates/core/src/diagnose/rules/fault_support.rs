//! What the rules about the kernel log share: quoting events without drowning in them.

use super::support;
use crate::diagnose::Context;
use crate::diagnose::finding::Finding;
use crate::judge::Confidence;
use crate::snapshot::faults::{DriverEvent, FaultClass, FaultFacts, Faulting};

/// Most rows or driver events that a finding shows.
const MOST: usize = 6;
/// Most regions named for one requester.
const MOST_REGIONS: usize = 3;

/// What the log says, where it was read.
pub(super) fn facts<'c>(context: &'c Context<'_>) -> Option<&'c FaultFacts> {
    context.snapshot.faults.known()
}

/// Rows of some classes.
pub(super) fn rows<'f>(facts: &'f FaultFacts, classes: &[FaultClass]) -> Vec<&'f Faulting> {
    facts.requesters.iter().filter(|one| classes.contains(&one.class)).collect()
}

/// Events of some rows.
pub(super) fn count(rows: &[&Faulting]) -> u64 {
    rows.iter().map(|one| one.count).sum()
}

/// The least sure of some rows.
pub(super) fn confidence(rows: &[&Faulting]) -> Confidence {
    rows.iter().map(|one| one.confidence).max().unwrap_or(Confidence::Possible)
}

/// Requesters' names, each once, in order.
pub(super) fn names(rows: &[&Faulting]) -> Vec<String> {
    let mut names: Vec<String> = rows.iter().map(|one| one.name.clone()).collect();
    names.sort_unstable();
    names.dedup();
    names
}

/// A number with separators, as people read storms.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// `1 request`, `2,400 requests`.
pub(super) fn times(number: u64, one: &str, many: &str) -> String {
    if number == 1 { format!("1 {one}") } else { format!("{} {many}", grouped(number)) }
}

/// Where a row's addresses lie.
fn place(one: &Faulting) -> String {
    if one.hits.is_empty() {
        return match (one.lowest, one.highest) {
            (Some(low), Some(high)) if low == high => format!("at {low}"),
            (Some(low), Some(high)) => format!("from {low} to {high}"),
            _ => "without an address".to_owned(),
        };
    }
    let regions: Vec<String> = one
        .hits
        .iter()
        .take(MOST_REGIONS)
        .map(|hit| format!("{} (region {})", hit.device, hit.bar))
        .collect();
    let more = one.hits.len().saturating_sub(MOST_REGIONS);
    let more = if more > 0 { format!(" and {more} more regions") } else { String::new() };
    format!("inside {}{more}", regions.join(", "))
}

/// Adds what was seen of each row, a line of the log, and what the log lost.
pub(super) fn with_rows(mut finding: Finding, facts: &FaultFacts, rows: &[&Faulting]) -> Finding {
    if facts.suppressed > 0 {
        let value = format!(
            "{} events stand in it, {} more were kept out by the kernel's rate limit",
            grouped(facts.events),
            grouped(facts.suppressed)
        );
        finding = finding.seen(facts.source.clone(), value);
    }
    for one in rows.iter().take(MOST) {
        let hint = if one.access_certain || one.access == "unknown" { "" } else { " (a hint)" };
        let value =
            format!("{} {}, {}{hint}, {}", grouped(one.count), one.kind, one.access, place(one));
        finding = finding.seen(format!("{}, {}", facts.source, one.name), support::cut(&value));
    }
    if let Some(first) = rows.first() {
        finding = finding
            .seen("requester", support::cut(&first.device))
            .seen(line_source(facts, first.first.line), support::cut(&first.text))
            .seen("why this is concluded", support::cut(&first.why));
    }
    finding
}

/// Name of a line as a source of evidence.
pub(super) fn line_source(facts: &FaultFacts, line: u64) -> String {
    format!("{}, line {line}", facts.source)
}

/// Adds driver events with their messages.
pub(super) fn with_events(
    finding: Finding,
    facts: &FaultFacts,
    events: &[&DriverEvent],
) -> Finding {
    events.iter().take(MOST).fold(finding, |finding, event| {
        let times = match event.count {
            0 | 1 => String::new(),
            many => format!("{} times, first: ", grouped(many)),
        };
        let value = support::cut(&format!("{times}{}", event.text));
        finding.seen(line_source(facts, event.first.line), value)
    })
}

/// Devices that driver events name, each once; the host where they name none.
pub(super) fn subjects(events: &[&DriverEvent]) -> Vec<String> {
    let mut named: Vec<_> =
        events.iter().flat_map(|event| [event.device, event.other]).flatten().collect();
    named.sort_unstable();
    named.dedup();
    if named.is_empty() {
        return vec!["host".to_owned()];
    }
    named.iter().map(ToString::to_string).collect()
}
