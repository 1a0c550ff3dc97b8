//! The last measurement, with its age.

use jiff::Timestamp;
use peerway_core::document::status::ShownTest;
use peerway_core::observed::Observed;
use peerway_core::snapshot::measured::{Measured, Outcome, TestedDepth};

use crate::text::wrap;

/// For the document.
pub(super) fn shown(measured: &Observed<Measured>, now: Timestamp) -> Option<ShownTest> {
    let Measured { test, old } = measured.known()?.clone();
    let then = test.measured_at.parse::<Timestamp>().ok();
    let age_seconds = then.map(|then| now.duration_since(then).as_secs());
    Some(ShownTest { test, age_seconds, holds: old.is_none(), old_because: old })
}

/// A line about it; nothing where none was made.
pub(super) fn last_test(measured: &Observed<Measured>, now: Timestamp) -> String {
    let said = match measured {
        Observed::Known(measured) => sentence(measured, now),
        Observed::Absent => return String::new(),
        Observed::Unreadable(why) => format!("not read ({why})"),
    };
    wrap(&said, "Last test: ", "  ")
}

fn sentence(measured: &Measured, now: Timestamp) -> String {
    let test = &measured.test;
    let count = |outcome| test.pairs.iter().filter(|pair| pair.outcome == outcome).count();
    let parts: Vec<String> = [
        (Outcome::Damaged, "WRONG"),
        (Outcome::Hung, "HUNG"),
        (Outcome::Broken, "BROKE DOWN"),
        (Outcome::Intact, "right"),
        (Outcome::Refused, "refused"),
        (Outcome::NotRun, "not measured"),
    ]
    .into_iter()
    .filter(|(outcome, _)| count(*outcome) > 0)
    .map(|(outcome, word)| format!("{} of {} pairs {word}", count(outcome), test.pairs.len()))
    .collect();
    let view = test.view.as_ref().map_or(String::new(), |view| format!(" in {view}"));
    let age = match test.measured_at.parse::<Timestamp>() {
        Ok(then) => age(now.duration_since(then).as_secs()),
        Err(_) => "at an unknown time".to_owned(),
    };
    let holds = match &measured.old {
        None => String::new(),
        Some(why) => format!("; old: {why}, so it says nothing about now"),
    };
    let depth = match test.depth {
        Some(TestedDepth::Quick) => ", tested quickly (a small part of the memory)",
        Some(TestedDepth::Standard | TestedDepth::Full) | None => "",
    };
    format!("{age}{view}: {}{depth}{holds}", parts.join(", "))
}

/// In the largest unit that fits.
fn age(seconds: i64) -> String {
    let of =
        |count: i64, unit: &str| format!("{count} {unit}{} ago", if count == 1 { "" } else { "s" });
    match seconds {
        ..0 => "in the future, by this host's clock".to_owned(),
        0..120 => of(seconds, "second"),
        120..7_200 => of(seconds / 60, "minute"),
        7_200..172_800 => of(seconds / 3_600, "hour"),
        _ => of(seconds / 86_400, "day"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_in_words() {
        for (seconds, words) in [
            (1, "1 second ago"),
            (119, "119 seconds ago"),
            (120, "2 minutes ago"),
            (7_199, "119 minutes ago"),
            (86_400, "24 hours ago"),
            (200_000, "2 days ago"),
            (-5, "in the future, by this host's clock"),
        ] {
            assert_eq!(age(seconds), words);
        }
    }

    #[test]
    fn a_measurement_that_cannot_be_read_is_told() {
        let denied = Observed::Unreadable("permission denied".to_owned());
        let said = last_test(&denied, Timestamp::UNIX_EPOCH);
        assert_eq!(said, "Last test: not read (permission denied)\n");
        assert_eq!(last_test(&Observed::Absent, Timestamp::UNIX_EPOCH), "");
    }
}
