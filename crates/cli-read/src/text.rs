//! Text for people: wrapping to the width of a screen, words with their colours.

use peerway_core::diagnose::finding::{Finding, Severity};
use peerway_core::judge::{Basis, Confidence, Verdict};

/// Width of the answer: every screen has it, also a serial console at three in the morning.
pub const WIDTH: usize = 80;

/// Most evidence lines that a summary shows; `diagnose` shows all.
const FEW: usize = 4;

/// Columns that a text takes, without its colours.
pub fn columns(text: &str) -> usize {
    let mut columns = 0;
    let mut escape = false;
    for character in text.chars() {
        match character {
            '\u{1b}' => escape = true,
            'm' if escape => escape = false,
            _ if escape => {}
            _ => columns += 1,
        }
    }
    columns
}

/// Breaks a text into lines of at most [`WIDTH`] columns; the first begins with `first`, further
/// ones with `rest`. Words longer than a line stay whole: a path is worth more than a margin.
pub fn wrap(text: &str, first: &str, rest: &str) -> String {
    let mut out = String::from(first);
    let mut at = columns(first);
    let mut fresh = true;
    for word in text.split_whitespace() {
        let width = columns(word);
        if !fresh && at + 1 + width > WIDTH {
            out.push('\n');
            out.push_str(rest);
            at = columns(rest);
            fresh = true;
        }
        if !fresh {
            out.push(' ');
            at += 1;
        }
        out.push_str(word);
        at += width;
        fresh = false;
    }
    out.push('\n');
    out
}

/// Adds a text that was just made.
pub fn add(out: &mut String, text: &str) {
    out.push_str(text);
}

const RED: &str = "\u{1b}[31m";
const GREEN: &str = "\u{1b}[32m";
const YELLOW: &str = "\u{1b}[33m";
const BOLD: &str = "\u{1b}[1m";
const PLAIN: &str = "\u{1b}[0m";

/// A heading.
pub fn bold(text: &str) -> String {
    format!("{BOLD}{text}{PLAIN}")
}

/// A verdict as one letter, for matrices.
pub fn letter(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Works => "W",
        Verdict::Broken => "B",
        Verdict::Impaired => "I",
        Verdict::Unknown => "?",
    }
}

/// Colour of a verdict, around a text that says it too.
pub fn painted(verdict: Verdict, text: &str) -> String {
    let colour = match verdict {
        Verdict::Works => GREEN,
        Verdict::Broken => RED,
        Verdict::Impaired | Verdict::Unknown => YELLOW,
    };
    format!("{colour}{text}{PLAIN}")
}

/// A verdict as a word.
pub fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Works => "works",
        Verdict::Broken => "broken",
        Verdict::Impaired => "impaired",
        Verdict::Unknown => "unknown",
    }
}

/// A confidence as a word.
pub fn confidence(confidence: Confidence) -> &'static str {
    match confidence {
        Confidence::Certain => "certain",
        Confidence::Probable => "probable",
        Confidence::Possible => "possible",
    }
}

/// What a verdict rests on, as a word.
pub fn basis(basis: Basis) -> &'static str {
    match basis {
        Basis::Measured => "measured",
        Basis::Predicted => "predicted",
    }
}

/// A severity as a word, coloured.
pub fn severity(severity: Severity) -> String {
    match severity {
        Severity::Error => format!("{RED}error{PLAIN}"),
        Severity::Warning => format!("{YELLOW}warning{PLAIN}"),
        Severity::Info => "info".to_owned(),
    }
}

/// A finding with its evidence; in full, or what fits a summary.
pub fn finding(finding: &Finding, in_full: bool) -> String {
    let head = format!(
        "{} {} ({}) ",
        finding.code,
        severity(finding.severity),
        confidence(finding.confidence)
    );
    let mut out = wrap(&finding.title, &head, "       ");
    if in_full && !finding.subjects.is_empty() {
        out.push_str(&wrap(&finding.subjects.join(" "), "       about ", "             "));
    }
    let shown = if in_full { finding.evidence.len() } else { FEW };
    for evidence in finding.evidence.iter().take(shown) {
        let text = format!("{} = {}", evidence.source, evidence.value);
        out.push_str(&wrap(&text, "       seen ", "            "));
    }
    let left = finding.evidence.len().saturating_sub(shown);
    if left > 0 {
        out.push_str(&wrap(
            &format!("and {left} more (peerway diagnose)"),
            "            ",
            "            ",
        ));
    }
    if in_full {
        for remedy in &finding.remedies {
            out.push_str(&wrap(remedy, "       do   ", "            "));
        }
    }
    out
}

/// A finding in one line or two.
pub fn finding_title(finding: &Finding) -> String {
    let head = format!("{} {} ", finding.code, severity(finding.severity));
    wrap(&finding.title, &head, "       ")
}

/// The word that a value of a closed list has in documents.
pub fn word(value: impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(serde_json::Value::String(word)) => word,
        Ok(other) => other.to_string(),
        Err(_) => "unknown".to_owned(),
    }
}

/// A number with separators, as people read large ones.
pub fn grouped(number: u64) -> String {
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

/// Bytes in the unit that people use for it.
pub fn bytes(count: u64) -> String {
    const UNITS: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
    for (unit, shift) in UNITS {
        let one = 1_u64 << shift;
        if count >= one {
            let whole = count >> shift;
            return if count & (one - 1) == 0 {
                format!("{whole} {unit}")
            } else {
                format!("{whole}.{} {unit}", (count & (one - 1)).saturating_mul(10) >> shift)
            };
        }
    }
    format!("{count} B")
}

/// Decimal gigabytes per second, the field's unit for links.
pub fn rate(bytes_per_second: u64) -> String {
    let tenths = bytes_per_second / 100_000_000;
    format!("{}.{} GB/s", tenths / 10, tenths % 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_fit() {
        let text = wrap(&"word ".repeat(60), "first: ", "  ");
        assert!(text.lines().all(|line| columns(line) <= WIDTH));
        assert_eq!(text.split_whitespace().count(), 61);
        assert_eq!(columns(&painted(Verdict::Broken, "broken")), 6);
    }

    #[test]
    fn units() {
        assert_eq!(bytes(128 << 30), "128 GiB");
        assert_eq!(bytes(96 << 20), "96 MiB");
        assert_eq!(bytes((3 << 30) / 2), "1.5 GiB");
        assert_eq!(bytes(12), "12 B");
        assert_eq!(rate(63_015_384_615), "63.0 GB/s");
    }
}
