//! Undoing what transports do to the bytes of a message: colours, escapes, JSON.

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
        rest = match colour(tail).or_else(|| escaped(tail, out)) {
            Some(after) => after,
            None => {
                out.extend(tail.first());
                tail.get(1..).unwrap_or_default()
            }
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

/// The text of a JSON string from its raw form, without the quotes.
pub(crate) fn json_text(raw: &[u8], out: &mut Vec<u8>) {
    let mut rest = raw;
    while let Some(at) = memchr::memchr(b'\\', rest) {
        let (head, tail) = rest.split_at_checked(at).unwrap_or((rest, &[]));
        out.extend_from_slice(head);
        rest = match tail {
            [_, b'n', after @ ..] => push(out, b'\n', after),
            [_, b't', after @ ..] => push(out, b'\t', after),
            [_, b'r', after @ ..] => push(out, b'\r', after),
            [_, b'u', after @ ..] => match unicode(after, out) {
                Some(after) => after,
                None => after,
            },
            [_, other, after @ ..] => push(out, *other, after),
            _ => &[],
        };
    }
    out.extend_from_slice(rest);
}

fn push<'a>(out: &mut Vec<u8>, byte: u8, rest: &'a [u8]) -> &'a [u8] {
    out.push(byte);
    rest
}

/// Four hexadecimal digits as a character; halves of pairs become a question mark.
fn unicode<'a>(input: &'a [u8], out: &mut Vec<u8>) -> Option<&'a [u8]> {
    let (digits, rest) = input.split_first_chunk::<4>()?;
    let (value, 4, _) = text::hex(digits)? else { return None };
    let character = u32::try_from(value).ok().and_then(char::from_u32).unwrap_or('?');
    let mut buffer = [0; 4];
    out.extend_from_slice(character.encode_utf8(&mut buffer).as_bytes());
    Some(rest)
}

/// The bytes of a message that the journal printed as an array of numbers, up to `]`.
pub(crate) fn json_bytes(raw: &[u8], out: &mut Vec<u8>) {
    for number in raw.split(|byte| *byte == b',') {
        let number = text::trim_end(text::trim_start(number));
        if let Some((value, _, [])) = text::decimal(number)
            && let Ok(byte) = u8::try_from(value)
        {
            out.push(byte);
        }
    }
}

/// A value in a JSON object, raw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Value<'a> {
    /// A string, without its quotes; perhaps without its end.
    Text(&'a [u8]),
    /// An array of numbers, without its brackets.
    Numbers(&'a [u8]),
    /// A number or a word.
    Bare(&'a [u8]),
}

/// What a walk over a JSON line meets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token<'a> {
    /// A key and its value.
    Pair(&'a [u8], Value<'a>),
    /// The end of an object.
    End,
}

/// Walks over the keys of a line of JSON, at any depth, whole or not.
pub(crate) fn walk_json<'a>(line: &'a [u8], mut on: impl FnMut(Token<'a>)) {
    let mut rest = line;
    while let Some((first, tail)) = rest.split_first() {
        match first {
            b'"' => {
                let (key, after) = string(tail);
                let after = text::trim_start(after);
                let Some(value) = after.strip_prefix(b":") else {
                    rest = after;
                    continue;
                };
                let value = text::trim_start(value);
                let (value, after) = match value.split_first() {
                    Some((b'"', tail)) => {
                        let (text, after) = string(tail);
                        (Value::Text(text), after)
                    }
                    Some((b'[', tail)) if tail.first().is_some_and(u8::is_ascii_digit) => {
                        let (numbers, after) = text::until(tail, |byte| byte == b']');
                        (Value::Numbers(numbers), after)
                    }
                    Some((b'{' | b'[', _)) => {
                        rest = value;
                        continue;
                    }
                    _ => {
                        let stop = |byte| matches!(byte, b',' | b'}' | b']' | b' ');
                        let (bare, after) = text::until(value, stop);
                        (Value::Bare(bare), after)
                    }
                };
                on(Token::Pair(key, value));
                rest = after;
            }
            b'}' => {
                on(Token::End);
                rest = tail;
            }
            _ => rest = tail,
        }
    }
}

/// A string up to its closing quote, and what follows that.
fn string(input: &[u8]) -> (&[u8], &[u8]) {
    let mut from = 0;
    while let Some(rest) = input.get(from..)
        && let Some(at) = memchr::memchr2(b'"', b'\\', rest)
    {
        if rest.get(at) == Some(&b'"') {
            let text = input.get(..from + at).unwrap_or_default();
            return (text, rest.get(at + 1..).unwrap_or_default());
        }
        from += at + 2;
    }
    (input, &[])
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

    #[test]
    fn json_is_walked_whole_or_not() {
        let mut seen = Vec::new();
        let line = br#"{"a":1,"MESSAGE":"x \"y\" z","n":[1,2],"o":{"b":"c"}} {"cut":"off"#;
        walk_json(line, |token| {
            seen.push(match token {
                Token::Pair(key, value) => {
                    let (Value::Text(raw) | Value::Numbers(raw) | Value::Bare(raw)) = value;
                    format!("{}={}", String::from_utf8_lossy(key), String::from_utf8_lossy(raw))
                }
                Token::End => "end".to_owned(),
            });
        });
        let expected = ["a=1", "MESSAGE=x \\\"y\\\" z", "n=1,2", "b=c", "end", "end", "cut=off"];
        assert_eq!(seen, expected);
    }

    #[test]
    fn json_texts_are_unescaped() {
        let mut out = Vec::new();
        json_text(br"a\tb\n\u0041\\\/ \ud83d", &mut out);
        assert_eq!(out, b"a\tb\nA\\/ ?");
        out.clear();
        json_bytes(b"27, 91,65", &mut out);
        assert_eq!(out, b"\x1b[A");
    }
}
