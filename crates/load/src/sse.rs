//! Server-sent events out of bytes that arrive in any pieces (WHATWG HTML, section 9.2).
//!
//! Every character of `data:` is looked at once, by a vector search for the end of the line, and an
//! event that lies in one piece is handed on where it lies. Only what a piece leaves unfinished is
//! copied.

use memchr::memchr2;

/// Longest line, and longest event, that is kept: beyond it a stream is no stream of tokens.
pub const LONGEST: usize = 8 << 20;

/// What a stream says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event<'a> {
    /// The data of an event, its lines joined by line feeds.
    Data(&'a [u8]),
    /// A comment: a sign of life, no token.
    Comment,
    /// A line that is no field of an event. Some servers write an error in this way.
    Stray(&'a [u8]),
}

/// A line or an event is longer than [`LONGEST`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an event of the stream is longer than {} MiB", LONGEST >> 20)]
pub struct TooLong;

/// The state between two pieces.
#[derive(Debug, Default)]
pub struct Splitter {
    /// A line whose end has not come.
    line: Vec<u8>,
    /// Lines of data of an event whose end has not come.
    data: Vec<u8>,
    has_data: bool,
    /// The last line ended with a carriage return, so that a line feed now belongs to it.
    after_return: bool,
    begun: bool,
}

impl Splitter {
    /// Forgets everything, and keeps its memory.
    pub fn reset(&mut self) {
        self.line.clear();
        self.data.clear();
        self.has_data = false;
        self.after_return = false;
        self.begun = false;
    }

    /// Takes the next piece and hands on every event that ends in it.
    ///
    /// # Errors
    /// An event without end.
    pub fn feed(
        &mut self,
        mut piece: &[u8],
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<(), TooLong> {
        while let [first, rest @ ..] = piece {
            if std::mem::take(&mut self.after_return) && *first == b'\n' {
                piece = rest;
                continue;
            }
            let Some(end) = memchr2(b'\n', b'\r', piece) else {
                if self.line.len() + piece.len() > LONGEST {
                    return Err(TooLong);
                }
                self.line.extend_from_slice(piece);
                return Ok(());
            };
            let (line, rest) = piece.split_at(end);
            let (ending, rest) = rest.split_at(1);
            piece = rest;
            self.after_return = ending == b"\r";
            if self.line.is_empty() {
                piece = self.whole_line(line, piece, sink)?;
            } else {
                let mut whole = std::mem::take(&mut self.line);
                whole.extend_from_slice(line);
                let taken = self.line_of(&whole, sink);
                whole.clear();
                self.line = whole;
                taken?;
            }
        }
        Ok(())
    }

    /// The stream has ended: whether it did so within an event. Data whose last line was ended is
    /// handed on, though the blank line is missing.
    pub fn finish(&mut self, sink: &mut impl FnMut(Event<'_>)) -> bool {
        let cut = !self.line.is_empty();
        if !cut {
            self.dispatch(sink);
        }
        self.reset();
        cut
    }

    /// A line that lies in one piece. Where the blank line after it does, too, its data is handed on
    /// without a copy; returns what is left of the piece.
    fn whole_line<'p>(
        &mut self,
        line: &[u8],
        rest: &'p [u8],
        sink: &mut impl FnMut(Event<'_>),
    ) -> Result<&'p [u8], TooLong> {
        if self.begun && !self.has_data && !self.after_return {
            let data = line.strip_prefix(b"data:");
            if let (Some(data), [b'\n', rest @ ..]) = (data, rest) {
                sink(Event::Data(data.strip_prefix(b" ").unwrap_or(data)));
                return Ok(rest);
            }
        }
        self.line_of(line, sink)?;
        Ok(rest)
    }

    fn line_of(&mut self, line: &[u8], sink: &mut impl FnMut(Event<'_>)) -> Result<(), TooLong> {
        let line = if std::mem::replace(&mut self.begun, true) {
            line
        } else {
            // The byte order mark, which only the first line may begin with.
            line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line)
        };
        if line.is_empty() {
            self.dispatch(sink);
        } else if let Some(data) = field(line, b"data") {
            if self.data.len() + data.len() >= LONGEST {
                return Err(TooLong);
            }
            if self.has_data {
                self.data.push(b'\n');
            }
            self.data.extend_from_slice(data);
            self.has_data = true;
        } else if line.starts_with(b":") {
            sink(Event::Comment);
        } else if !known(line) {
            sink(Event::Stray(line));
        }
        Ok(())
    }

    fn dispatch(&mut self, sink: &mut impl FnMut(Event<'_>)) {
        if std::mem::take(&mut self.has_data) {
            sink(Event::Data(&self.data));
            self.data.clear();
        }
    }
}

/// The value of a field of this name.
fn field<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let rest = line.strip_prefix(name)?;
    if rest.is_empty() {
        return Some(rest);
    }
    let value = rest.strip_prefix(b":")?;
    Some(value.strip_prefix(b" ").unwrap_or(value))
}

/// Fields of an event that say nothing about tokens, and blanks.
fn known(line: &[u8]) -> bool {
    [b"event".as_slice(), b"id", b"retry"].iter().any(|name| field(line, name).is_some())
        || line.iter().all(u8::is_ascii_whitespace)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn events(pieces: &[&[u8]]) -> (Vec<String>, bool) {
        let mut splitter = Splitter::default();
        let mut seen = Vec::new();
        let mut sink = |event: Event<'_>| {
            seen.push(match event {
                Event::Data(data) => format!("data {}", data.escape_ascii()),
                Event::Comment => "comment".to_owned(),
                Event::Stray(line) => format!("stray {}", line.escape_ascii()),
            });
        };
        for piece in pieces {
            splitter.feed(piece, &mut sink).unwrap();
        }
        let cut = splitter.finish(&mut sink);
        (seen, cut)
    }

    #[track_caller]
    fn check(stream: &str, expected: &[&str], cut: bool) {
        let (seen, was_cut) = events(&[stream.as_bytes()]);
        assert_eq!(seen, expected);
        assert_eq!(was_cut, cut);
        let bytes: Vec<&[u8]> = stream.as_bytes().chunks(1).collect();
        assert_eq!(events(&bytes), (seen, was_cut), "byte by byte");
    }

    #[test]
    fn events_of_every_shape() {
        check("data: a\n\ndata: b\n\n", &["data a", "data b"], false);
        check("data:a\r\n\r\ndata: b\r\rdata:  c\n\n", &["data a", "data b", "data  c"], false);
        check("\u{feff}data: a\n\n", &["data a"], false);
        check(": ping\n\ndata: a\n:\ndata: b\n\n", &["comment", "comment", "data a\\nb"], false);
        check("event: message\nid: 3\nretry: 5\ndata: a\n\n", &["data a"], false);
        check("data\n\ndata:\n\n", &["data ", "data "], false);
        check("data: a \n \n\n", &["data a "], false);
        check("{\"error\":1}\n\n", &["stray {\\\"error\\\":1}"], false);
        check("database: x\n\n", &["stray database: x"], false);
        check("data: a\n", &["data a"], false);
        check("data: a\n\ndata: [DO", &["data a"], true);
        check("", &[], false);
    }

    #[test]
    fn a_line_without_end_is_an_error() {
        let mut splitter = Splitter::default();
        let piece = vec![b'x'; 1 << 20];
        let mut fed = 0;
        while splitter.feed(&piece, &mut |_| ()).is_ok() {
            fed += piece.len();
            assert!(fed <= LONGEST, "kept without end");
        }
        assert!(fed + piece.len() > LONGEST);
    }

    proptest! {
        #[test]
        fn split_anywhere_the_events_are_the_same(
            lines in prop::collection::vec("(data: ?[a-zäö€\u{1f600} ]{0,9}|:[a-z]{0,3}|event: x|\\{x\\}|)", 0..20),
            ends in prop::collection::vec("\n|\r\n|\r", 20),
            cuts in prop::collection::vec(0_usize..400, 0..30),
        ) {
            let stream: String =
                lines.iter().zip(&ends).map(|(line, end)| format!("{line}{end}")).collect();
            let bytes = stream.as_bytes();
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|pair| &bytes[pair[0]..pair[1]]).collect();
            prop_assert_eq!(events(&pieces), events(&[bytes]));
        }
    }
}
