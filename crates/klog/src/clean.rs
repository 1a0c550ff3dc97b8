//! Undoing what transports do to the bytes of a message: colours and escapes.

use crate::text;

const ESCAPE: u8 = 0x1b;

/// Whether a line holds anything that [`clean`] would change.
#[inline]
pub(crate) fn needs_cleaning(line: &[u8]) -> bool {
    memchr::memchr3_iter(ESCAPE, b'\\', b'#', line).any(|at| {
        let rest = line.get(at..).unwrap_or_default();
        match rest {
            [ESCAPE, ..] => true,
            [b'\\', b'x', ..] => true,
            _ => rest.starts_with(b"#01") || rest.starts_with(b"#033"),
        }
    })
}

/// Copies a line without terminal colours, and with the escapes of `/dev/kmsg` (`\x09`) and of
/// rsyslog (`#011`) undone.
pub(crate) fn clean(line: &[u8], out: &mut Vec<u8>) {
    let mut rest = line;
    while let Some(at) = memchr::memchr3(ESCAPE, b'\\', b'#', rest) {
        let (head, tail) = rest.split_at_checked(at).unwrap_or((rest, &[]));
        out.extend_from_slice(head);
        rest = if let Some(after) = colour(tail).or_else(|| escaped(tail, out)) {
            after
        } else {
            out.extend(tail.first());
            tail.get(1..).unwrap_or_default()
        };
    }
    out.extend_from_slice(rest);
}

/// `ESC [ … letter`: nothing is printed for it. `#033[` is rsyslog's spelling of the same.
fn colour(input: &[u8]) -> Option<&[u8]> {
    let rest = input.strip_prefix(&[ESCAPE]).or_else(|| input.strip_prefix(b"#033"))?;
    let Some(rest) = rest.strip_prefix(b"[") else {
        return Some(rest);
    };
    let (parameters, rest) = text::until(rest, |byte| !matches!(byte, b'0'..=b'9' | b';' | b'?'));
    // A sequence that never ends is text.
    match rest.first() {
        Some(last) if last.is_ascii_alphabetic() && parameters.len() <= 32 => rest.get(1..),
        _ => Some(rest),
    }
}

/// One escaped byte.
fn escaped<'a>(input: &'a [u8], out: &mut Vec<u8>) -> Option<&'a [u8]> {
    if let Some(rest) = input.strip_prefix(b"\\x") {
        let (digits, rest) = rest.split_first_chunk::<2>()?;
        let (value, 2, _) = text::hex(digits)? else { return None };
        out.push(u8::try_from(value).ok()?);
        return Some(rest);
    }
    let (digits, rest) = input.strip_prefix(b"#")?.split_first_chunk::<3>()?;
    // Only control characters are written this way.
    match digits {
        b"011" => out.push(b'\t'),
        b"012" => out.push(b'\n'),
        b"015" => out.push(b'\r'),
        _ => return None,
    }
    Some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: &str) {
        let mut out = Vec::new();
        clean(line.as_bytes(), &mut out);
        assert_eq!(String::from_utf8_lossy(&out), expected);
        assert_eq!(needs_cleaning(line.as_bytes()), line != expected, "{line:?}");
    }

    #[test]
    fn colours_and_escapes_go() {
        check("\u{1b}[32m[    1.000000] \u{1b}[0mx", "[    1.000000] x");
        check("a \u{1b}[01;31m\u{1b}[KAMD-Vi\u{1b}[m\u{1b}[K: b", "a AMD-Vi: b");
        check("3,1,2,-;unit: \\x090x01", "3,1,2,-;unit: \t0x01");
        check("unit: #0110x01#012next", "unit: \t0x01\nnext");
        check("build #48-Ubuntu #1 \\o/", "build #48-Ubuntu #1 \\o/");
    }
}
