//! What people see of a kernel log.

use peerway_core::snapshot::faults::{DriverEvent, Moment};
use peerway_faults::collect::Hints;
use peerway_faults::document::{Faults, Requester};

use crate::text::{self, wrap};

/// Most requesters shown in full; JSON has all.
const MOST_ROWS: usize = 24;
/// Most driver events shown.
const MOST_EVENTS: usize = 24;
/// Most regions shown for a requester.
const MOST_TARGETS: usize = 4;

/// A log that could not be read.
pub(super) fn no_log(why: &str) -> String {
    wrap(
        &format!(
            "The kernel log was not read: {why}. That is no quiet log. Run as root, or give its \
             output: dmesg | peerway faults -"
        ),
        "",
        "  ",
    )
}

/// The page.
pub(super) fn page(faults: &Faults, hints: &Hints) -> String {
    let mut out = head(faults, hints);
    for row in faults.requesters.iter().take(MOST_ROWS) {
        out.push_str(&requester(row));
    }
    let more = faults.requesters.len().saturating_sub(MOST_ROWS);
    if more > 0 {
        out.push_str(&wrap(&format!("and {more} more requesters (--format json)"), "", ""));
    }
    if faults.unlisted_events > 0 {
        let text = format!("{} events of requesters beyond those", faults.unlisted_events);
        out.push_str(&wrap(&text, "", "  "));
    }
    // What the security processor says of itself is no event.
    let events: Vec<&DriverEvent> =
        faults.driver_events.iter().filter(|event| event.kind != "platform").collect();
    if !faults.requesters.is_empty() && !events.is_empty() {
        out.push('\n');
    }
    for event in events.iter().take(MOST_EVENTS) {
        out.push_str(&driver_event(event));
    }
    let more = events.len().saturating_sub(MOST_EVENTS);
    if more > 0 {
        out.push_str(&wrap(&format!("and {more} more (--format json)"), "", ""));
    }
    if !faults.findings.is_empty() {
        out.push('\n');
    }
    for finding in &faults.findings {
        out.push_str(&text::finding_title(finding));
    }
    if let Some(first) = faults.findings.first() {
        let remedy = first.remedies.first().map(String::as_str).unwrap_or_default();
        if !remedy.is_empty() {
            out.push_str(&wrap(remedy, "Now:  ", "      "));
        }
        out.push_str(&wrap(&format!("peerway explain {}", first.code), "Next: ", "      "));
    }
    out
}

fn head(faults: &Faults, hints: &Hints) -> String {
    let number = text::grouped;
    let mut out = wrap(
        &format!(
            "{}: {} lines, {} IOMMU events{}",
            text::bold(&faults.source),
            number(faults.lines),
            text::bold(&number(faults.events)),
            if faults.suppressed > 0 {
                format!(", {} more kept out by rate limits", number(faults.suppressed))
            } else {
                String::new()
            }
        ),
        "",
        "  ",
    );
    if let (Some(first), Some(last)) = (&faults.first, &faults.last) {
        let span = if first == last { first.clone() } else { format!("from {first} to {last}") };
        out.push_str(&wrap(&span, "  ", "  "));
    }
    for boot in &faults.boots {
        let release = boot.release.as_deref().unwrap_or("unknown kernel");
        let drivers: Vec<String> = boot
            .nvidia
            .iter()
            .map(|(version, open)| {
                format!("NVIDIA {version}{}", if *open { " (open)" } else { "" })
            })
            .collect();
        let drivers =
            if drivers.is_empty() { String::new() } else { format!(", {}", drivers.join(", ")) };
        if boot.release.is_some() || !boot.nvidia.is_empty() {
            let text = format!("boot {}: {release}{drivers}", boot.boot);
            out.push_str(&wrap(&text, "  ", "    "));
        }
    }
    if hints.left_out > 0 {
        let text = format!("{} events were left out by --since or --boot", number(hints.left_out));
        out.push_str(&wrap(&text, "  ", "  "));
    }
    if hints.without_clock > 0 {
        let text = format!(
            "{} lines carry no clock that --since can be compared with; they count",
            number(hints.without_clock)
        );
        out.push_str(&wrap(&text, "  ", "  "));
    }
    if faults.records_lost > 0 {
        let text = format!("{} records were overwritten", number(faults.records_lost));
        out.push_str(&wrap(&text, "  ", "  "));
    }
    if faults.requesters.is_empty() {
        out.push_str("  no IOMMU, SMMU or reverse-map event stands in it\n");
    }
    out.push('\n');
    out
}

fn requester(row: &Requester) -> String {
    let number = text::grouped;
    let tenant = row.tenant.as_ref().map(|tenant| format!(", {tenant}")).unwrap_or_default();
    let rate = row.per_second.map(|rate| format!(", {rate:.1} a second")).unwrap_or_default();
    let hint = if row.access_certain || row.access == "unknown" { "" } else { "?" };
    let mut out = wrap(
        &format!(
            "{} {} {}{hint}: {}{rate}; {} ({})",
            number(row.count),
            row.kind,
            row.access,
            row.device,
            row.class.words(),
            text::confidence(row.confidence)
        ),
        &format!("{}  ", text::bold(&row.address)),
        "    ",
    );
    for target in row.targets.iter().take(MOST_TARGETS) {
        let least = if target.count_exact { "" } else { "at least " };
        let offsets = if target.offset_first == target.offset_last {
            format!("at offset {:#x}", target.offset_first)
        } else {
            format!("at offsets {:#x} to {:#x}", target.offset_first, target.offset_last)
        };
        let text = format!(
            "{least}{} in region {} of {} {offsets}",
            number(target.count),
            target.bar,
            target.device
        );
        out.push_str(&wrap(&text, "    ", "      "));
    }
    let more = row.targets.len().saturating_sub(MOST_TARGETS);
    if more > 0 {
        out.push_str(&wrap(&format!("and in {more} more regions"), "    ", ""));
    }
    let inside: u64 = row.targets.iter().map(|target| target.count).sum();
    if inside < row.count {
        let addresses = match (row.lowest, row.highest) {
            (Some(low), Some(high)) if low == high => low.to_string(),
            (Some(low), Some(high)) => format!("{low} to {high}"),
            _ => "no address".to_owned(),
        };
        let about = if row.distinct_addresses.exact { "" } else { "about " };
        let text = format!(
            "addresses {addresses}, {about}{} different",
            number(row.distinct_addresses.value)
        );
        out.push_str(&wrap(&text, "    ", "      "));
    }
    if row.targets.is_empty() {
        out.push_str(&wrap(&row.why, "    ", "    "));
    }
    out.push_str(&wrap(&format!("{}{tenant}", span(&row.first, &row.last)), "    ", "    "));
    out
}

fn span(first: &Moment, last: &Moment) -> String {
    match (&first.time, &last.time) {
        (Some(from), Some(upto)) if from != upto => format!("from {from} to {upto}"),
        (Some(at), _) => format!("at {at}"),
        (None, _) if first.line == last.line => format!("line {}", first.line),
        (None, _) => format!("lines {} to {}", first.line, last.line),
    }
}

fn driver_event(event: &DriverEvent) -> String {
    let code = event.code.as_deref().unwrap_or_default();
    let device = event.device.map(|device| format!(" {device}")).unwrap_or_default();
    let times = if event.count > 1 { format!(" ({} times)", event.count) } else { String::new() };
    let said = event.meaning.as_deref().unwrap_or(&event.text);
    let said: String = said.chars().filter(|character| !character.is_control()).take(160).collect();
    wrap(&format!("{said}{times}"), &format!("{} {code}{device}: ", event.kind), "    ")
}
