//! Time stamps as logs carry them: since boot, by the wall clock, both, or none.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize, Serializer};

use crate::text;

const MONTHS: [&[u8; 3]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];
const WEEKDAYS: [&[u8; 3]; 7] = [b"Mon", b"Tue", b"Wed", b"Thu", b"Fri", b"Sat", b"Sun"];

/// When a line was logged, as far as the line says so. A line may carry both clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Stamp {
    /// Microseconds since boot (`dmesg`, `/dev/kmsg`, the journal's monotonic clock).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub monotonic_us: Option<u64>,
    /// Wall clock, as written: no time zone is applied and no year is guessed.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub wall: Option<WallClock>,
    /// Microseconds since the line before, where that is all there is (`dmesg -H`, `--reltime`).
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub since_previous_us: Option<u64>,
}

impl Stamp {
    /// Whether the line carried no time at all.
    pub const fn is_none(self) -> bool {
        self.monotonic_us.is_none() && self.wall.is_none() && self.since_previous_us.is_none()
    }
}

impl fmt::Display for Stamp {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self { wall: Some(wall), .. } => fmt::Display::fmt(wall, out),
            Self { monotonic_us: Some(us), .. } => {
                out.pad(&format!("{}.{:06}", us / 1_000_000, us % 1_000_000))
            }
            Self { since_previous_us: Some(us), .. } => {
                out.pad(&format!("+{}.{:06}", us / 1_000_000, us % 1_000_000))
            }
            Self { monotonic_us: None, wall: None, since_previous_us: None } => out.pad("-"),
        }
    }
}

/// Date and time of day as written in a log. Traditional syslog writes no year.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(try_from = "String")]
#[schemars(with = "String")]
pub struct WallClock {
    /// Year, where the format has one.
    pub year: Option<u16>,
    /// Month, 1 to 12.
    pub month: u8,
    /// Day of the month, 1 to 31.
    pub day: u8,
    /// Hour, 0 to 23.
    pub hour: u8,
    /// Minute, 0 to 59.
    pub minute: u8,
    /// Second, 0 to 60.
    pub second: u8,
    /// Microsecond, 0 where the format has no fraction.
    pub microsecond: u32,
    /// Offset from UTC in minutes, where the format says it.
    pub offset_minutes: Option<i16>,
}

impl WallClock {
    /// Seconds since some fixed day, for differences within one log. Without a year, one without
    /// a leap day is assumed, and the turn of the year is not seen.
    pub(crate) fn seconds_of_era(&self) -> i64 {
        // Days from the civil date, in years that begin with March (Howard Hinnant's algorithm).
        let month = i64::from(self.month);
        let year = i64::from(self.year.unwrap_or(2_001)) - i64::from(month <= 2);
        let shifted_month = (month + 9) % 12;
        let day_of_year = (153 * shifted_month + 2) / 5 + i64::from(self.day) - 1;
        let days = year * 365 + year / 4 - year / 100 + year / 400 + day_of_year;
        let minutes = (days * 24 + i64::from(self.hour)) * 60 + i64::from(self.minute);
        minutes * 60 + i64::from(self.second)
    }
}

impl fmt::Display for WallClock {
    /// RFC 3339 where a year is known, else the syslog form (`Nov 01 16:52:04`).
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { month, day, hour, minute, second, microsecond, .. } = self;
        let date = if let Some(year) = self.year {
            format!("{year:04}-{month:02}-{day:02}T")
        } else {
            let name = MONTHS.get(usize::from(month.saturating_sub(1))).copied();
            let name = name.and_then(|name| std::str::from_utf8(name).ok()).unwrap_or("???");
            format!("{name} {day:02} ")
        };
        let fraction = if *microsecond > 0 { format!(".{microsecond:06}") } else { String::new() };
        let offset = match self.offset_minutes {
            None => String::new(),
            Some(0) => "Z".to_owned(),
            Some(offset) => {
                let sign = if offset < 0 { '-' } else { '+' };
                let offset = offset.unsigned_abs();
                format!("{sign}{:02}:{:02}", offset / 60, offset % 60)
            }
        };
        out.pad(&format!("{date}{hour:02}:{minute:02}:{second:02}{fraction}{offset}"))
    }
}

impl Serialize for WallClock {
    fn serialize<S: Serializer>(&self, out: S) -> Result<S::Ok, S::Error> {
        out.collect_str(self)
    }
}

impl TryFrom<String> for WallClock {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        let bytes = text.as_bytes();
        match iso(bytes).or_else(|| syslog(bytes)) {
            Some((clock, [])) => Ok(clock),
            _ => Err(format!("{text:?} is not a date and time of day")),
        }
    }
}

