//! Records of JSON: `journalctl -o json`, `dmesg --json`, logs of containers. Read without building
//! a tree, whole or cut, since a log is not always a document.

use crate::stamp::{self, Stamp};
use crate::{clean, text};

/// The text of a JSON string from its raw form, without the quotes.
fn unescape(raw: &[u8], out: &mut Vec<u8>) {
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
fn bytes(raw: &[u8], out: &mut Vec<u8>) {
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
pub(crate) fn walk<'a>(line: &'a [u8], mut on: impl FnMut(Token<'a>)) {
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
                        let end = memchr::memchr(b']', tail).unwrap_or(tail.len());
                        let (numbers, after) = tail.split_at_checked(end).unwrap_or((tail, &[]));
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

/// The message of a JSON record as plain text.
pub(crate) fn decode(value: Value<'_>, out: &mut Vec<u8>) {
    out.clear();
    let mut raw = Vec::new();
    match value {
        Value::Text(text) => unescape(text, &mut raw),
        Value::Numbers(numbers) => bytes(numbers, &mut raw),
        Value::Bare(_) => {}
    }
    clean::clean(&raw, out);
}

/// Takes a time out of a JSON record.
pub(crate) fn time(key: &[u8], value: Value<'_>, stamp: &mut Stamp) {
    let (Value::Text(raw) | Value::Bare(raw)) = value else { return };
    match key {
        b"time" | b"timestamp" | b"ts" | b"@timestamp" => {
            if let Some((us, [])) = stamp::seconds(raw) {
                stamp.monotonic_us = Some(us);
            } else if let Some((clock, _)) = stamp::iso(raw) {
                stamp.wall = Some(clock);
            }
        }
        b"_SOURCE_MONOTONIC_TIMESTAMP" => {
            stamp.monotonic_us = text::decimal(raw).map(|(us, ..)| us);
        }
        b"__MONOTONIC_TIMESTAMP" if stamp.monotonic_us.is_none() => {
            stamp.monotonic_us = text::decimal(raw).map(|(us, ..)| us);
        }
        b"__REALTIME_TIMESTAMP" => {
            if let Some((us, ..)) = text::decimal(raw)
                && let Ok(part) = u32::try_from(us % 1_000_000)
            {
                stamp.wall = stamp::from_unix(us / 1_000_000, part);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_walked_whole_or_not() {
        let mut seen = Vec::new();
        let line = br#"{"a":1,"MESSAGE":"x \"y\" z","n":[1,2],"o":{"b":"c"}} {"cut":"off"#;
        walk(line, |token| {
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
        unescape(br"a\tb\n\u0041\\\/ \ud83d", &mut out);
        assert_eq!(out, b"a\tb\nA\\/ ?");
        out.clear();
        bytes(b"27, 91,65", &mut out);
        assert_eq!(out, b"\x1b[A");
    }
}
