//! Points in a log: marks, times, spans.

use peerway_faults::Since;
use peerway_klog::WallClock;

use crate::error::CliError;

/// A point that `--since` names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Point {
    /// A record of one boot: what came after it counts.
    Mark {
        /// The boot.
        boot_id: String,
        /// The last record before.
        sequence: u64,
    },
    /// A point on a log's clock.
    Clock(Since),
    /// So many microseconds ago.
    Ago(u64),
}

/// Between the two parts of a mark.
const SEPARATOR: char = ':';

/// A mark as text: the boot and its newest record.
pub fn mark(boot_id: &str, sequence: u64) -> String {
    format!("{boot_id}{SEPARATOR}{sequence}")
}

/// Reads what `--since` got.
pub fn parse(text: &str) -> Result<Point, CliError> {
    let text = text.trim();
    let known = as_mark(text)
        .or_else(|| {
            seconds(text.trim_start_matches('@')).map(|us| Point::Clock(Since::Monotonic(us)))
        })
        .or_else(|| ago(text).map(Point::Ago))
        .or_else(|| clock(text).map(|wall| Point::Clock(Since::Wall(wall))));
    known.ok_or_else(|| CliError::NoSuchWord {
        what: "point in a log",
        word: text.to_owned(),
        hint: "--since takes a mark (peerway faults --mark), a date and time such as \
               2026-11-30T08:48Z, seconds since boot such as 9200.5, or a span such as 15m"
            .to_owned(),
    })
}

fn as_mark(text: &str) -> Option<Point> {
    let (boot_id, sequence) = text.rsplit_once(SEPARATOR)?;
    let is_id =
        boot_id.len() == 36 && boot_id.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-');
    let sequence = sequence.parse().ok()?;
    is_id.then(|| Point::Mark { boot_id: boot_id.to_owned(), sequence })
}

/// `9200.5` as microseconds.
fn seconds(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(fraction) {
        return None;
    }
    let micros: String = fraction.chars().chain("000000".chars()).take(6).collect();
    whole.parse::<u64>().ok()?.checked_mul(1_000_000)?.checked_add(micros.parse().ok()?)
}

/// `15m`, `2h`, `1d`, `90s` as microseconds.
fn ago(text: &str) -> Option<u64> {
    let unit = match text.chars().last()? {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        _ => return None,
    };
    let count: u64 = text.get(..text.len() - 1)?.parse().ok()?;
    count.checked_mul(unit)?.checked_mul(1_000_000)
}

/// A date, with or without a time of day.
fn clock(text: &str) -> Option<WallClock> {
    let whole = match text.len() {
        10 => format!("{text}T00:00:00"),
        16 => format!("{text}:00"),
        17 if text.ends_with('Z') => format!("{}:00Z", text.get(..16)?),
        _ => text.to_owned(),
    };
    WallClock::try_from(whole).ok()
}

/// The number of the last record of a log in records of `/dev/kmsg`.
pub fn last_sequence(log: &[u8]) -> Option<u64> {
    log.rsplit(|byte| *byte == b'\n').find_map(sequence)
}

/// What comes after a record, in a log in records of `/dev/kmsg`.
pub fn after(log: &[u8], mark: u64) -> &[u8] {
    let mut rest = log;
    while !rest.is_empty() {
        let end = rest.iter().position(|byte| *byte == b'\n').map_or(rest.len(), |at| at + 1);
        let (line, tail) = rest.split_at_checked(end).unwrap_or((rest, &[]));
        if sequence(line).is_some_and(|sequence| sequence > mark) {
            return rest;
        }
        rest = tail;
    }
    rest
}

/// The number of the record that a line begins.
fn sequence(line: &[u8]) -> Option<u64> {
    let mut fields = line.split(|byte| *byte == b',');
    let priority = std::str::from_utf8(fields.next()?).ok()?;
    priority.parse::<u32>().ok()?;
    std::str::from_utf8(fields.next()?).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BOOT: &str = "5d1c2f0e-0000-4000-8000-00000000cafe";

    #[track_caller]
    fn check(text: &str, expected: impl Into<Option<Point>>) {
        assert_eq!(parse(text).ok(), expected.into(), "{text}");
    }

    #[test]
    fn points() {
        let token = mark(BOOT, 120);
        check(&token, Some(Point::Mark { boot_id: BOOT.to_owned(), sequence: 120 }));
        check("9200.5", Some(Point::Clock(Since::Monotonic(9_200_500_000))));
        check("@12", Some(Point::Clock(Since::Monotonic(12_000_000))));
        check("15m", Some(Point::Ago(900_000_000)));
        let wall = |text: &str| {
            Some(Point::Clock(Since::Wall(WallClock::try_from(text.to_owned()).unwrap())))
        };
        check("2026-11-30", wall("2026-11-30T00:00:00"));
        check("2026-11-30 08:48", wall("2026-11-30T08:48:00"));
        check("2026-11-30T08:48Z", wall("2026-11-30T08:48:00Z"));
        check("2026-11-30T08:48:39+01:00", wall("2026-11-30T08:48:39+01:00"));
        check("yesterday", None);
        check("", None);
    }

    #[test]
    fn records() {
        let log = b"6,7,1,-;a\n SUBSYSTEM=pci\n6,8,2,-;b\n6,9,3,-;c\n KEY=x\n";
        assert_eq!(last_sequence(log), Some(9));
        assert_eq!(after(log, 8), b"6,9,3,-;c\n KEY=x\n");
        assert_eq!(after(log, 9), b"");
        assert_eq!(after(log, 0), log);
        assert_eq!(last_sequence(b"no records\n"), None);
    }
}