/// `12:34:56` with an optional fraction after `.` or `,`.
fn time_of_day(input: &[u8], clock: WallClock) -> Option<(WallClock, &[u8])> {
    let (hour, rest) = text::digits(input, 2)?;
    let (minute, rest) = text::digits(rest.strip_prefix(b":")?, 2)?;
    let (second, rest) = text::digits(rest.strip_prefix(b":")?, 2)?;
    if hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    let (microsecond, rest) = match rest {
        [b'.' | b',', tail @ ..] => fraction(tail)?,
        _ => (0, rest),
    };
    let clock = WallClock {
        hour: u8::try_from(hour).ok()?,
        minute: u8::try_from(minute).ok()?,
        second: u8::try_from(second).ok()?,
        microsecond,
        ..clock
    };
    Some((clock, rest))
}

/// Digits after a decimal point, as microseconds.
pub(crate) fn fraction(input: &[u8]) -> Option<(u32, &[u8])> {
    let (digits, rest) = text::until(input, |byte| !byte.is_ascii_digit());
    if digits.is_empty() || digits.len() > 9 {
        return None;
    }
    let mut microseconds = 0_u32;
    for place in 0..6 {
        let digit = digits.get(place).map_or(0, |byte| byte - b'0');
        microseconds = microseconds * 10 + u32::from(digit);
    }
    Some((microseconds, rest))
}

fn date(year: Option<u16>, month: u64, day: u64) -> Option<WallClock> {
    if !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    Some(WallClock {
        year,
        month: u8::try_from(month).ok()?,
        day: u8::try_from(day).ok()?,
        hour: 0,
        minute: 0,
        second: 0,
        microsecond: 0,
        offset_minutes: None,
    })
}

/// `2026-08-16T09:49:06.440253-05:00`, also with a space for the `T`, a comma for the point, and
/// offsets as `Z`, `+0000` or not at all.
pub(crate) fn iso(input: &[u8]) -> Option<(WallClock, &[u8])> {
    let (year, rest) = text::digits(input, 4)?;
    let (month, rest) = text::digits(rest.strip_prefix(b"-")?, 2)?;
    let (day, rest) = text::digits(rest.strip_prefix(b"-")?, 2)?;
    let [b'T' | b' ', rest @ ..] = rest else { return None };
    let (clock, rest) = time_of_day(rest, date(Some(u16::try_from(year).ok()?), month, day)?)?;
    let (offset_minutes, rest) = offset(rest);
    Some((WallClock { offset_minutes, ..clock }, rest))
}

/// An offset from UTC in minutes, if one follows.
fn offset(input: &[u8]) -> (Option<i16>, &[u8]) {
    let read = || {
        let (sign, rest) = match input {
            [b'Z', rest @ ..] => return Some((0, rest)),
            [b'+', rest @ ..] => (1, rest),
            [b'-', rest @ ..] => (-1, rest),
            _ => return None,
        };
        let (hours, minutes, rest) = match text::decimal(rest)? {
            (value, 4, rest) => (value / 100, value % 100, rest),
            (hours, 2, rest) => {
                let (minutes, rest) = text::digits(rest.strip_prefix(b":")?, 2)?;
                (hours, minutes, rest)
            }
            _ => return None,
        };
        let minutes = i16::try_from(hours.checked_mul(60)?.checked_add(minutes)?).ok()?;
        Some((sign * minutes, rest))
    };
    match read() {
        Some((minutes, rest)) => (Some(minutes), rest),
        None => (None, input),
    }
}

fn month(input: &[u8]) -> Option<(u64, &[u8])> {
    let (name, rest) = input.split_first_chunk::<3>()?;
    let index = MONTHS.iter().position(|month| *month == name)?;
    Some((u64::try_from(index).ok()? + 1, rest))
}

/// `Nov 01 16:52:04`, with a space or a zero before a one-digit day, also with a fraction.
pub(crate) fn syslog(input: &[u8]) -> Option<(WallClock, &[u8])> {
    let (month, rest) = month(input)?;
    let (day, _, rest) = text::decimal(text::trim_start(rest.strip_prefix(b" ")?))?;
    time_of_day(rest.strip_prefix(b" ")?, date(None, month, day)?)
}

/// `Fri Jul 19 17:05:08 2019` (`ctime`: `dmesg -T`, `OpenWrt`'s `logread`), or the journal's
/// `Fri 2019-07-19 17:05:08 UTC`.
pub(crate) fn weekday_form(input: &[u8]) -> Option<(WallClock, &[u8])> {
    let (name, rest) = input.split_first_chunk::<3>()?;
    if !WEEKDAYS.contains(&name) {
        return None;
    }
    let rest = rest.strip_prefix(b" ")?;
    if rest.first().is_some_and(u8::is_ascii_digit) {
        let (clock, rest) = iso(rest)?;
        // The zone's name says no offset that could be trusted, except UTC.
        let (zone, after) =
            text::until(rest.strip_prefix(b" ").unwrap_or(rest), |byte| byte == b' ');
        return match zone {
            b"UTC" | b"GMT" => Some((WallClock { offset_minutes: Some(0), ..clock }, after)),
            _ if !zone.is_empty() && zone.iter().all(u8::is_ascii_uppercase) => {
                Some((clock, after))
            }
            _ => Some((clock, rest)),
        };
    }
    let (clock, rest) = syslog(rest)?;
    let (year, rest) = text::digits(rest.strip_prefix(b" ")?, 4)?;
    Some((WallClock { year: Some(u16::try_from(year).ok()?), ..clock }, rest))
}

/// `Jul19 17:05`, the head line of `dmesg -H`.
pub(crate) fn human_form(input: &[u8]) -> Option<(WallClock, &[u8])> {
    let (month, rest) = month(input)?;
    let (day, rest) = text::digits(rest, 2)?;
    let (hour, rest) = text::digits(rest.strip_prefix(b" ")?, 2)?;
    let (minute, rest) = text::digits(rest.strip_prefix(b":")?, 2)?;
    let clock = date(None, month, day)?;
    if hour > 23 || minute > 59 {
        return None;
    }
    let clock =
        WallClock { hour: u8::try_from(hour).ok()?, minute: u8::try_from(minute).ok()?, ..clock };
    Some((clock, rest))
}

/// Seconds and microseconds since boot, `12.345678`, as microseconds.
pub(crate) fn seconds(input: &[u8]) -> Option<(u64, &[u8])> {
    let (seconds, _, rest) = text::decimal(input)?;
    let (microseconds, rest) = fraction(rest.strip_prefix(b".")?)?;
    Some((seconds.checked_mul(1_000_000)?.checked_add(u64::from(microseconds))?, rest))
}

/// A count of seconds since 1970 as a date and time in UTC; `None` past the year 9999.
pub(crate) fn from_unix(seconds: u64, microsecond: u32) -> Option<WallClock> {
    let days = seconds / 86_400;
    let of_day = seconds % 86_400;
    // Civil date from days since 1970-01-01: Howard Hinnant's algorithm, in eras of 400 years.
    let shifted = days.checked_add(719_468)?;
    let era = shifted / 146_097;
    let day_of_era = shifted % 146_097;
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
    let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    if year > 9_999 {
        return None;
    }
    Some(WallClock {
        hour: u8::try_from(of_day / 3_600).ok()?,
        minute: u8::try_from(of_day / 60 % 60).ok()?,
        second: u8::try_from(of_day % 60).ok()?,
        microsecond,
        offset_minutes: Some(0),
        ..date(Some(u16::try_from(year).ok()?), month, day)?
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    type Reader = fn(&[u8]) -> Option<(WallClock, &[u8])>;

    #[track_caller]
    fn check(read: Reader, input: &str, expected: &str) {
        let seen = match read(input.as_bytes()) {
            Some((clock, rest)) => format!("{clock}|{}", String::from_utf8_lossy(rest)),
            None => "none".to_owned(),
        };
        assert_eq!(seen, expected, "{input}");
    }

    #[test]
    fn clocks_are_read_as_written() {
        check(iso, "2026-08-16T09:49:06.440253-05:00 h", "2026-08-16T09:49:06.440253-05:00| h");
        check(iso, "2026-11-30T08:48:39,554114+00:00", "2026-11-30T08:48:39.554114Z|");
        check(iso, "2026-11-30 08:48:39.5 kernel:", "2026-11-30T08:48:39.500000| kernel:");
        check(iso, "2019-07-19T17:05:08+0230 h", "2019-07-19T17:05:08+02:30| h");
        check(iso, "2019-07-19T25:05:08Z", "none");
        check(syslog, "Nov  1 16:52:04 host", "Nov 01 16:52:04| host");
        check(syslog, "Nov 01 16:52:04.123456 host", "Nov 01 16:52:04.123456| host");
        check(syslog, "Now 01 16:52:04", "none");
        check(weekday_form, "Fri Jul 19 17:05:08 2019] x", "2019-07-19T17:05:08|] x");
        check(weekday_form, "Fri 2019-07-19 17:05:08 UTC h", "2019-07-19T17:05:08Z| h");
        check(weekday_form, "Fri 2019-07-19 17:05:08 CEST h", "2019-07-19T17:05:08| h");
        check(human_form, "Jul19 17:05] x", "Jul 19 17:05:00|] x");
    }

    #[test]
    fn seconds_since_1970_become_dates() {
        let read = |seconds| from_unix(seconds, 0).map(|clock| clock.to_string());
        assert_eq!(read(0).as_deref(), Some("1970-01-01T00:00:00Z"));
        assert_eq!(read(951_826_332).as_deref(), Some("2000-02-29T12:12:12Z"));
        assert_eq!(read(1_796_028_519).as_deref(), Some("2026-11-30T08:48:39Z"));
        assert_eq!(read(u64::MAX), None);
    }

    #[test]
    fn stamps_survive_json() {
        let wall = iso(b"2026-08-16T09:49:06.440253-05:00").map(|(clock, _)| clock);
        let stamp = Stamp { wall, monotonic_us: Some(12), since_previous_us: None };
        let text = serde_json::to_string(&stamp).unwrap();
        assert_eq!(text, r#"{"monotonic_us":12,"wall":"2026-08-16T09:49:06.440253-05:00"}"#);
        assert_eq!(serde_json::from_str::<Stamp>(&text).unwrap(), stamp);
        serde_json::from_str::<Stamp>(r#"{"wall":"soon"}"#).unwrap_err();
    }
}
